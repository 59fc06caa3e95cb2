"""A C-STORE SCU that costs next to nothing.

Data sets go from where they lie to the socket, PDU headers between their slices.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from testing.network import negotiation, wire
from testing.network.negotiation import Kind
from testing.network.peer_address import Peer
from testing.network.wire import ConnectionEnded, Wire
from testing.phantoms.encoded import Outgoing

SUCCESS = 0x0000
VERIFICATION = "1.2.840.10008.1.1"
_RELEASE_RQ = bytes([wire.RELEASE_RQ, 0, 0, 0, 0, 4, 0, 0, 0, 0])  # PS3.8 9.3.6
_MESSAGES = 65_535  # Message ID is US (PS3.7 E.1)


class NotStored(Exception):
    """The association is over, or was never there; the text says why."""


class StorageScu:
    """One association for the given kinds of object.

    A context manager that associates and releases. For one thread.
    """

    def __init__(
        self,
        peer: Peer,
        calling_ae_title: str,
        kinds: Sequence[Kind],
        timeout_seconds: float = 60.0,
        maximum_pdu_bytes: int = 0,
    ) -> None:
        self._peer = peer
        self._calling = calling_ae_title
        self._kinds = sorted(set(kinds))
        self._timeout = timeout_seconds
        self._limit = maximum_pdu_bytes
        self._message_id = 0
        self._contexts: dict[Kind, int] = {}
        self._wire: Wire | None = None

    @property
    def is_open(self) -> bool:
        """Whether it may be used; it ends with the first NotStored."""
        return self._wire is not None

    def __enter__(self) -> Self:
        """Associate. Raises NotStored."""
        self.associate()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release."""
        self.release()

    def associate(self) -> None:
        """Connect and negotiate.

        Raises NotStored: refused, rejected with result, source and reason, or no answer.
        """
        try:
            connected = socket.create_connection(
                (self._peer.host, self._peer.port), timeout=self._timeout
            )
        except OSError as error:
            raise NotStored(f"no connection: {error.strerror or 'timed out'}") from error
        connected.settimeout(None)
        self._wire = Wire(connected, self._timeout)
        try:
            self._negotiate(self._wire)
        except (ConnectionEnded, NotStored) as error:
            self._drop()
            raise NotStored(str(error)) from error

    def store(self, outgoing: Outgoing) -> int:
        """Send one object; the status of its C-STORE-RSP. Raises NotStored.

        Context not accepted, aborted, lost or timed out.
        """
        kind = (outgoing.sop_class_uid, outgoing.transfer_syntax_uid)
        if self._wire is None:
            raise NotStored("no association")
        if kind not in self._contexts:
            raise NotStored(f"no presentation context for {kind[0]} in {kind[1]}")
        try:
            self._send(self._wire, self._contexts[kind], outgoing)
            return self._answer(self._wire)
        except (ConnectionEnded, NotStored) as error:
            self._drop()
            raise NotStored(str(error)) from error

    def echo(self) -> int:
        """Status of a C-ECHO; its kind is among those of the association. Raises NotStored."""
        context_id = next(
            (number for kind, number in self._contexts.items() if kind[0] == VERIFICATION), None
        )
        if self._wire is None or context_id is None:
            raise NotStored("no association for C-ECHO")
        self._message_id = self._message_id % _MESSAGES + 1
        command = wire.command_set(
            {
                wire.AFFECTED_SOP_CLASS_UID: VERIFICATION,
                wire.COMMAND_FIELD: wire.C_ECHO_RQ,
                wire.MESSAGE_ID: self._message_id,
                wire.DATA_SET_TYPE: wire.NO_DATA_SET,
            }
        )
        self._wire.send(wire.p_data(context_id, [command], self._limit, is_command=True))
        return self._answer(self._wire)

    def release(self) -> None:
        """A-RELEASE (PS3.8 7.2), unless the association is over already."""
        if self._wire is None:
            return
        try:
            self._wire.send(iter([_RELEASE_RQ]))
            while self._wire.read_pdu()[0] not in (wire.RELEASE_RP, wire.ABORT):
                continue
        except ConnectionEnded:
            pass  # it is over either way
        finally:
            self._drop()

    def _negotiate(self, connection: Wire) -> None:
        asked, proposed = negotiation.request(self._calling, self._peer.ae_title, self._kinds)
        connection.send(iter([asked]))
        kind, pdu = connection.read_pdu()
        if kind == wire.ASSOCIATE_RJ:
            raise NotStored(negotiation.rejection(pdu))
        if kind != wire.ASSOCIATE_AC:
            raise NotStored("association aborted while it was negotiated")
        self._contexts, takes = negotiation.accepted(pdu, proposed)
        self._limit = min((limit for limit in (takes, self._limit) if limit), default=0)

    def _send(self, connection: Wire, context_id: int, outgoing: Outgoing) -> None:
        self._message_id = self._message_id % _MESSAGES + 1
        # PS3.7 Table 9.3-1.
        command = wire.command_set(
            {
                wire.AFFECTED_SOP_CLASS_UID: outgoing.sop_class_uid,
                wire.COMMAND_FIELD: wire.C_STORE_RQ,
                wire.MESSAGE_ID: self._message_id,
                wire.PRIORITY: 0,
                wire.DATA_SET_TYPE: 0,
                wire.AFFECTED_SOP_INSTANCE_UID: outgoing.sop_instance_uid,
            }
        )
        connection.send(wire.message(context_id, command, outgoing.pieces, self._limit))

    def _answer(self, connection: Wire) -> int:
        encoded = b""
        while True:
            kind, pdu = connection.read_pdu()
            if kind != wire.P_DATA_TF:
                raise NotStored(
                    "association aborted by the peer"
                    if kind == wire.ABORT
                    else f"PDU type {kind} instead of an answer"
                )
            for _, _, is_last, content in wire.pdvs(pdu):
                encoded += bytes(content)
                if is_last:
                    return self._status(wire.read_command_set(encoded))

    def _status(self, command: dict[int, bytes]) -> int:
        if wire.number_in(command, wire.RESPONDED_TO) != self._message_id:
            raise NotStored("the answer belongs to another message")
        return wire.number_in(command, wire.STATUS)

    def _drop(self) -> None:
        if self._wire is not None:
            self._wire.close()
        self._wire = None
