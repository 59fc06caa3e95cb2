"""Scripted STOW-RS answers, and a client of the server that gives them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hilum.deliver.stow import StowClient
from hilum.domain import SR_CLASS_PREFERENCE, Document
from hilum.settings import StowDestination
from tests.support.retrieve.web_server import Reply, element, reply

UID: Final = "1.2.3.4"
DICOM_JSON: Final = {"Content-Type": "application/dicom+json"}
REPORT: Final = Document(
    "sr",
    "application/dicom",
    bytes(128) + b"DICM\r\n--not the boundary\r\n" + bytes(range(256)),
    SR_CLASS_PREFERENCE[0].sop_class_uid,
    UID,
    "1.2.3",
)


def item(uid: str = UID, failure: int | None = None, warning: int | None = None) -> dict[str, Any]:
    """An item of Referenced SOP Sequence or Failed SOP Sequence."""
    found = {"00081155": element("UI", uid)} if uid else {}
    if failure is not None:
        found["00081197"] = element("US", failure)
    if warning is not None:
        found["00081196"] = element("US", warning)
    return found


def answer(
    stored: list[dict[str, Any]],
    failed: list[dict[str, Any]] | None = None,
    status: int = 200,
    headers: Mapping[str, str] = DICOM_JSON,
) -> Reply:
    """An answer with both sequences."""
    document = {
        "00081199": {"vr": "SQ", "Value": stored},
        "00081198": {"vr": "SQ", "Value": failed or []},
    }
    return reply(status, json.dumps(document).encode(), headers)


@contextlib.contextmanager
def client_of(url: str, **settings: Any) -> Iterator[StowClient]:
    """The client of a server."""
    values = {"url": f"{url}/dicom-web", "timeout_seconds": 20.0, **settings}
    with contextlib.closing(StowClient("archive", StowDestination.model_validate(values))) as made:
        yield made
