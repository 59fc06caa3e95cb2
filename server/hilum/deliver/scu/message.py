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
# With all headers: a report of some thirty thousand objects, also in small PDUs. Empty PDVs count.
_LARGEST_WIRE_BYTES: Final = (4 << 20) + (64 << 10)


@dataclass(slots=True)
class Message:
    """A message: its Presentation Context, its command set, and its data set, empty without one.

    `wire_bytes`: those of its PDUs.
    """

    context_id: int = 0
    command: bytearray = field(default_factory=bytearray)
    elements: Mapping[int, bytes] = field(default_factory=dict)
    data_set: bytearray = field(default_factory=bytearray)
    is_complete: bool = False
    wire_bytes: int = 0

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
        if self.elements:
            raise ConnectionLost("it sent a second command set within a message")
        self.command += fragment.content
        if fragment.is_last:
            try:
                self.elements = command_set.decode(bytes(self.command))
            except ValueError as error:
                raise ConnectionLost("it sent something that is no command set") from error
            kind = command_set.number(self.elements.get(command_set.COMMAND_DATA_SET_TYPE))
            self.is_complete = kind == command_set.NO_DATA_SET


def message_before(
    wire: SocketReader, deadline: float, is_over: Callable[[], bool] = lambda: False
) -> Message | None:
    """Return the next message; None: it did not come in time. Raises ConnectionLost.

    `deadline`: by the monotonic clock. A release or an abort raises, too; a release gets its
    response.
    """
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
    message.wire_bytes += len(whole)
    if message.wire_bytes > _LARGEST_WIRE_BYTES:
        raise ConnectionLost("its message is larger than any report")
