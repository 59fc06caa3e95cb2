"""Worklist servers: DCMTK's wlmscpfs, and one by pynetdicom that misbehaves on demand."""

from __future__ import annotations

import itertools
import ssl
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from pydicom.dataset import Dataset
from pydicom.sequence import Sequence as DicomSequence
from pynetdicom import AE, evt
from pynetdicom.sop_class import ModalityWorklistInformationFind

from hilum.settings import Worklist
from tests.support.peers.peers import Peer, free_port, require_program

WORKLIST_TITLE = "RIS"
PATIENT = "DOE^JANE"
# Attributes without which wlmscpfs leaves a file out.
_ENTRY = """\
(0008,0005) CS [ISO_IR 100]
(0008,0050) SH [{accession}]
(0010,0010) PN [{patient}]
(0010,0020) LO [4711]
(0010,0030) DA [19700101]
(0010,0040) CS [F]
(0020,000d) UI [1.2.826.0.1.3680043.8.498.{number}]
{study_priority}
(0032,1060) LO [XR Chest]
(0040,0100) SQ
(fffe,e000) -
(0008,0060) CS [DX]
(0040,0001) AE [DX1]
(0040,0002) DA [20261120]
(0040,0003) TM [083000]
(0040,0006) PN [ROE^RICHARD]
(0040,0007) LO [XR Chest pa]
(0040,0009) SH [SPS{number}]
(0040,0010) SH [ROOM1]
{step_priority}
(fffe,e00d) -
(fffe,e0dd) -
(0040,1001) SH [RP{number}]
{priority}
"""


class DcmtkWorklist(Peer):
    """DCMTK's wlmscpfs. Each entry is a file of dump2dcm, read anew for each query."""

    def __init__(self, port: int | None = None, extra: tuple[str, ...] = ()) -> None:
        self._program = require_program("wlmscpfs", "dcmtk")
        self._dump2dcm = require_program("dump2dcm", "dcmtk")
        super().__init__()
        self.port = port or free_port()
        self._extra = extra
        self._files = self.folder / "worklists" / WORKLIST_TITLE
        self._files.mkdir(parents=True)
        (self._files / "lockfile").touch()

    def _ports(self) -> list[int]:
        return [self.port]

    def _command(self) -> list[str]:
        folder = ["-dfp", str(self._files.parent)]
        return [self._program, "-v", *folder, *self._extra, str(self.port)]

    def put(
        self, accession: str, priority: str = "", *, study_priority: str = "", in_step: str = ""
    ) -> None:
        """Add an entry of an order."""
        number = len(list(self._files.glob("*.wl"))) + 1
        text = _ENTRY.format(
            accession=accession,
            patient=PATIENT,
            number=number,
            priority=f"(0040,1003) SH [{priority}]" if priority else "",
            study_priority=f"(0032,000c) CS [{study_priority}]" if study_priority else "",
            step_priority=f"(0040,1003) SH [{in_step}]" if in_step else "",
        )
        source = self.folder / f"{number}.dump"
        source.write_text(text, encoding="latin-1")
        made = self.folder / f"{number}.dcm"
        subprocess.run(
            [self._dump2dcm, "-q", str(source), str(made)], check=True, capture_output=True
        )
        made.rename(self._files / f"{number}.wl")


class WorklistEnding(StrEnum):
    """How it ends a query: with a final status, with silence, never, or by an abort."""

    FINAL = "final"
    SILENCE = "silence"
    PENDING_FOR_EVER = "pending_for_ever"
    ABORT = "abort"


@dataclass
class ScriptedWorklist:
    """Enter it as a context; `port` is its own.

    `entries`: its answers to each query, whatever it asks. `held`: a query waits until it is set.
    `requests`: the identifiers that came.
    """

    entries: Sequence[Dataset] = ()
    ending: WorklistEnding = WorklistEnding.FINAL
    final: int = 0x0000
    is_worklist: bool = True
    refuses: bool = False
    held: threading.Event | None = None
    tls: ssl.SSLContext | None = None
    requests: list[Dataset] = field(default_factory=list)

    @property
    def port(self) -> int:
        """Its port."""
        return int(self._server.socket.getsockname()[1])

    def __enter__(self) -> Self:
        """Start it."""
        entity = AE(ae_title=WORKLIST_TITLE)
        model = ModalityWorklistInformationFind if self.is_worklist else "1.2.840.10008.1.1"
        entity.add_supported_context(model)
        entity.require_calling_aet = ["SOMEBODY"] if self.refuses else []
        self._server = entity.start_server(
            ("127.0.0.1", 0),
            block=False,
            ssl_context=self.tls,
            evt_handlers=[(evt.EVT_C_FIND, self._find)],
        )
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop it."""
        if self.held is not None:
            self.held.set()
        self._server.shutdown()

    def _find(self, event: Any) -> Iterator[tuple[int, Dataset | None]]:
        self.requests.append(event.identifier)
        if self.held is not None:
            self.held.wait(30.0)
        if self.ending is WorklistEnding.SILENCE:
            while event.assoc.is_established:
                threading.Event().wait(0.01)
            return
        times = 1_000_000 if self.ending is WorklistEnding.PENDING_FOR_EVER else 1
        for entry in itertools.chain.from_iterable(itertools.repeat(self.entries, times)):
            if not event.assoc.is_established:
                return
            yield 0xFF00, entry
        if self.ending is WorklistEnding.ABORT:
            event.assoc.abort()
            return
        if self.final:
            yield self.final, None


def entry(accession: str, priority: str = "", *, retired: str = "", in_step: str = "") -> Dataset:
    """An entry of a scripted worklist."""
    step = Dataset()
    step.Modality = "DX"
    if in_step:
        step.RequestedProcedurePriority = in_step
    made = Dataset()
    made.PatientName = PATIENT
    made.AccessionNumber = accession
    made.ScheduledProcedureStepSequence = DicomSequence([step])
    if priority:
        made.RequestedProcedurePriority = priority
    if retired:
        made.StudyPriorityID = retired
    return made


def worklist_at(port: int, **settings: Any) -> Worklist:
    """The settings of a worklist on this machine. Generous: a test never proves that it is fast."""
    return Worklist.model_validate(
        {
            "host": "127.0.0.1",
            "port": port,
            "ae_title": WORKLIST_TITLE,
            "timeout_seconds": 20.0,
            **settings,
        }
    )
