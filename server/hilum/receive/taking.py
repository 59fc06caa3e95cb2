"""Who takes an object, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol


class Taken(StrEnum):
    """What became of a request that is answered with Success."""

    IMAGE = "image"
    OWN_DOCUMENT = "own_document"
    REJECTION_NOTE = "rejection_note"


class Taker(Protocol):
    """Takes one data set piece by piece. The pieces are overwritten when `write` has returned."""

    def write(self, pieces: Sequence[memoryview]) -> None:
        """The next bytes. Raises Refusal, OSError."""

    def commit(self) -> Taken:
        """There were no more bytes: return when the object may be acknowledged. Raises Refusal, OSError."""

    def close(self) -> None:
        """Leave nothing that was not committed. Once."""
