"""`make bench-deliver`: structured reports to local receivers, one document after the other.

By C-STORE to DCMTK's storescp over one association, by STOW-RS to Orthanc over one connection, and
as HL7 messages to python-hl7's MLLP server over one connection, as signed webhooks to a program that
verifies them, and as FHIR Bundles to a server of ours. Documents a second, and CPU of each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydicom.dataset import Dataset
from pydicom.uid import Comprehensive3DSRStorage, ExplicitVRLittleEndian

from hilum.deliver import DestinationClient
from hilum.deliver.cstore import DicomClient
from hilum.deliver.fhir import FhirClient
from hilum.deliver.hl7 import Hl7Client
from hilum.deliver.stow import StowClient
from hilum.deliver.webhook import WebhookClient
from hilum.domain import FHIR, HL7, JSON, NOTICE, Document, DocumentKind
from hilum.report import build_documents
from hilum.settings import (
    DicomDestination,
    FhirDestination,
    Hl7Destination,
    StowDestination,
    WebhookDestination,
)
from load_tests.bench.report_job import CONTEXT, claimed, release_with
from load_tests.load.measure import Goal, circumstances
from testing.fhir_server import FhirServer
from testing.hl7_receiver import Hl7Receiver
from testing.peers import Orthanc, StoreScp
from testing.webhook_receiver import WebhookReceiver

RESULT = Path(__file__).parents[1] / "results" / "bench-deliver.json"
_GOAL_PER_SECOND = 100.0
_FINDINGS = 14
_DOCUMENT_BYTES = 44_000  # so many findings, on two images

Receiver = tuple[DestinationClient, Callable[[], int]]
"""A client of a receiver, and how many documents the receiver holds."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way out. `what`: the measurement, for people. `make`: a document, by its number."""

    what: str
    goal: str
    open: Callable[[Path], contextlib.AbstractContextManager[Receiver]]
    documents: Callable[[Iterable[int]], list[Document]]


@contextlib.contextmanager
def _storescp(folder: Path) -> Iterator[Receiver]:
    with (
        StoreScp(folder / "pacs") as peer,
        contextlib.closing(DicomClient("bench", DicomDestination(**dict(peer.settings)))) as client,
    ):
        yield client, lambda: len(list((peer.folder / "received").iterdir()))


@contextlib.contextmanager
def _orthanc(folder: Path) -> Iterator[Receiver]:
    with Orthanc(folder / "pacs", dicomweb=True) as peer:
        settings = StowDestination(url=peer.dicomweb_url)
        with contextlib.closing(StowClient("bench", settings)) as client:
            yield client, peer.count


class Holder(Protocol):
    """A receiver that says what it holds."""

    def held(self) -> Sequence[str]:
        """The identities."""


Held = TypeVar("Held", bound=Holder)


@contextlib.contextmanager
def _holder(
    started: contextlib.AbstractContextManager[Held],
    client_of: Callable[[Held], DestinationClient],
) -> Iterator[Receiver]:
    with started as peer, contextlib.closing(client_of(peer)) as client:
        yield client, lambda: len(peer.held())


def _verifier(folder: Path) -> contextlib.AbstractContextManager[Receiver]:
    return _holder(
        WebhookReceiver(folder / "program"),
        lambda peer: WebhookClient("bench", WebhookDestination(**dict(peer.settings))),
    )


def _python_hl7(folder: Path) -> contextlib.AbstractContextManager[Receiver]:
    return _holder(
        Hl7Receiver(folder / "ris"),
        lambda peer: Hl7Client("bench", Hl7Destination(**dict(peer.settings))),
    )


def _fhir(_folder: Path) -> contextlib.AbstractContextManager[Receiver]:
    return _holder(FhirServer(), lambda peer: FhirClient("bench", FhirDestination(url=peer.url)))


def reports(numbers: Iterable[int]) -> list[Document]:
    """Part 10 files of the size of a report; no receiver here reads their content."""
    return [_report(number) for number in numbers]


def built(kind: DocumentKind, numbers: Iterable[int]) -> list[Document]:
    """Documents of one result of 14 findings, each under an identity of its own."""
    release = release_with(_FINDINGS)
    job, _ = claimed(release)
    made = []
    for number in numbers:
        identifiers = {**job.result.identifiers, JSON.key: f"2.25.{number}"}
        result = replace(job.result, identifiers=identifiers)
        made += build_documents(replace(job, result=result), release, CONTEXT, (kind.key,))
    return made


