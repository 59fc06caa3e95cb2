"""The streaming loop on a connection.

Whatever the cuts, the bytes arrive; however it ends, it says how.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hilum.dicom.command_set import C_STORE_RQ
from hilum.receive.upper_layer.command import Command
from hilum.receive.upper_layer.connection import PduReader, say_last
from hilum.receive.upper_layer.loop import End, Loop
from hilum.receive.upper_layer.provider import (
    AcceptedContext,
    BorrowedBuffer,
    Fragment,
    StoreStatus,
)
from tests.support.machine.waiting import wait_for
from tests.support.peers.raw_scu import DX
from tests.support.peers.wire import ABORT, ECHO_RQ, RELEASE, command, message, pdu, pdv, store

CONTEXTS = {1: AcceptedContext(DX, "1.2.840.10008.1.2.1")}


LAST = pdu(4, pdv(b"last"))


class Kept:
    """A provider that keeps what comes, and what became of it."""

    reads_after: int | None = None

    def __init__(self) -> None:
        self.data_sets: list[bytearray] = []
        self.ends: list[str] = []

    def begin(self, _command: Command, _context: AcceptedContext) -> Kept:
        self.data_sets.append(bytearray())
        return self

    def write(self, pieces: Sequence[memoryview]) -> None:
        for piece in pieces:
            self.data_sets[-1] += piece

    def receive(self, unread: BorrowedBuffer, size: int) -> None:
        raise NotImplementedError

    def finish(self) -> StoreStatus:
        self.ends.append("finished")
        return StoreStatus(0)

    def close(self) -> None:
        self.ends.append("closed")


class Broken(Kept):
    def write(self, pieces: Sequence[memoryview]) -> None:
        raise ZeroDivisionError


class Reading(Kept):
    """Behind so many bytes it takes by itself what lies in the buffer.

    Then the connection has this problem.
    """

    def __init__(self, problem: OSError | None = None, after: int = 0) -> None:
        super().__init__()
        self.asked, self._problem, self._after = 0, problem, after

    @property
    def reads_after(self) -> int:  # type: ignore[override]
        return max(0, self._after - len(self.data_sets[-1]))

    def receive(self, unread: BorrowedBuffer, size: int) -> None:
        self.asked += 1
        here = min(unread.first, unread.end - unread.start)
        self.data_sets[-1] += unread.buffer[unread.start : unread.start + here]
        unread.start, unread.first = unread.start + here, unread.first - here
        step = len(unread.beginning) + size
        while (
            unread.beginning
            and unread.buffer.startswith(unread.beginning, unread.start)
            and unread.start + step <= unread.end
        ):
            following = unread.start + step
            self.data_sets[-1] += unread.buffer[following - size : following]
            unread.start = following
        unread.problem = self._problem


class ReadingToTheEnd(Reading):
    """And the last fragment, if that lies there as a whole."""

    def receive(self, unread: BorrowedBuffer, size: int) -> None:
        super().receive(unread, size)
        if unread.buffer[unread.start : unread.end].startswith(LAST):
            self.data_sets[-1] += b"last"
            unread.start += len(LAST)
            unread.is_last = True


class Running:
    """A loop in a thread; `peer` is the other end of its socket."""

    def __init__(self, provider: Kept) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.peer = socket.create_connection(listening.getsockname(), timeout=30)
            self._sock, _ = listening.accept()
        self.closing = threading.Event()
        self.loop = Loop(self._sock, CONTEXTS, {C_STORE_RQ: provider}, self.closing)
        self.end: End | Exception | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.end = self.loop.run()
        except ZeroDivisionError as error:
            self.end = error
        self._is_over.set()
        self.loop.close()
        say_last(self._sock, self.loop.last, memoryview(bytearray(4096)))
        self._sock.close()

    def time_out_after(self, seconds: float) -> None:
        self._sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, int(seconds * 1e6))
        )

    def finished(self) -> End | Exception | None:
        """How it ended; it may still wait for the peer to close."""
        assert self._is_over.wait(30)
        return self.end


@contextmanager
def running(
    provider: Kept, prepare: Callable[[Running], None] = lambda _: None
) -> Iterator[Running]:
    made = Running(provider)
    prepare(made)
    made._thread.start()
    yield made
    made.peer.close()
    made._thread.join(30)
    assert not made._thread.is_alive()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    sizes=st.lists(st.integers(0, 900_000), min_size=1, max_size=3),
    largest=st.sampled_from((9, 500, 70_000, 600_000)),
)
def test_any_cut_brings_the_same_bytes(seed: int, sizes: list[int], largest: int) -> None:
    random, kept = Random(seed), Kept()
    data_sets = [random.randbytes(size // 50 if largest < 100 else size) for size in sizes]
    with running(kept) as made:
        for data_set in data_sets:
            made.peer.sendall(message(store("1.2.3")) + cut(data_set, random, largest))
            made.peer.recv(1 << 16)
        made.peer.sendall(RELEASE)
        assert made.finished() is End.RELEASED
    assert [bytes(data_set) for data_set in kept.data_sets] == data_sets
    assert kept.ends == ["finished", "closed"] * len(data_sets)


def cut(data_set: bytes, random: Random, largest: int) -> bytes:
    """PDUs of one to three PDVs of any sizes."""
    items, position = [], 0
    while position < len(data_set) or not items:
        size = random.randint(1, largest)
        items.append(
            pdv(data_set[position : position + size], is_last=position + size >= len(data_set))
        )
        position += size
    parts = []
    while items:
        count = random.randint(1, 3)
        parts.append(pdu(4, b"".join(items[:count])))
        items = items[count:]
    return b"".join(parts)


EQUAL_BYTES = (0, 1, 300, 16_372, 131_060, 530_000)


@pytest.mark.parametrize("size", EQUAL_BYTES)
def test_equal_pdus_bring_the_same_bytes_though_they_contain_what_begins_one(size: int) -> None:
    kept, beginning = Kept(), equal_pdu(bytes(size))[:12]
    contents = [((bytes((number,)) + beginning) * (size // 13 + 1))[:size] for number in range(40)]
    with running(kept) as made:
        made.peer.sendall(
            message(store("1.2.3")) + b"".join(map(equal_pdu, contents)) + pdu(4, pdv(b"last"))
        )
        made.peer.recv(1 << 16)
        made.peer.sendall(message(command(ECHO_RQ)) + RELEASE)
        assert made.finished() is End.RELEASED
    assert kept.data_sets == [b"".join(contents) + b"last"]


def equal_pdu(content: bytes) -> bytes:
    return pdu(4, pdv(content, is_last=False))


@pytest.mark.parametrize("after", [0, 1, 301, 20_000])
@pytest.mark.parametrize("size", [size for size in EQUAL_BYTES if size < 100_000])
def test_who_takes_a_data_set_may_read_fragments_by_himself(size: int, after: int) -> None:
    """What came before he has already.

    What he leaves comes as ever; and the connection is as it was for the next message.
    """
    reading = Reading(after=after)
    contents = [bytes((number,)) * size for number in range(40)]
    with running(reading) as made:
        made.peer.sendall(
            message(store("1.2.3")) + b"".join(map(equal_pdu, contents)) + pdu(4, pdv(b"last"))
        )
        made.peer.recv(1 << 16)
        made.peer.sendall(message(command(ECHO_RQ)) + RELEASE)
        assert made.finished() is End.RELEASED
    assert reading.data_sets == [b"".join(contents) + b"last"]
    assert reading.asked > 0 or size * 40 + len(b"last") <= after
    assert reading.ends == ["finished", "closed"]


def test_who_has_read_the_last_fragment_ends_the_message() -> None:
    reading = ReadingToTheEnd()
    with running(reading) as made:
        made.peer.sendall(
            (message(store("1.2.3")) + 3 * equal_pdu(bytes(300)) + LAST) * 2
            + message(command(ECHO_RQ))
            + RELEASE
        )
        assert made.finished() is End.RELEASED
        assert made.loop.whole_messages == 3
    assert reading.data_sets == 2 * [bytes(900) + b"last"]
    assert reading.asked == 2
    assert reading.ends == 2 * ["finished", "closed"]


@pytest.mark.parametrize(
    ("problem", "end"), [(ConnectionResetError(), End.LOST), (BlockingIOError(), End.TIMED_OUT)]
)
def test_a_problem_that_he_meets_there_is_the_connections(problem: OSError, end: End) -> None:
    reading = Reading(problem)
    with running(reading) as made:
        made.peer.sendall(message(store("1.2.3")) + 3 * equal_pdu(bytes(300)))
        assert made.finished() is end
    assert reading.ends == ["closed"]


def test_an_abort_between_equal_pdus_is_one() -> None:
    kept = Kept()
    with running(kept) as made:
        made.peer.sendall(
            message(store("1.2.3")) + 5 * equal_pdu(bytes(300)) + ABORT + equal_pdu(bytes(300))
        )
        assert made.finished() is End.ABORTED_BY_PEER
    assert kept.ends == ["closed"]


def test_of_equal_pdus_those_are_taken_at_once_that_are_here_as_a_whole() -> None:
    connection = PduReader(Scripted(b"!ab1ab2ac3ab4ab"))
    connection.take(1)
    fragment = Fragment(1, is_command=False, is_last=False, size=1, beginning=b"ab")
    assert [bytes(piece) for piece in connection.repeated(fragment)] == [b"1", b"2"]
    assert bytes(connection.take(3)) == b"ac3"
    assert [bytes(piece) for piece in connection.repeated(fragment)] == [b"4"]
    assert connection.repeated(fragment) == []
    assert bytes(connection.take(3)) == b"ab"


def test_a_peer_is_acknowledged_at_once_when_all_that_was_there_is_read() -> None:
    peer = Scripted(bytes(1 << 20), bytes(100))
    connection = PduReader(peer)
    assert (len(connection.take(1 << 20)), peer.told) == (640 << 10, 0), "there is more"
    assert (len(connection.take(1 << 20)), peer.told) == (100, 1)


def test_behind_an_answer_the_whole_buffer_is_free() -> None:
    peer = Scripted(bytes(600 << 10), bytes(1 << 20))
    connection = PduReader(peer)
    assert len(connection.take(1 << 20)) == 600 << 10
    connection.send(b"answer")
    assert len(connection.take(1 << 20)) == 640 << 10


def test_what_came_before_the_answer_is_kept() -> None:
    connection = PduReader(Scripted(b"message 1, message 2"))
    connection.take(9)
    connection.send(b"answer")
    assert bytes(connection.take(100)) == b", message 2"


class Scripted(socket.socket):
    """What each receive finds, and how often it was told to acknowledge at once."""

    def __init__(self, *found: bytes) -> None:
        super().__init__()
        self._found, self.told = iter(found), 0

    def recv_into(self, buffer: memoryview, *_: int) -> int:  # type: ignore[override] # as the loop calls it
        found = next(self._found)[: len(buffer)]
        buffer[: len(found)] = found
        return len(found)

    def setsockopt(self, *_: object) -> None:  # type: ignore[override]
        self.told += 1

    def sendall(self, *_: object) -> None:  # type: ignore[override]
        """Nobody is there."""


HALF = message(store("1.2.3")) + pdu(4, pdv(bytes(100_000), is_last=False))


@pytest.mark.parametrize(
    ("last", "end"),
    [(ABORT, End.ABORTED_BY_PEER), (RELEASE, End.RELEASED), (pdu(9, b""), End.PROTOCOL_ERROR)],
)
def test_an_end_inside_a_data_set_closes_it(last: bytes, end: End) -> None:
    kept = Kept()
    with running(kept) as made:
        made.peer.sendall(HALF + last)
        assert made.finished() is end
    assert kept.ends == ["closed"]


def test_a_peer_that_goes_away() -> None:
    kept = Kept()
    with running(kept) as made:
        made.peer.sendall(HALF)
        made.peer.shutdown(socket.SHUT_WR)
        assert made.finished() is End.LOST
    assert kept.ends == ["closed"]


@pytest.mark.parametrize("sent", [b"", HALF], ids=["idle", "stalled"])
def test_silence_is_aborted_by_the_user(sent: bytes) -> None:
    with running(Kept(), lambda made: made.time_out_after(0.2)) as made:
        made.peer.sendall(sent)
        assert made.peer.recv(100) == ABORT
        assert made.finished() is End.TIMED_OUT


def test_the_end_of_the_process_waits_for_a_message_and_not_for_the_next() -> None:
    kept = Kept()
    with running(kept) as made:
        made.peer.sendall(HALF)
        wait_for(lambda: made.loop._messages.is_busy)
        made.closing.set()
        made.loop.wake_if_idle()
        made.peer.sendall(pdu(4, pdv(b"")))
        answer = made.peer.recv(4096)
        while len(answer) < 10 or not answer.endswith(ABORT):
            answer += made.peer.recv(4096)
        assert made.finished() is End.SHUTDOWN
    assert kept.ends == ["finished", "closed"]


def test_the_end_of_the_process_wakes_who_waits() -> None:
    with running(Kept()) as made:
        made.peer.sendall(message(command(ECHO_RQ)))
        made.peer.recv(4096)
        made.closing.set()
        made.loop.wake_if_idle()
        assert made.peer.recv(100) == ABORT
        assert made.finished() is End.SHUTDOWN


def test_a_bug_behind_it_closes_the_data_set_and_is_told() -> None:
    broken = Broken()
    with running(broken) as made:
        made.peer.sendall(HALF + pdu(4, pdv(b"")))
        assert isinstance(made.finished(), ZeroDivisionError)
    assert broken.ends == ["closed"]
