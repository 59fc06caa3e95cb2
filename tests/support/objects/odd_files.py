"""Every file of the test data through a whole server by C-STORE, and the table in docs/archive/odd_files.md that says what each ended as.

HILUM_TEST_DATA=… python -m tests.support.objects.odd_files        writes the table; the integration test compares it
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pydicom
from pydicom.uid import UID, ImplicitVRLittleEndian, SecondaryCaptureImageStorage
from pynetdicom.dsutils import split_dataset

from deploy.generate_docs import DOCS, with_generated
from hilum.deliver.send import FileState, send
from hilum.receive.policy.other_objects import is_other
from hilum_preprocessing import InputSpec, NotAnalysable
from hilum_preprocessing.prepare import prepare
from testing.serving import Hilum
from tests.support.models.releases import make_tiny
from tests.support.peers.raw_scu import DX, RawScu
from tests.support.server.installation import START_SECONDS, hilum_with, wait_for

PAGE: Final = DOCS / "archive/odd_files.md"
NAME: Final = "odd files"
_ASSOCIATIONS = "/api/v1/associations?limit=200"


@dataclass(frozen=True)
class Ended:
    """One file: what it is, how each sender fared, and what the server made of it.

    `study` and `uid` are "" if it was not stored.

    `disguised`: what it ends as once its header claims to be a frontal chest radiograph, so that its pixels are looked at.
    """

    file: str
    kind: str
    wire: str
    end: str
    disguised: str
    study: str = ""
    uid: str = ""


@dataclass(frozen=True)
class _Object:
    """What a data set says of itself, and its bytes without file meta."""

    encoded: bytes
    sop_class_uid: str
    sop_instance_uid: str
    study_instance_uid: str
    transfer_syntax_uid: str

    @property
    def kind(self) -> str:
        named = UID(self.sop_class_uid).name if self.sop_class_uid else "no SOP Class"
        return (
            f"{named},"
            f" {UID(self.transfer_syntax_uid).name if self.transfer_syntax_uid else 'no Transfer Syntax'}"
        )


def server_for(folder: Path) -> Hilum:
    """A whole server with a tiny frontal release for adults, whose documents go into a folder."""
    out = {"folder": {"kind": "folder", "path": str(folder / "out"), "documents": ["sr", "json"]}}
    return hilum_with(folder, make_tiny(folder / "tiny"), out, quiet_seconds=0.5)


def send_all(server: Hilum, test_data: Path) -> list[Ended]:
    """Each file in an association of its own, in the order of their names.

    Then what every study closed with.
    """
    sent = [
        _send(server, path, str(path.relative_to(test_data / "dicom")))
        for path in sorted((test_data / "dicom").rglob("*.dcm"))
    ]
    for study in {item.study for item in sent} - {""}:
        wait_for(lambda uid=study: _closed(server, uid), what=f"study {study}")
    return [_with_end(server, item) for item in sent]


def table(ended: Sequence[Ended]) -> Iterator[str]:
    """Markdown."""
    yield (
        "\n| file | object | C-STORE | ended as | its pixels, read as a chest radiograph"
        " |\n|---|---|---|---|---|"
    )
    yield from (
        f"| `{item.file}` | {item.kind} | {item.wire} | {item.end} | {item.disguised} |"
        for item in ended
    )


def _send(server: Hilum, path: Path, name: str) -> Ended:
    item = _read(path)
    before, revision = _refusals(server), _revision(server, item)
    (sent,) = send([path], "127.0.0.1", server.dicom_port, "HILUM", "ODDFILES").files
    wire = _wire(server, sent.state, sent.detail.partition(";")[0], before)
    if sent.state is not FileState.SENT and "sop_class_not_accepted" not in wire:
        # Our sender goes by the file meta and refuses what is malformed; another one may go by the
        # data set, and send it as it is.
        before = _refusals(server)
        status = _send_raw(server, item)
        other = _wire(server, FileState.SENT if status == 0 else FileState.REFUSED, "", before)
        wire = wire if other == wire else f"{wire}. Another sender: {other}"
    if not wire.endswith("stored"):
        return Ended(name, item.kind, wire, "refused", _disguised(path))
    if is_other(item.sop_class_uid):
        return Ended(
            name,
            item.kind,
            wire.replace("stored", "answered Success, and not kept"),
            "no image",
            _disguised(path),
        )
    wait_for(lambda: _revision(server, item) > revision, what=f"the row of {name}")
    known = f", header revision {revision + 1} of a known UID" if revision else ""
    return Ended(
        name,
        item.kind,
        wire + known,
        "",
        _disguised(path),
        item.study_instance_uid,
        item.sop_instance_uid,
    )


def _wire(server: Hilum, state: FileState, detail: str, before: Mapping[int, int]) -> str:
    """What became of it on the wire: the words of its association's row."""
    if state is FileState.SENT:
        return "stored"
    if state in (FileState.SKIPPED, FileState.FAILED):
        return f"`hilum send` cannot: {detail}"
    wait_for(lambda: _refused_since(server, before), what="the row of a refusal, with its reason")
    row = _refused_since(server, before)[0]
    assert row["advice"], "a refusal without advice"
    advice = row["advice"].rpartition(f"{row['reason']}: ")[
        2
    ]  # "1 C-STORE refused, the last with 0xC000: " says nothing new
    return f"`{row['reason']}` ({advice.rstrip('.')})"


