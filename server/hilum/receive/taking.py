"""Who takes an object, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Protocol

from hilum.receive.streaming.provider import Unread

NOTE_NOT_PERMITTED: Final = (
    "A rejection note names images of other senders, which stay in use: `hilum images notes` lists them. "
    "Take them out with `hilum images reject`, or set may_reject = true in this sender's section of senders"
)


class Taken(StrEnum):
    """What became of a request that is answered with Success."""

    IMAGE = "image"
    OWN_DOCUMENT = "own_document"
    REJECTION_NOTE = "rejection_note"
    OTHER_OBJECT = "other_object"  # no image, and not kept
    NOTE_NOT_PERMITTED = "rejection_note_not_permitted"  # it names images of other senders, which stay in use


class Taker(Protocol):
    """Takes one data set piece by piece. The pieces are overwritten when `write` has returned."""

    @property
    def is_receiver(self) -> bool:
        """Whether `receive` may take anything."""

    def receive(self, unread: Unread, size: int) -> None:
        """Of PDUs with `size` bytes of the data set each, as many as it likes to read by itself. Raises Refusal, OSError."""

    def write(self, pieces: Sequence[memoryview]) -> None:
        """The next bytes. Raises Refusal, OSError."""

    def commit(self) -> Taken:
        """There were no more bytes: return when the object may be acknowledged. Raises Refusal, OSError."""

    def close(self) -> None:
        """Leave nothing that was not committed. Once."""


class PiecesOnly:
    """A taker that reads nothing by itself."""

    is_receiver = False

    def receive(self, unread: Unread, size: int) -> None:
        """Nobody asks it to."""
        raise NotImplementedError
