"""Random transfers of the compiled receive loop, beside what must come of them.

Also a script, for a library that sanitizers watch.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from random import Random

from hilum.dicom import pdu
from hilum.receive.indexing.digests import Digests
from hilum.receive.storage.transfer_library import TransferLibrary
from hilum.receive.upper_layer.provider import BorrowedBuffer
from hilum.store.archive.borrowed_file import BorrowedFile, WritePolicy

CONTEXT, DATA = 1, 0
OTHERS = (
    b"",  # the peer closes
    pdu.user_abort(),
    pdu.RELEASE,
    pdu.beginning(2, CONTEXT, pdu.IS_LAST),
    pdu.beginning(100, CONTEXT + 2, DATA) + bytes(98),
    pdu.beginning(100, CONTEXT + 2, pdu.IS_LAST) + bytes(98),
    pdu.beginning(100, CONTEXT, pdu.IS_LAST | pdu.IS_COMMAND) + bytes(98),
    pdu.HEADER.pack(pdu.P_DATA_TF, 110) + pdu.ITEM.pack(100, CONTEXT, pdu.IS_LAST) + bytes(104),
    pdu.HEADER.pack(pdu.P_DATA_TF, 4) + pdu.ITEM.pack(100, CONTEXT, pdu.IS_LAST),
    bytes(12),
)
LASTS = (1, 98, 2500)


@dataclass(frozen=True, slots=True)
class Case:
    """One transfer: what was there, what comes, and under which limits."""

    fragment: int
    progress: int  # bytes of the fragment in progress that come first, at most `limit`
    is_last: bool  # the data set ends with them
    count: int  # of PDUs that are alike; 0 behind the last fragment
    last: int  # bytes of the data set's last fragment, which comes behind them; 0: it does not
    end: bytes
    cuts: tuple[int, ...]  # sizes in which the peer sends, again and again
    unread: int  # bytes that lie in the buffer already
    buffer: int
    first: int  # bytes of the data set in the file
    held: int  # and behind it
    aligned: int
    limit: int
    pixels: tuple[int | None, int | None]


def drawn(random: Random) -> Case:
    """Small buffers and sizes, so that every boundary is met."""
    aligned = random.choice((1, 16, 512, 4096))
    fragment = random.choice(
        (random.randint(1, 50), random.randint(1, 3000), random.randint(60_000, 200_000))
    )
    is_last = random.random() < 0.3
    progress = random.choice((0, fragment, random.randint(0, fragment)))
    count = 0 if is_last else random.randint(0, 40 if fragment < 10_000 else 5)
    first = random.choice((0, random.randint(1, 10_000)))
    most_held = (
        (aligned - first % aligned) % aligned if random.random() < 0.5 else 0
    )  # a first write may end anywhere
    held = (
        random.randint(0, most_held - 1)
        if most_held
        else random.randint(0, aligned - 1)
        if first % aligned == 0
        else 0
    )
    size = first + held + progress + count * fragment
    start = random.choice((None, random.randint(0, size)))
    return Case(
        fragment=fragment,
        progress=progress,
        is_last=is_last,
        count=count,
        last=0 if is_last else random.choice((0, *LASTS)),
        end=random.choice(OTHERS),
        cuts=tuple(random.randint(1, 3 * fragment + 20) for _ in range(3)),
        unread=random.randint(0, 2 * fragment + 30),
        buffer=random.choice((70_000, 200_000, 512 << 10)),
        first=first,
        held=held,
        aligned=aligned,
        limit=random.choice((1 << 40, random.randint(progress, progress + size))),
        pixels=(start, None if random.random() < 0.5 else (start or 0) + random.randint(0, size)),
    )


def run(library: TransferLibrary, case: Case) -> None:
    """Assert that everything that may be taken arrives, that nothing else does, and that the rest is still to be read."""
    random = Random(case.fragment * 31 + case.count)
    before, data = (
        random.randbytes(case.first + case.held),
        random.randbytes(case.progress + case.count * case.fragment),
    )
    last = random.randbytes(case.last)
    beginning = pdu.beginning(case.fragment + 2, CONTEXT, DATA)
    starts = range(case.progress, len(data), case.fragment)
    equal = [beginning + data[start : start + case.fragment] for start in starts]
    stream = data[: case.progress] + b"".join(equal) + _last(last) + case.end
    unread_bytes = min(case.unread, len(stream), case.buffer)
    alike = min(case.count, (case.limit - case.progress) // case.fragment)
    goes_on = (
        not case.is_last
        and alike == case.count
        and case.limit - case.progress - alike * case.fragment >= case.fragment
    )
    has_last = goes_on and 0 < case.last <= case.fragment
    took = data[: case.progress + alike * case.fragment] + (last if has_last else b"")
    ours, peer = socket.socketpair()
    sender = threading.Thread(target=_send, args=(peer, stream[unread_bytes:], case.cuts))
    with (
        # A descriptor.
        open(os.memfd_create("transfer"), "w+b", buffering=0) as file,  # noqa: PTH123
        ours,
    ):
        file.write(before[: case.first])
        buffer = bytearray(case.buffer)
        at = case.buffer - unread_bytes if case.count % 2 else 0
        buffer[at : at + unread_bytes] = stream[:unread_bytes]
        follows = b"" if case.is_last else beginning
        unread = BorrowedBuffer(
            ours.fileno(), buffer, at, at + unread_bytes, case.progress, case.is_last, follows
        )
        borrowed = BorrowedFile(
            file.fileno(),
            case.first,
            before[case.first :],
            0,
            WritePolicy(1, case.aligned),
        )
        digests = library.digests(*case.pixels)
        digests.update(before)
        sender.start()
        library.transfer(unread, case.fragment, case.limit, borrowed, digests)
        rest = bytes(buffer[unread.start : unread.end]) + _all_of(ours)
        sender.join()
        is_over = goes_on and case.last == 0 and case.end == b""
        assert isinstance(unread.problem, ConnectionResetError) is is_over, unread.problem
        assert unread.first == 0
        assert unread.is_last is (case.is_last or has_last)
        assert borrowed.size_bytes == os.fstat(file.fileno()).st_size
        assert os.pread(file.fileno(), borrowed.size_bytes, 0) + borrowed.end == before + took
        assert len(borrowed.end) < case.aligned
        if unread.is_last:
            assert borrowed.end == b"", "nothing comes behind it"
        else:
            assert not (borrowed.size_bytes % case.aligned and borrowed.size_bytes != case.first), (
                "a write ends at a multiple"
            )
        assert (
            rest
            == stream[
                case.progress
                + alike * (len(beginning) + case.fragment)
                + (len(_last(last)) if has_last else 0) :
            ]
        )
        assert digests.size_bytes == len(before) + len(took)
        expected = Digests(*case.pixels)
        expected.update(before + took)
        assert digests.hexdigests() == expected.hexdigests()


def _last(content: bytes) -> bytes:
    return pdu.beginning(len(content) + 2, CONTEXT, pdu.IS_LAST) + content if content else b""


def _send(peer: socket.socket, stream: bytes, cuts: tuple[int, ...]) -> None:
    with peer:
        position = turn = 0
        while position < len(stream):
            peer.sendall(stream[position : position + cuts[turn % len(cuts)]])
            position, turn = position + cuts[turn % len(cuts)], turn + 1


def _all_of(sock: socket.socket) -> bytes:
    found = b""
    while more := sock.recv(1 << 20):
        found += more
    return found


if __name__ == "__main__":
    watched = TransferLibrary(Path(sys.argv[2]))
    for seed in range(int(sys.argv[1])):
        run(watched, drawn(Random(seed)))
    sys.stdout.write("nothing outside\n")
