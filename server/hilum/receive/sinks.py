"""Takers: the place of a received object (archive, discard, rejection note), and its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Protocol

from hilum.receive.upper_layer.provider import BorrowedBuffer

NOTE_NOT_PERMITTED: Final = (
    "A rejection note names images of other senders, which stay in use: `hilum images notes` lists"
    " them. Take them out with `hilum images reject`, or set may_reject = true in this sender's"
    " section of senders"
)


class StoreOutcome(StrEnum):
    """The outcome of a request with the response Success."""

    IMAGE = "image"
    OWN_DOCUMENT = "own_document"
    REJECTION_NOTE = "rejection_note"
    OTHER_OBJECT = "other_object"  # no image, and not kept
    # it names images of other senders, which stay in use
    NOTE_NOT_PERMITTED = "rejection_note_not_permitted"


class ObjectSink(Protocol):
    """A taker of one data set, piece by piece.

    The pieces are overwritten when `write` has returned.
    """

    @property
    def is_receiver(self) -> bool:
        """Whether `receive` may take any bytes."""

    def receive(self, unread: BorrowedBuffer, size: int) -> None:
        """Read as many bytes as it chooses. Raises Refusal, OSError.

        The PDUs have `size` bytes of the data set each.
        """

    def write(self, pieces: Sequence[memoryview]) -> None:
        """Take the next bytes. Raises Refusal, OSError."""

    def commit(self) -> StoreOutcome:
        """Return when the complete object may be acknowledged. Raises Refusal, OSError."""

    def close(self) -> None:
        """Remove all bytes that were not committed. Once."""


class PiecewiseSink:
    """A taker that reads nothing by itself."""

    is_receiver = False

    def receive(self, unread: BorrowedBuffer, size: int) -> None:
        """Raise NotImplementedError: it is never called."""
        raise NotImplementedError
