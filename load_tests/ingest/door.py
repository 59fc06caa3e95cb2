"""What `make bench-ingest` says of the door itself.

Association set-up, C-ECHO, idle associations, and memory under large objects.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pydicom.uid import (
    DigitalXRayImageStorageForPresentation,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
)

from load_tests.ingest.receivers import Receiver, start_hilum
from load_tests.load.measure import Goal
from testing.network.peer_address import Peer
from testing.network.storage_scu import VERIFICATION, StorageScu
from testing.phantoms.encoded import Outgoing

_DX = str(DigitalXRayImageStorageForPresentation)
_KINDS = ((_DX, str(ExplicitVRLittleEndian)), (VERIFICATION, str(ImplicitVRLittleEndian)))
_LARGE_BYTES = 100_000_000
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Door:
    """Medians of one association at a time.

    Memory is the largest resident size of the whole process.
    """

    set_up_ms: float
    echo_ms: float
    idle_percent_of_a_core: float
    peak_mib_of_16_large: float

    def goals(self) -> list[Goal]:
        """Of the front door."""
        return [
            Goal("association set-up, median", self.set_up_ms, "ms", 4.0),
            Goal("C-ECHO, median", self.echo_ms, "ms", 0.2),
            Goal("16 idle associations", self.idle_percent_of_a_core, "% of a core", 0.5),
            Goal(
                "memory of the listener, 16 objects of 100 MB at once",
                self.peak_mib_of_16_large,
                "MiB",
                150.0,
            ),
        ]


def measured(folder: Path, *, quick: bool) -> Door:
    """At a listener of its own. `quick`: a tenth of everything."""
    own = folder / "door"
    own.mkdir()
    receiver = start_hilum(own)
    share = 10 if quick else 1
    try:
        set_up = _set_up_ms(receiver, 200 // share)
        echo = _echo_ms(receiver, 2_000 // share)
        idle = _idle_percent(receiver, 20.0 / share)
        return Door(set_up, echo, idle, _peak_mib(receiver, _LARGE_BYTES // share))
    finally:
        receiver.close()


def _associate(receiver: Receiver) -> StorageScu:
    return StorageScu(Peer("HILUM", "127.0.0.1", receiver.port), "BENCH", _KINDS)


def _set_up_ms(receiver: Receiver, count: int) -> float:
    """From connect to the A-ASSOCIATE-AC."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        with _associate(receiver):
            taken.append(time.perf_counter() - began)
    return 1000 * statistics.median(taken)


def _echo_ms(receiver: Receiver, count: int) -> float:
    with _associate(receiver) as scu:
        return 1000 * statistics.median(_seconds(scu) for _ in range(count))


def _seconds(scu: StorageScu) -> float:
    began = time.perf_counter()
    scu.echo()
    return time.perf_counter() - began


def _idle_percent(receiver: Receiver, seconds: float) -> float:
    with _idle_associations(receiver):
        time.sleep(1.0)
        before = receiver.cpu_seconds()
        time.sleep(seconds)
        return 100 * (receiver.cpu_seconds() - before) / seconds


@contextlib.contextmanager
def _idle_associations(receiver: Receiver) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for _ in range(_AT_ONCE):
            stack.enter_context(_associate(receiver))
        yield


def _peak_mib(receiver: Receiver, size: int) -> float:
    pixels = bytes(size)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        statuses = list(pool.map(lambda number: _store(receiver, number, pixels), range(_AT_ONCE)))
    assert set(statuses) == {0}, statuses
    return receiver.peak_mib()


def _store(receiver: Receiver, number: int, pixels: bytes) -> int:
    with _associate(receiver) as scu:
        return scu.store(_large(number, pixels))


def _large(number: int, pixels: bytes) -> Outgoing:
    """As little header as a listener takes."""
    uid = f"1.2.826.0.1.3680043.10.1.{number}"
    header = b"".join(
        _uid(group, element, value)
        for group, element, value in (
            (8, 0x16, _DX),
            (8, 0x18, uid),
            (0x20, 0xD, f"{uid}.1"),
            (0x20, 0xE, f"{uid}.1.1"),
        )
    )
    head = b"\xe0\x7f\x10\x00OW\0\0" + len(pixels).to_bytes(4, "little")
    return Outgoing(_DX, str(ExplicitVRLittleEndian), uid, (header, head, pixels))


def _uid(group: int, element: int, value: str) -> bytes:
    content = value.encode() + b"\0" * (len(value) % 2)
    return (
        group.to_bytes(2, "little")
        + element.to_bytes(2, "little")
        + b"UI"
        + len(content).to_bytes(2, "little")
        + content
    )
