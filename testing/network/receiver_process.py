"""The destination as a process: `python -m testing.network.receiver_process HOST PORT`.

A C-STORE SCP of its own, because it must cost little.

It writes a line for each report to standard output, before it answers: study, SOP Instance, digest,
moment (`time.monotonic`).
It obeys lines of standard input: `behave NAME` and `cpu`, and ends with it, so that it never
outlives who started it.
"""

from __future__ import annotations

import hashlib
import socket
import struct
import sys
import threading
import time
from dataclasses import dataclass, field
from io import BytesIO

import pydicom
from pydicom.tag import Tag
from pydicom.uid import Comprehensive3DSRStorage, ExplicitVRLittleEndian, ImplicitVRLittleEndian

from testing.network import negotiation, wire
from testing.network.wire import ConnectionEnded, Wire

BEHAVIOURS = ("well", "down", "silent", "full")
_VERIFICATION = "1.2.840.10008.1.1"
_SOP_CLASSES = (str(Comprehensive3DSRStorage), _VERIFICATION)
_SYNTAXES = (str(ExplicitVRLittleEndian), str(ImplicitVRLittleEndian))
# PS3.4 Table B.2-1
_SUCCESS = 0x0000
_OUT_OF_RESOURCES = 0xA700
_CANNOT_UNDERSTAND = 0xC000
_STUDY_INSTANCE_UID = Tag("StudyInstanceUID")
_IDLE_SECONDS = 3600.0


@dataclass
class Behaviour:
    """What the destination does now; changed by the thread that reads the orders."""

    name: str = "well"
    open: set[Wire] = field(default_factory=set)


class Listener:
    """Accepts connections on a port that can be closed and opened again."""

    def __init__(self, host: str, port: int) -> None:
        self.behaviour = Behaviour()
        self._address = (host, port)
        self._socket = self._listen()

    def behave(self, name: str) -> None:
        """Take on a behaviour: `down` closes the port and all connections, every other one has it open."""
        was = self.behaviour.name
        self.behaviour.name = name
        if name == "down" and was != "down":
            self._close()
        elif was == "down" and name != "down":
            self._socket = self._listen()

    def _listen(self) -> socket.socket:
        listening = socket.create_server(self._address, backlog=64)
        threading.Thread(target=self._accept, args=(listening,), daemon=True).start()
        return listening

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connected, _ = listening.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(connected,), daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        link = Wire(connected, _IDLE_SECONDS)
        self.behaviour.open.add(link)
        try:
            Association(link, self.behaviour).run()
        except ConnectionEnded:
            pass  # senders may leave as they like
        finally:
            self.behaviour.open.discard(link)
            link.close()

    def _close(self) -> None:
        # A thread that waits in accept() would keep the port; shutdown wakes it.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for link in list(self.behaviour.open):
            link.shut()


class Association:
    """One association, from its request to its end. Raises ConnectionEnded."""

    def __init__(self, link: Wire, behaviour: Behaviour) -> None:
        self._link = link
        self._behaviour = behaviour
        self._syntaxes: dict[int, str] = {}
        self._limit = 0
        self._command = bytearray()
        self._data_set = bytearray()

    def run(self) -> None:
        """Negotiate, then answer until the peer releases or aborts."""
        kind, pdu = self._link.read_pdu()
        if kind != wire.ASSOCIATE_RQ:
            return
        reply, self._syntaxes, self._limit = negotiation.answer(pdu, _SOP_CLASSES, _SYNTAXES)
        self._link.send(iter([reply]))
        while True:
            kind, pdu = self._link.read_pdu()
            if kind == wire.RELEASE_RQ:
                self._link.send(iter([struct.pack(">BxII", wire.RELEASE_RP, 4, 0)]))
            if kind != wire.P_DATA_TF:
                return
            self._take(pdu)

    def _take(self, pdu: bytes) -> None:
        for context_id, is_command, is_last, content in wire.pdvs(pdu):
            part = self._command if is_command else self._data_set
            part += content
            if is_last:
                self._message(context_id, is_data_set=not is_command)

    def _message(self, context_id: int, *, is_data_set: bool) -> None:
        command = wire.read_command_set(bytes(self._command))
        if not is_data_set and wire.number_in(command, wire.DATA_SET_TYPE) != wire.NO_DATA_SET:
            return
        moment = time.monotonic()
        content = bytes(self._data_set)
        self._command = bytearray()
        self._data_set = bytearray()
        status = self._judge(command, content, context_id, moment) if is_data_set else _SUCCESS
        if self._behaviour.name != "silent":
            self._answer(context_id, command, status)

    def _judge(
        self, command: dict[int, bytes], content: bytes, context_id: int, moment: float
    ) -> int:
        """Note the report; its status. One that is answered 0xA700 was not kept."""
        if self._behaviour.name == "full":
            return _OUT_OF_RESOURCES
        study = study_of(content, self._syntaxes[context_id])
        if not study:
            return _CANNOT_UNDERSTAND
        instance = wire.text_in(command, wire.AFFECTED_SOP_INSTANCE_UID)
        say(f"report {study} {instance} {hashlib.sha256(content).hexdigest()} {moment!r}")
        return _SUCCESS

    def _answer(self, context_id: int, command: dict[int, bytes], status: int) -> None:
        elements: dict[int, int | str] = {
            wire.AFFECTED_SOP_CLASS_UID: wire.text_in(command, wire.AFFECTED_SOP_CLASS_UID),
            wire.COMMAND_FIELD: wire.number_in(command, wire.COMMAND_FIELD) | 0x8000,
            wire.RESPONDED_TO: wire.number_in(command, wire.MESSAGE_ID),
            wire.DATA_SET_TYPE: wire.NO_DATA_SET,
            wire.STATUS: status,
        }
        if instance := wire.text_in(command, wire.AFFECTED_SOP_INSTANCE_UID):
            elements[wire.AFFECTED_SOP_INSTANCE_UID] = instance
        self._link.send(wire.message(context_id, wire.command_set(elements), (), self._limit))


def study_of(content: bytes, syntax: str) -> str:
    """Study Instance UID of an encoded data set; empty where it has none.

    Nothing behind it is read.
    """
    is_implicit = syntax == ImplicitVRLittleEndian
    header = pydicom.filereader.read_dataset(
        BytesIO(content),
        is_implicit,
        is_little_endian=True,
        stop_when=lambda tag, _vr, _length: tag > _STUDY_INSTANCE_UID,
    )
    return str(header.get("StudyInstanceUID", ""))


_OUTPUT = threading.Lock()


def say(line: str) -> None:
    """To who started this process."""
    with _OUTPUT:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def main() -> None:
    """Serve until standard input ends."""
    listener = Listener(sys.argv[1], int(sys.argv[2]))
    say("ready")
    for line in sys.stdin:
        order, _, value = line.strip().partition(" ")
        if order == "behave":
            listener.behave(value)
            say(f"behaves {value}")
        else:
            say(f"cpu {time.process_time()!r}")


if __name__ == "__main__":
    main()
