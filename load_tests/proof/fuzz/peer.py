"""A peer that plays a script on a connection of its own, and holds each answer against what it has sent."""

from __future__ import annotations

import hashlib
import select
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from load_tests.proof.fuzz.reader import Message, messages
from load_tests.proof.fuzz.scripts import ABORT, RELEASE, Script, asked
from testing.network import wire

_PATIENCE_SECONDS = 30.0
_WAIT_FOR_REST_SECONDS = 0.5
_RESET = struct.pack("ii", 1, 0)
_ACCEPTED_CONTEXT = 0x21  # PS3.8 Table 9-18


class SilentError(Exception):
    """The listener neither answered nor closed the connection."""


@dataclass(slots=True)
class Played:
    """What came of a script. Digests are sha256 of data sets.

    `acknowledged`: to the Affected SOP Instance UID. `possible`: of all complete C-STORE requests, answered or not.
    """

    statuses: list[int] = field(default_factory=list)
    acknowledged: dict[str, str] = field(default_factory=dict)
    possible: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    is_accepted: bool = False


def play(port: int, script: Script) -> Played:
    """One association from its request to its end. Raises SilentError."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS) as connection:
            return _Peer(connection, script).play()
    except TimeoutError as error:
        raise SilentError(f"no answer within {_PATIENCE_SECONDS:g} s") from error


class _Peer:
    def __init__(self, connection: socket.socket, script: Script) -> None:
        self._connection = connection
        self._script = script
        self._received = bytearray()
        self._is_broken = False
        self._answers: list[Mapping[int, bytes]] = []
        self._partial = b""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def play(self) -> Played:
        self._send(self._script.request)
        if self._script.request != asked():
            self._end_unless_answered()
        kind, pdu = self._next_pdu()
        played = Played(is_accepted=kind == wire.ASSOCIATE_AC)
        if played.is_accepted:
            self._converse()
            self._judge(played, list(messages(self._script.stream, accepted_contexts(pdu))))
        return played

    def _end_unless_answered(self) -> None:
        """The listener may wait for the rest of a request that is too short.

        So do we, but not for long.
        """
        readable, _, _ = select.select([self._connection], [], [], _WAIT_FOR_REST_SECONDS)
        if not readable:
            self._finish()

    def _converse(self) -> None:
        for turn in self._script.turns:
            self._send(turn)
            if self._script.is_valid and turn not in (RELEASE, ABORT, b""):
                self._await_answer()
        self._finish()
        while not self._script.is_reset and self._take(*self._next_pdu()):
            pass

    def _await_answer(self) -> None:
        count = len(self._answers)
        while len(self._answers) == count and self._take(*self._next_pdu()):
            pass

    def _send(self, content: bytes) -> None:
        try:
            for begin in range(0, len(content), self._script.sends_bytes):
                self._connection.sendall(content[begin : begin + self._script.sends_bytes])
        except (BrokenPipeError, ConnectionResetError):
            self._is_broken = True

    def _finish(self) -> None:
        """FIN, or RST: the listener need not wait for what will not come."""
        try:
            if self._script.is_reset:
                self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                self._connection.close()
            else:
                self._connection.shutdown(socket.SHUT_WR)
        except OSError:
            self._is_broken = True

    def _take(self, kind: int, pdu: bytes) -> bool:
        """Note an answer; whether more may come."""
        if kind != wire.P_DATA_TF:
            return False
        for _, _, is_last, content in wire.pdvs(pdu):
            self._partial += bytes(content)
            if is_last:
                self._answers.append(wire.read_command_set(self._partial))
                self._partial = b""
        return True

    def _next_pdu(self) -> tuple[int, bytes]:
        """Type and bytes; (0, b"") at the end of the connection."""
        if not self._fill(6) or not self._fill(
            size := 6 + int.from_bytes(self._received[2:6], "big")
        ):
            return 0, b""
        pdu = bytes(self._received[:size])
        del self._received[:size]
        return pdu[0], pdu

    def _fill(self, size: int) -> bool:
        while len(self._received) < size:
            if self._connection.fileno() < 0:  # we have reset it
                return False
            try:
                more = self._connection.recv(65_536)
            except ConnectionResetError:
                self._is_broken = True
                more = b""
            if not more:
                return False
            self._received += more
        return True

    def _judge(self, played: Played, sent: list[Message]) -> None:
        """Each answer is the one to its request.

        None is missing, unless the connection broke and may have taken some along.
        """
        played.possible = {digest_of(message) for message in sent if message.is_store}
        played.statuses = [wire.number_in(answer, wire.STATUS) for answer in self._answers]
        may_lack = self._is_broken or self._script.is_reset
        if len(self._answers) > len(sent) or (len(self._answers) < len(sent) and not may_lack):
            played.problems.append(f"{len(self._answers)} answers to {len(sent)} requests")
        for answer, message in zip(self._answers, sent, strict=False):
            self._judge_answer(played, answer, message)

    def _judge_answer(self, played: Played, answer: Mapping[int, bytes], message: Message) -> None:
        if wire.number_in(answer, wire.RESPONDED_TO) != message.message_id:
            played.problems.append("the answer to another message")
        status = wire.number_in(answer, wire.STATUS)
        if status == 0 and message.is_store:
            played.acknowledged[digest_of(message)] = wire.text_in(
                message.command, wire.AFFECTED_SOP_INSTANCE_UID
            )
        elif status != 0 and self._script.is_valid:
            played.problems.append(f"a valid request answered {status:#06x}")


def digest_of(message: Message) -> str:
    """Of the data set as it was sent."""
    return hashlib.sha256(message.data_set).hexdigest()


def accepted_contexts(acceptance: bytes) -> set[int]:
    """Presentation Context IDs with result 0 in an A-ASSOCIATE-AC (PS3.8 9.3.3)."""
    found = set()
    at = 74
    while at + 4 <= len(acceptance):
        kind, length = struct.unpack_from(">BxH", acceptance, at)
        if kind == _ACCEPTED_CONTEXT and acceptance[at + 6] == 0:
            found.add(acceptance[at + 4])
        at += 4 + length
    return found
