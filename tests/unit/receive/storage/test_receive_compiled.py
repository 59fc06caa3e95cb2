"""The compiled steady state of receiving.

All bytes arrive, nothing else is read; without it Python receives.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from hilum.dicom import pdu
from hilum.receive.indexing.digests import Digests
from hilum.receive.storage.compiled import loaded
from hilum.receive.upper_layer.provider import BorrowedBuffer
from hilum.store.archive.borrowed_file import BorrowedFile, WritePolicy
from preprocessing.compile_c import TRANSFER
from tests.support.machine.compiling import (
    COMPILERS,
    quick_library,
    require_no_access_outside,
    verdict_on,
)
from tests.support.peers.peers import missing
from tests.support.server.transfers import drawn, run

HEADER = Path("/usr/include/xxhash.h")
SIZE = 1000
BEGINNING = pdu.beginning(SIZE + 2, 1, 0)
PDU = BEGINNING + bytes(range(250)) * 4

LIBRARY = loaded()[0]
has_library = pytest.mark.skipif(
    LIBRARY is None, reason=f"large objects are received {loaded()[1]}"
)
needs_compiler = pytest.mark.skipif(
    not (any(map(shutil.which, COMPILERS)) and HEADER.exists()),
    reason="no C compiler, or no xxhash.h",
)


def test_a_machine_with_a_compiler_has_the_library() -> None:
    if not any(map(shutil.which, COMPILERS)) or not HEADER.exists():
        missing(
            "no C compiler or no xxhash.h: objects are received in Python (Debian packages gcc,"
            " libc6-dev and libxxhash-dev)"
        )
    assert LIBRARY is not None, loaded()[1]


@has_library
@pytest.mark.parametrize("seed", range(8))
def test_what_comes_arrives_and_what_is_not_ours_is_left(seed):
    for number in range(150):
        run(LIBRARY, drawn(Random(1000 * seed + number)))


class Pair:
    """A connection with so many bytes to read, and a file; `transfer` takes what it may."""

    def __init__(self, file: int, coming: bytes) -> None:
        self.ours, self.peer = socket.socketpair()
        self.peer.sendall(coming)
        self.borrowed = BorrowedFile(file, 0, b"", 0, WritePolicy(0, 512))
        self.unread = BorrowedBuffer(
            self.ours.fileno(), bytearray(66 << 10), 0, 0, 0, False, BEGINNING
        )
        self.digests = LIBRARY.digests(None, None)

    def transfer(self, limit: int = 1 << 30) -> BorrowedBuffer:
        LIBRARY.transfer(self.unread, SIZE, limit, self.borrowed, self.digests)
        return self.unread

    def rest(self) -> bytes:
        return bytes(self.unread.buffer[self.unread.start : self.unread.end])


@pytest.fixture
def file(tmp_path):
    with (tmp_path / "file").open("w+b") as opened:
        yield opened.fileno()


@has_library
def test_nobody_waits_for_more_than_an_abort(file):
    """It is shorter than the beginning of a PDU of data, and the peer need not close behind it."""
    pair = Pair(file, 3 * PDU + pdu.user_abort())
    assert pair.transfer().problem is None
    assert pair.rest() == pdu.user_abort()
    assert pair.digests.size_bytes == 3 * SIZE


@has_library
def test_a_peer_that_falls_silent_is_the_sockets_time_out(file):
    pair = Pair(file, 2 * PDU + PDU[:500])
    pair.ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50_000))
    assert isinstance(pair.transfer().problem, BlockingIOError)


@has_library
def test_a_connection_that_ends_in_a_pdu_is_lost(file):
    pair = Pair(file, PDU + PDU[:500])
    pair.peer.close()
    assert isinstance(pair.transfer().problem, ConnectionResetError)


@has_library
def test_a_full_disk_is_said_and_the_pdu_was_read():
    """/dev/full refuses every write. The association goes on: it is the object that failed."""
    descriptor = os.open("/dev/full", os.O_WRONLY)
    try:
        pair = Pair(descriptor, 100 * PDU + pdu.RELEASE)
        with pytest.raises(OSError, match="No space") as raised:
            pair.transfer()
    finally:
        os.close(descriptor)
    assert raised.value.errno == errno.ENOSPC
    assert pair.borrowed.size_bytes == 0
    waiting = pair.rest()
    assert len(waiting) % len(PDU) == len(pdu.RELEASE)
    assert waiting.startswith(PDU)
    assert waiting.endswith(pdu.RELEASE)


@has_library
def test_a_write_that_takes_a_part_is_gone_on_with(file):
    """As a nearly full disk does it.

    Here by a limit of the process, which SIGXFSZ, ignored by Python, tells of.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    pair = Pair(file, 50 * PDU + pdu.RELEASE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_300, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            pair.transfer()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert pair.borrowed.size_bytes == 10_300
    assert os.pread(file, 20_000, 0) == (50 * PDU[len(BEGINNING) :])[:10_300]


@has_library
@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_digests_are_those_of_xxhash_whatever_the_memory_is(seed):
    """Of what can be written to and of what cannot, in pieces and empty."""
    content = Random(1).randbytes(3_000_000)
    expected, found = Digests(777, 2_500_000, seed), LIBRARY.digests(777, 2_500_000, seed)
    expected.update(content)
    for piece in (
        content[:10],
        memoryview(content)[10:70_000],
        b"",
        memoryview(bytearray(content))[70_000:90_000],
        content[90_000:],
    ):
        found.update(piece)
    assert found.size_bytes == len(content)
    assert found.hexdigests() == expected.hexdigests()


@has_library
def test_a_beginning_of_another_size_never_reaches_c(file):
    pair = Pair(file, PDU)
    pair.unread.beginning = BEGINNING[:-1]
    with pytest.raises(ValueError, match="11 bytes are not the beginning"):
        pair.transfer()


@has_library
def test_a_fragment_that_is_more_than_may_come_never_reaches_c(file):
    pair = Pair(file, PDU)
    pair.unread.first = 11
    with pytest.raises(ValueError, match="a fragment of 11 bytes, where 10 may come"):
        pair.transfer(limit=10)


@has_library
def test_a_fragment_that_breaks_off_was_not_taken(file):
    """What is left of it is the connection's to wait for, and that is lost."""
    pair = Pair(file, bytes(70))
    pair.unread.first = 100
    pair.peer.close()
    unread = pair.transfer()
    assert isinstance(unread.problem, ConnectionResetError)
    assert unread.first == 100


@has_library
def test_the_last_fragment_is_taken_and_nothing_behind_it(file):
    last = pdu.beginning(602, 1, pdu.IS_LAST) + bytes(600)
    pair = Pair(file, 2 * PDU + last + PDU)
    assert pair.transfer().is_last
    assert pair.rest() == PDU
    assert (pair.digests.size_bytes, pair.borrowed.size_bytes, pair.borrowed.end) == (
        2600,
        2600,
        b"",
    )


@has_library
def test_a_connection_that_ends_in_the_last_fragment_is_lost(file):
    pair = Pair(file, PDU + pdu.beginning(602, 1, pdu.IS_LAST) + bytes(300))
    pair.peer.close()
    assert isinstance(pair.transfer().problem, ConnectionResetError)
    assert not pair.unread.is_last


SMALL = """
import socket
made = socket.socketpair
def pair():
    ours, peer = made()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 << 10)
    return ours, peer
socket.socketpair = pair
from hilum.receive.storage import compiled
print(compiled.loaded()[1])
"""
NOWHERE = """
import pathlib
from hilum.receive.storage import compiled, transfer_library
transfer_library.PATH = pathlib.Path("/nowhere/transfer.so")
from hilum.settings import Settings
from hilum.supervisor.checks.doctor import examine
compiled.warn_without()
print([check.detail for check in examine(Settings()) if check.name == "receive"])
"""


@needs_compiler
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("enum { INTERFACE = 6 };", "enum { INTERFACE = 5 };", "another version of Hilum"),
        ("void hilum_transfer(", "void other(", "cannot be loaded"),
        ('__builtin_cpu_supports("avx2")', "0", "cannot be loaded (this processor has no AVX2)"),
        ("transfer->start += BEGINNING;", "", "loses bytes"),
        ("transfer->half = 1 - transfer->half, ", "", "loses bytes"),
        ("end -= bytes, count", "count", "loses bytes"),
        (
            "transfer->is_last = take_fragment(",
            "transfer->is_last = !take_fragment(",
            "does not see the end",
        ),
        (
            "reset_withSeed(&digests->whole, seed)",
            "reset(&digests->whole)",
            "computes wrong digests",
        ),
        (
            "reset_withSeed(&digests->pixels, seed)",
            "reset(&digests->pixels)",
            "computes wrong digests",
        ),
        ("- digests->position < end)", "- digests->position > end)", "computes wrong digests"),
        (
            "digests->position += count;",
            "digests->position += count + 1;",
            "computes wrong digests",
        ),
    ],
)
def test_a_library_that_is_not_ours_or_wrong_is_not_used(before, after, said, tmp_path):
    text = TRANSFER.read_text()
    assert before in text
    is_used, how = verdict_on(quick_library(tmp_path / "transfer.so", text.replace(before, after)))
    assert not is_used
    assert how.startswith("in Python: transfer.so ")
    assert said in how


