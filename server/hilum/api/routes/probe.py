"""/api/v1/destinations/{name}/probe: the terms of a destination, asked now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Path
from pydantic import Field
from starlette.exceptions import HTTPException

from hilum.api.dependencies import PartsHere
from hilum.api.fields import ResponseModel
from hilum.api.problems import documented
from hilum.api.routes.router import audited_router
from hilum.domain import Scope
from hilum.verbs import Verb, performs

router = audited_router("Operations", Scope.OPERATE)
DestinationName = Annotated[
    str,
    Path(
        description="As in the settings: `[destinations.<name>]`.",
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        examples=["pacs"],
    ),
]


class AcceptedAnswer(ResponseModel):
    """One SOP Class in one Transfer Syntax."""

    sop_class: str = Field(examples=["Comprehensive 3D SR Storage"])
    sop_class_uid: str
    transfer_syntax: str = Field(examples=["Explicit VR Little Endian"])
    transfer_syntax_uid: str
    is_accepted: bool


class ProbeAnswer(ResponseModel):
    """The answer of a destination."""

    destination: str
    address: str = Field(examples=["PACS@10.0.0.5:104"])
    is_ok: bool = Field(description="Reports can go there.")
    detail: str = Field(description="The finding, and the change that it needs.")
    echo: str | None = Field(
        description="The result of C-ECHO; null where it was not sent.", examples=["success"]
    )
    sr_class: str | None = Field(
        description="The class of report that it would get.", examples=["comprehensive_3d"]
    )
    contexts: list[AcceptedAnswer]


@router.post(
    "/destinations/{name}/probe",
    response_model=ProbeAnswer,
    responses=documented(404),
    summary="Ask a destination for its terms",
)
@performs(Verb.PROBE)
def probe_destination(parts: PartsHere, name: DestinationName) -> Mapping[str, Any]:
    """C-ECHO, and which classes of report it accepts in which Transfer Syntax.

    No object is sent. 200 also when the answer is no.
    """
    assert parts.probe is not None  # `create_app` adds this route only then
    if name not in parts.settings.destinations:
        raise HTTPException(404, "There is no such destination in the settings.")
    return parts.probe(name)
