"""What a byte stream says by PS3.8 and PS3.7, read at leisure.

The messages that are complete before anything is wrong.

Written apart from the listener's loop, which it judges: every answer must belong to one of these
messages, and in this order.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Container, Iterator
from dataclasses import dataclass

from testing.network import wire

_LARGEST_PDU_BYTES = 16 << 20  # docs/reference/conformance.md
_LARGEST_COMMAND_BYTES = 64 << 10
_CANCEL_RQ = 0x0FFF
_RESPONSE = 0x8000
Pdv = tuple[int, int, bytes]
"""Presentation Context ID, Message Control Header, content."""


@dataclass(frozen=True, slots=True)
class Message:
    """A request that wants a response."""

    context_id: int
    command: dict[int, bytes]
    data_set: bytes

    @property
    def is_store(self) -> bool:
        """Whether it is a C-STORE-RQ."""
        return wire.number_in(self.command, wire.COMMAND_FIELD) == wire.C_STORE_RQ

    @property
    def message_id(self) -> int:
        """Of the request."""
        return wire.number_in(self.command, wire.MESSAGE_ID)


def messages(stream: bytes, contexts: Container[int]) -> Iterator[Message]:
    """Requests in their order, up to the first thing that must not be, or the end."""
    reading = _Reading(contexts)
    with contextlib.suppress(_WrongError):
        for pdv in _pdvs(stream):
            if (message := reading.add(*pdv)) is not None:
                yield message


class _WrongError(Exception):
    """From here on nothing counts."""


class _Reading:
    """One message at a time."""

    def __init__(self, contexts: Container[int]) -> None:
        self._contexts = contexts
        self._begin()

    def _begin(self) -> None:
        self._context_id: int | None = None
        self._encoded = b""
        self._content = b""
        self._request: dict[int, bytes] | None = None

    def add(self, context_id: int, control: int, content: bytes) -> Message | None:
        """A message that this PDV completes. Raises _WrongError."""
        is_last = bool(control & 2)
        if control & 1:
            return self._command(context_id, content, is_last=is_last)
        if self._request is None or context_id != self._context_id:
            raise _WrongError
        self._content += content
        return self._complete() if is_last else None

    def _command(self, context_id: int, content: bytes, *, is_last: bool) -> Message | None:
        if (
            self._request is not None
            or self._context_id not in (None, context_id)
            or context_id not in self._contexts
        ):
            raise _WrongError
        self._context_id = context_id
        self._encoded = self._encoded + content
        if len(self._encoded) > _LARGEST_COMMAND_BYTES:
            raise _WrongError
        return self._decide(_read(self._encoded)) if is_last else None

    def _decide(self, command: dict[int, bytes]) -> Message | None:
        if wire.number_in(command, wire.COMMAND_FIELD) == _CANCEL_RQ:
            self._begin()
            return None
        if (
            len(command.get(wire.MESSAGE_ID, b"")) != 2
            or wire.number_in(command, wire.COMMAND_FIELD) & _RESPONSE
        ):
            raise _WrongError
        self._request = command
        return (
            self._complete()
            if wire.number_in(command, wire.DATA_SET_TYPE) == wire.NO_DATA_SET
            else None
        )

    def _complete(self) -> Message:
        assert self._context_id is not None
        assert self._request is not None
        message = Message(self._context_id, self._request, self._content)
        self._begin()
        return message


def _pdvs(stream: bytes) -> Iterator[Pdv]:
    """Of P-DATA-TF PDUs, each as soon as its own bytes are complete, up to the first other PDU."""
    at = 0
    while at + 6 <= len(stream):
        kind, length = struct.unpack_from(">BxL", stream, at)
        at += 6
        end = at + length
        if kind != wire.P_DATA_TF or length > _LARGEST_PDU_BYTES:
            return
        while at < end:
            if at + 6 > min(end, len(stream)):
                return
            size, context_id, control = struct.unpack_from(">LBB", stream, at)
            following = at + 4 + size
            if size < 2 or following > min(end, len(stream)):
                return
            yield context_id, control, stream[at + 6 : following]
            at = following


def _read(encoded: bytes) -> dict[int, bytes]:
    """Elements of group 0000 that say what is wanted. Raises _WrongError."""
    found = {}
    at = 0
    while at < len(encoded):
        if at + 8 > len(encoded):
            raise _WrongError
        group, number, length = struct.unpack_from("<HHL", encoded, at)
        at += 8 + length
        if group != 0 or at > len(encoded):
            raise _WrongError
        found[number] = encoded[at - length : at]
    if any(len(found.get(number, b"")) != 2 for number in (wire.COMMAND_FIELD, wire.DATA_SET_TYPE)):
        raise _WrongError
    return found