@needs_compiler
@pytest.mark.parametrize("processor", ["", "#define PLAIN\n"], ids=["usual", "without AVX2"])
def test_one_without_mistakes_is_used_on_every_processor(processor, tmp_path):
    """So a library of the test above is refused for its mistake."""
    library = quick_library(tmp_path / "transfer.so", processor + TRANSFER.read_text())
    assert verdict_on(library) == (True, "by compiled code (transfer.so)")


@has_library
def test_a_host_whose_sockets_hold_little_has_it_too():
    """net.core.wmem_default of 64 KB.

    A self-test that sends before it reads would never end, and no listener begin.
    """
    said = subprocess.run(
        [sys.executable, "-c", SMALL], capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout == "by compiled code (transfer.so)\n"


def test_people_are_told_that_it_is_missing(tmp_path):
    """In the listener's log and by `hilum check`: nothing else would show it."""
    said = subprocess.run(
        [sys.executable, "-c", NOWHERE], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "receive_not_compiled" in said.stdout + said.stderr
    assert "['large objects in Python: transfer.so cannot be loaded" in said.stdout


@needs_compiler
def test_it_stays_within_its_memory(tmp_path):
    """The bytes come from a stranger, and this is C."""
    watched = ("-m", "tests.support.server.transfers", "300")
    require_no_access_outside(TRANSFER, tmp_path / "transfer.so", *watched)
