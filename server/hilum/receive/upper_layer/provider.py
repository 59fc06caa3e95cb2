"""The interface of the loop: takers of data sets, which decide the responses to requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from hilum.receive.upper_layer.command import Command


@dataclass(frozen=True, slots=True)
class AcceptedContext:
    """An accepted Presentation Context."""

    sop_class_uid: str
    transfer_syntax_uid: str


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """A status (PS3.7 annex C) and an Error Comment of at most 64 characters."""

    status: int
    comment: str = ""


class Fragment(NamedTuple):
    """One Presentation Data Value of which only the header has been read.

    `size` bytes of a message come next (PS3.8 9.3.5.1, annex E). `beginning`: of its PDU, where
    that holds nothing else and others of the data set follow; else empty.
    """

    context_id: int
    is_command: bool
    is_last: bool
    size: int
    beginning: bytes


@dataclass(slots=True)
class BorrowedBuffer:
    """A connection, lent within a fragment of a data set.

    Unread bytes are at [start, end) of the buffer, more come from the descriptor. `first`: so many
    bytes of the fragment come next. `is_last`, `beginning`: see `Fragment`; the reader also sets
    `is_last` after reading the data set's last fragment. `problem`: the error that ended the
    reading.
    """

    descriptor: int
    buffer: bytearray
    start: int
    end: int
    first: int
    is_last: bool
    beginning: bytes
    problem: OSError | None = None


class DataSetSink(Protocol):
    """One data set in transit.

    It never raises for faults of the data set, of the disk or of itself.
    """

    @property
    def reads_after(self) -> int | None:
        """The number of next bytes for `write` before `receive` may take any; None: all."""

    def write(self, pieces: Sequence[memoryview]) -> None:
        """Take the next bytes; they are overwritten when this returns."""

    def receive(self, unread: BorrowedBuffer, size: int) -> None:
        """Read as much as it chooses of the fragment in progress and of similar PDUs.

        Those begin as its PDU did, each with `size` bytes of the data set.
        """

    def finish(self) -> StoreStatus:
        """Return the response to the complete data set."""

    def close(self) -> None:
        """End, finished or not: all bytes of an unacknowledged object are removed. Idempotent."""


class StorageProvider(Protocol):
    """The handler of one kind of request: C-STORE, N-ACTION or N-EVENT-REPORT."""

    def begin(self, command: Command, context: AcceptedContext) -> DataSetSink:
        """Begin a request, whose data set follows. Never raises for a fault of the command."""
