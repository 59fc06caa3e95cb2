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