WAYS: Mapping[str, Way] = {
    "c-store": Way(
        "documents of 44 kB to storescp, one association, one after the other",
        "structured reports to DCMTK on one association, median",
        _storescp,
        reports,
    ),
    "stow": Way(
        "documents of 44 kB to Orthanc by STOW-RS, one connection, one after the other",
        "structured reports to Orthanc by STOW-RS on one connection, median",
        _orthanc,
        reports,
    ),
    "hl7": Way(
        "HL7 messages of 14 findings to python-hl7's MLLP server, one connection, one after the"
        " other",
        "HL7 messages to python-hl7 on one connection, median",
        _python_hl7,
        partial(built, HL7),
    ),
    "webhook": Way(
        "notices to a program that verifies each signature, one connection, one after the other",
        "signed notices on one connection, median",
        _verifier,
        partial(built, NOTICE),
    ),
    "fhir": Way(
        "FHIR Bundles of 14 findings to a server of ours in this process, one connection, one after"
        " the other",
        "FHIR Bundles on one connection, median",
        _fhir,
        partial(built, FHIR),
    ),
}


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 the goals hold, 1 they do not."""
    parser = argparse.ArgumentParser(prog="load_tests.bench.deliver", description=__doc__)
    parser.add_argument("--documents", type=int, default=500, help="a round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument(
        "--way",
        choices=WAYS,
        action="append",
        help="only this one; the figures of others stay in the result (all)",
    )
    parser.add_argument("--result", type=Path, default=RESULT, help="(%(default)s)")
    options = parser.parse_args(words)
    found = _kept(options.result)
    for name in options.way or list(WAYS):
        around = circumstances()
        rounds = [
            measured_round(WAYS[name], options.documents, number)
            for number in range(options.rounds)
        ]
        found[name] = {"what": WAYS[name].what, "measured_at": _now(), **around, "rounds": rounds}
        show(name, rounds)
    goals = [_goal(WAYS[name], found[name]["rounds"]) for name in WAYS if name in found]
    write(options.result, found, goals)
    for goal in goals:
        print(
            f"{'holds ' if goal.holds else 'BROKEN'}  {goal.name}: {goal.value:.0f} {goal.unit}"
            f" (>= {goal.goal:g})"
        )
    return 0 if all(goal.holds for goal in goals) else 1


def measured_round(way: Way, count: int, number: int) -> dict[str, float]:
    """A receiver of its own for each round, so that no round finds a full one."""
    documents = way.documents(range(count * number, count * (number + 1) + 1))
    with tempfile.TemporaryDirectory() as folder, way.open(Path(folder)) as (client, held):
        client.deliver(documents.pop())  # the connection is there
        began = time.perf_counter()
        cpu = time.process_time()
        for item in documents:
            client.deliver(item)
        seconds = time.perf_counter() - began
        spent = time.process_time() - cpu
        assert held() == count + 1, "not every document is there"
    return {
        "documents_per_second": count / seconds,
        "our_cpu_ms_per_document": 1000 * spent / count,
    }


def _report(number: int) -> Document:
    uid = f"2.25.{10**30 + number}"
    made = Dataset()
    made.SOPClassUID = Comprehensive3DSRStorage
    made.SOPInstanceUID = uid
    made.StudyInstanceUID = f"{uid}.1"
    made.SeriesInstanceUID = f"{uid}.2"
    made.PatientID = str(number)
    made.Modality = "SR"
    made.EncapsulatedDocument = bytes(_DOCUMENT_BYTES)
    made.ensure_file_meta()
    made.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    buffer = BytesIO()
    made.save_as(buffer, enforce_file_format=True)
    return Document(
        "sr", "application/dicom", buffer.getvalue(), str(Comprehensive3DSRStorage), uid, "2.25.1"
    )


def _kept(path: Path) -> dict[str, Any]:
    """The figures of an earlier run, by way."""
    return dict(json.loads(path.read_text(encoding="utf-8"))["ways"]) if path.exists() else {}


def _goal(way: Way, rounds: Sequence[Mapping[str, float]]) -> Goal:
    per_second = sorted(item["documents_per_second"] for item in rounds)[len(rounds) // 2]
    return Goal(way.goal, per_second, "documents/s", _GOAL_PER_SECOND, at_most=False)


def write(path: Path, found: Mapping[str, Any], goals: Sequence[Goal]) -> None:
    """The figures of each way with their circumstances."""
    path.parent.mkdir(parents=True, exist_ok=True)
    result = {"ways": found, "goals": [goal.as_json() for goal in goals]}
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def show(name: str, rounds: Sequence[Mapping[str, float]]) -> None:
    """For a person."""
    for number, item in enumerate(rounds, 1):
        print(
            f"{name} {number}  {item['documents_per_second']:7.0f} documents/s "
            f" {item['our_cpu_ms_per_document']:6.2f} ms of our CPU each"
        )


if __name__ == "__main__":
    sys.exit(main())