def _disguised(path: Path) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = pydicom.dcmread(path, force=True)
        dataset.SOPClassUID, dataset.Modality, dataset.BodyPartExamined = (
            SecondaryCaptureImageStorage,
            "CR",
            "CHEST",
        )
        dataset.ViewPosition = "PA"
        try:
            prepare(dataset, InputSpec.from_mapping({"recipe": "torchxrayvision_224"}))
        except NotAnalysable as error:
            return f"`{error.reason.value}` ({error.detail})"
    return "a tensor"


def _send_raw(server: Hilum, item: _Object) -> int:
    sop_class, syntax = item.sop_class_uid or DX, item.transfer_syntax_uid or ImplicitVRLittleEndian
    with RawScu(
        server.dicom_port, sop_class_uid=sop_class, transfer_syntax_uid=syntax, calling="ANOTHER"
    ) as scu:
        accepted = [context.abstract_syntax for context in scu.assoc.accepted_contexts]
        return (
            scu.store(item.encoded, item.sop_instance_uid or "1.2.3.4")[0]
            if sop_class in accepted
            else -1
        )


def _read(path: Path) -> _Object:
    content = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = pydicom.dcmread(path, force=True, stop_before_pixels=True)
        start = split_dataset(path)[1] if content[128:132] == b"DICM" else 0
    words = [
        str(dataset.get(keyword) or "")
        for keyword in ("SOPClassUID", "SOPInstanceUID", "StudyInstanceUID")
    ]
    return _Object(content[start:], *words, str(dataset.file_meta.get("TransferSyntaxUID") or ""))


def _refusals(server: Hilum) -> dict[int, int]:
    """By row, how many associations it stands for: those of a kind within a minute share one."""
    return {row["id"]: row["count"] for row in server.get(_ASSOCIATIONS).json()["associations"]}


def _refused_since(server: Hilum, before: Mapping[int, int]) -> list[dict[str, Any]]:
    """Rows that say why, the newest first.

    A row comes a moment after its association: that of the file before may be new, too.
    """
    found = server.get(_ASSOCIATIONS).json()["associations"]
    return [row for row in found if row["count"] > before.get(row["id"], 0) and row["reason"]]


def _image(server: Hilum, study: str, uid: str) -> dict[str, Any] | None:
    answer = server.get(f"/api/v1/studies/{study}") if study else None
    images = answer.json()["images"] if answer is not None and answer.is_success else []
    return next((image for image in images if image["sop_instance_uid"] == uid), None)


def _revision(server: Hilum, item: _Object) -> int:
    image = _image(server, item.study_instance_uid, item.sop_instance_uid)
    return int(image["header_revision"]) if image else 0


def _closed(server: Hilum, study: str) -> bool:
    found = server.get(f"/api/v1/studies/{study}").json()
    return found["state"] == "closed" and any(
        result["is_current"] and result["state"] == "reported" for result in found["results"]
    )


def _with_end(server: Hilum, item: Ended) -> Ended:
    if not item.study:
        return item
    image = _image(server, item.study, item.uid)
    assert image is not None
    (reading,) = image["readings"]
    end = (
        f"analysed, view {reading['view']}"
        if reading["state"] == "analysed"
        else f"`{reading['reason']}`"
    )
    seen = f" ({reading['detail']})" if reading["detail"] else ""
    return Ended(item.file, item.kind, item.wire, end + seen, item.disguised, item.study, item.uid)


def main() -> int:
    """Write the table."""
    with (
        tempfile.TemporaryDirectory(prefix="hilum-odd-") as folder,
        server_for(Path(folder)) as server,
    ):
        server.wait_until_ready(START_SECONDS)
        content = "\n".join(table(send_all(server, Path(os.environ["HILUM_TEST_DATA"]).resolve())))
    PAGE.write_text(
        with_generated(PAGE.read_text(encoding="utf-8"), NAME, content), encoding="utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
