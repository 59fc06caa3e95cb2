"""What the loop needs from outside: who takes data sets and says how requests are answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

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


@dataclass(slots=True)
class Unread:
    """A connection, lent between two PDUs: its unread bytes lie at [start, end) of the buffer, and more come from the descriptor.

    `beginning`: of the last PDU, up to its fragment of a data set. `problem`: reading ended with it.
    """

    descriptor: int
    buffer: bytearray
    start: int
    end: int
    beginning: bytes
    problem: OSError | None = None


class Incoming(Protocol):
    """One data set on its way in. It never raises for what is wrong with the data set, with the disk or with itself."""

    @property
    def is_receiver(self) -> bool:
        """Whether `receive` may take something, now or after the next bytes."""

    def write(self, pieces: Sequence[memoryview]) -> None:
        """The next bytes; they are overwritten when this returns."""

    def receive(self, unread: Unread, size: int) -> None:
        """Take PDUs that begin like the last one, each with `size` bytes of this data set: as many as it likes, or none."""

    def finish(self) -> Verdict:
        """There were no more bytes: what to answer."""

    def close(self) -> None:
        """The end, finished or not: whatever was not acknowledged vanishes. Idempotent."""


class Provider(Protocol):
    """The Storage SCP behind the loop."""

    def begin(self, command: Command, context: Context) -> Incoming:
        """A C-STORE-RQ has come; its data set follows. Never raises for what is wrong with the command."""
