"""Storage commitment (PS3.4 annex J): requests and their results."""

from __future__ import annotations

from dataclasses import dataclass

from hilum.domain.dicom import SopReference


@dataclass(frozen=True, slots=True)
class CommitmentRequest:
    """A request for storage commitment of these objects (PS3.4 annex J)."""

    transaction_uid: str
    references: tuple[SopReference, ...]
    calling_ae_title: str
    called_ae_title: str
    peer_address: str = ""


@dataclass(frozen=True, slots=True)
class CommitmentVerdict:
    """Kept objects, and objects that are not kept, each with its Failure Reason (0008,1197)."""

    committed: tuple[SopReference, ...]
    failed: tuple[tuple[SopReference, int], ...]


@dataclass(frozen=True, slots=True)
class AskedCommitment:
    """A request of ours: documents that a destination accepted, and shall keep.

    `ae_title`: of the SCP that is asked. `calling_ae_title`, `peer_address`: of the sender of the
    studies, which is that SCP where documents go back to senders.
    """

    transaction_uid: str
    destination: str
    ae_title: str
    references: tuple[SopReference, ...]
    calling_ae_title: str
    peer_address: str


@dataclass(frozen=True, slots=True)
class RecordedReport:
    """The rows that the report of an SCP has changed, by number, and the faults of the report.

    `resent`: not kept there, and sent again. `dead`: not kept there, and given up. `unasked`:
    objects that the request did not name. `missing`: objects of the request that it leaves out.
    """

    destination: str
    committed: int = 0
    resent: int = 0
    dead: int = 0
    unasked: int = 0
    missing: int = 0
