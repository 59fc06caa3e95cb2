"""A data set received piece by piece: held back until its header is known, then passed on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hilum.receive.headers.header import Header
from hilum.receive.policy.sender_policy import KEY_OBJECT_SELECTION
from hilum.receive.sinks import ObjectSink, StoreOutcome
from hilum.receive.statuses import CannotUnderstand
from hilum.receive.storage.header_window import Beginning
from hilum.receive.storage.store_command import StoreCommand
from hilum.receive.upper_layer.provider import BorrowedBuffer
from hilum_preprocessing.header.structure import MAXIMUM_ELEMENTS, MAXIMUM_LISTED

TakerOf = Callable[[StoreCommand, Header], ObjectSink]
UnreadTakerOf = Callable[[StoreCommand, CannotUnderstand | None], ObjectSink | None]


def _nobody(_command: StoreCommand, _problem: CannotUnderstand | None) -> ObjectSink | None:
    return None


class Arriving:
    """A data set in transit, which leaves nothing if it is closed without `commit`.

    Raises Refusal at once if the command is wrong.
    """

    def __init__(
        self, command: StoreCommand, taker_of: TakerOf, unread_taker_of: UnreadTakerOf = _nobody
    ) -> None:
        """Begin. `unread_taker_of`: the taker of objects without a header.

        It is called at once, and after a problem with the header.
        """
        command.require_consistent()
        self._command = command
        self._taker_of = taker_of
        self._unread_taker_of = unread_taker_of
        is_list = command.meta.sop_class_uid == KEY_OBJECT_SELECTION
        self._beginning = Beginning(
            command.meta.transfer_syntax_uid, MAXIMUM_LISTED if is_list else MAXIMUM_ELEMENTS
        )
        self._taker: ObjectSink | None = unread_taker_of(command, None)

    def write(self, pieces: Sequence[memoryview]) -> None:
        """Take the next bytes. Raises Refusal, OSError."""
        if self._taker is not None:
            self._taker.write(pieces)
            return
        try:
            rest = [left for piece in pieces if (left := self._beginning.add(piece))]
        except CannotUnderstand as problem:
            self._hand_over_unread(problem)
            return
        if self._beginning.header is not None:
            self._hand_over(self._beginning.header, rest)

    @property
    def reads_after(self) -> int | None:
        """The number of next bytes for `write` before `receive` may take any; None: all.

        It is the number as far as is known.
        """
        if self._taker is None:
            return self._beginning.missing
        return 0 if self._taker.is_receiver else None

    def receive(self, unread: BorrowedBuffer, size: int) -> None:
        """Let the taker read as many of the next bytes as it chooses. Raises Refusal, OSError.

        See `streaming.provider.Incoming`.
        """
        # the header may have led to another taker than assumed
        if self._taker is not None and self._taker.is_receiver:
            self._taker.receive(unread, size)

    def commit(self) -> StoreOutcome:
        """Return when the complete object may be acknowledged. Raises Refusal, OSError."""
        taker = self._taker or self._end()
        return taker.commit()

    def _end(self) -> ObjectSink:
        try:
            header = self._beginning.end()
        except CannotUnderstand as problem:
            return self._hand_over_unread(problem)
        return self._hand_over(header, [])

    def _hand_over_unread(self, problem: CannotUnderstand) -> ObjectSink:
        """Pass the object to a taker that needs no header.

        Raises the problem where there is none.
        """
        self._taker = self._unread_taker_of(self._command, problem)
        if self._taker is None:
            raise problem
        return self._taker

    def _hand_over(self, header: Header, rest: Sequence[memoryview]) -> ObjectSink:
        self._command.require_match(header)
        self._taker = self._taker_of(self._command, header)
        self._taker.write([self._beginning.held, *rest])
        return self._taker

    def close(self) -> None:
        """Close it, once, at the end."""
        if self._taker is not None:
            self._taker.close()
