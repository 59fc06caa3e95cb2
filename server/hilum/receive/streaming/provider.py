"""What the loop needs from outside: who takes data sets and says how requests are answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from hilum.receive.streaming.command import Command


@dataclass(frozen=True, slots=True)
class Context:
    """An accepted Presentation Context."""

    sop_class_uid: str
    transfer_syntax_uid: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A status (PS3.7 annex C) and an Error Comment of at most 64 characters."""

    status: int
    comment: str = ""


class Fragment(NamedTuple):
    """One Presentation Data Value, of which only the header has been read; `size` bytes of a message come next (PS3.8 9.3.5.1, annex E).

    `beginning`: of its PDU, where that holds nothing else and others of the data set follow; else empty.
    """

    context_id: int
    is_command: bool
    is_last: bool
    size: int
    beginning: bytes


@dataclass(slots=True)
class Unread:
    """A connection, lent within a fragment of a data set: unread bytes lie at [start, end) of the buffer, more come from the descriptor.

    `first`: so many bytes of the fragment come next. `is_last`, `beginning`: see `Fragment`; who reads sets `is_last` when he has read the
    data set's last fragment, too. `problem`: reading ended with it.
    """

    descriptor: int
    buffer: bytearray
    start: int
    end: int
    first: int
    is_last: bool
    beginning: bytes
    problem: OSError | None = None


class Incoming(Protocol):
    """One data set on its way in. It never raises for what is wrong with the data set, with the disk or with itself."""

    @property
    def reads_after(self) -> int | None:
        """So many of the next bytes go to `write` before `receive` may take anything; None: all do."""

    def write(self, pieces: Sequence[memoryview]) -> None:
        """The next bytes; they are overwritten when this returns."""

    def receive(self, unread: Unread, size: int) -> None:
        """Take the fragment in progress, and PDUs that begin as it did, each with `size` bytes of the data set: what it likes."""

    def finish(self) -> Verdict:
        """There were no more bytes: what to answer."""

    def close(self) -> None:
        """The end, finished or not: whatever was not acknowledged vanishes. Idempotent."""


class Provider(Protocol):
    """Answers requests of one kind, C-STORE or N-ACTION."""

    def begin(self, command: Command, context: Context) -> Incoming:
        """A request has come; its data set follows. Never raises for what is wrong with the command."""
