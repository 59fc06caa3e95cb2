"""Complete messages of the peer, with their data sets: an SCU gets them beside responses."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from hilum.deliver.connection import ConnectionLost, PeerSilent
from hilum.deliver.scu.connection import PdvFragment, SocketReader, pdvs
from hilum.dicom import command_set, pdu

_LOOK_SECONDS: Final = 0.5  # the delay in noticing that a wait shall end
_LARGEST_BYTES: Final = (4 << 20) + (64 << 10)  # a report of some thirty thousand objects


@dataclass(slots=True)
class Message:
    """A message: its Presentation Context, its command set, and its data set, empty without one."""

    context_id: int = 0
    command: bytes = b""
    elements: Mapping[int, bytes] = field(default_factory=dict)
    data_set: bytes = b""
    is_complete: bool = False

    @property
    def is_event(self) -> bool:
        """Whether it is an N-EVENT-REPORT-RQ (PS3.7 10.3.1.1)."""
        found = command_set.number(self.elements.get(command_set.COMMAND_FIELD))
        return found == command_set.N_EVENT_REPORT_RQ

    def add(self, fragment: PdvFragment) -> None:
        """Add the next fragment. Raises ConnectionLost."""
        self.context_id = fragment.context_id
        if not fragment.is_command:
            self.data_set += fragment.content
            self.is_complete = fragment.is_last
            return
        self.command += fragment.content
        if fragment.is_last:
            try:
                self.elements = command_set.decode(self.command)
            except ValueError as error:
                raise ConnectionLost("it sent something that is no command set") from error
            kind = command_set.number(self.elements.get(command_set.COMMAND_DATA_SET_TYPE))
            self.is_complete = kind == command_set.NO_DATA_SET


def next_message(wire: SocketReader) -> Message:
    """Return the next message of the peer, each PDU within its time limit. Raises ConnectionLost.

    A release or an abort raises it, too; a release gets its response.
    """
    message = Message()
    while not message.is_complete:
        _add(wire, message, *wire.receive())
    return message


def message_within(
    wire: SocketReader, seconds: float, is_over: Callable[[], bool]
) -> Message | None:
    """Return the next message; None: it did not come within this time. Raises ConnectionLost."""
    deadline = time.monotonic() + seconds
    message = Message()
    while not message.is_complete:
        left = deadline - time.monotonic()
        if left <= 0 or is_over():
            return None
        try:
            _add(wire, message, *wire.receive(min(left, _LOOK_SECONDS)))
        except PeerSilent:
            continue
    return message


def _add(wire: SocketReader, message: Message, kind: int, whole: bytes) -> None:
    if kind == pdu.RELEASE_RQ:
        wire.send([pdu.RELEASED])
        raise ConnectionLost("it released the association")
    if kind != pdu.P_DATA_TF:
        raise ConnectionLost("it aborted the association")
    for fragment in pdvs(whole):
        message.add(fragment)
    if len(message.command) + len(message.data_set) > _LARGEST_BYTES:
        raise ConnectionLost("its message is larger than any report")
