"""A data set that comes in piece by piece is understood, digested and stored as if it had come as a whole."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    DigitalXRayImageStorageForPresentation,
    ExplicitVRLittleEndian,
)

from hilum.domain import AssociationRecord
from hilum.receive.headers.header import MAXIMUM_HEADER_BYTES, read_header
from hilum.receive.indexing.describe import describe
from hilum.receive.indexing.indexer import Indexer
from hilum.receive.policy.record_writer import AssociationRecordWriter
from hilum.receive.sinks import PiecewiseSink, StoreOutcome
from hilum.receive.statuses import CannotUnderstand, OutOfResources, Refusal
from hilum.receive.storage.header_window import Beginning
from hilum.receive.storage.image_store import ImageStore
from hilum.receive.storage.incoming_object import Arriving
from hilum.receive.storage.store_command import StoreCommand
from hilum.receive.upper_layer.provider import BorrowedBuffer
from hilum.settings import Receive
from hilum.store.archive.archive import Archive, Free
from hilum.store.ledger import Ledger
from tests.support.ledger.storing import data_set, element, meta
from tests.support.server.listening import make_settings, unindexed

DX = str(DigitalXRayImageStorageForPresentation)


class House:
    """An archive whose indexer does not run, and what was put into it."""

    def __init__(self, state: Path) -> None:
        made = make_settings(state)
        self.ledger = Ledger(made.ledger_url)
        self.archive = Archive(made.archive_dir, "listener-1", write_out_bytes=1 << 20)
        self.indexer = Indexer(made, self.ledger, self.archive)
        self.intake = ImageStore(
            Receive(reserve_bytes=0, maximum_object_bytes=8 << 20), self.archive, self.indexer
        )

    def arrive(self, pieces: list[bytes], syntax: str = ExplicitVRLittleEndian) -> str:
        """The kind of refusal, or nothing."""
        try:
            with contextlib.closing(
                Arriving(StoreCommand(meta("1.2.3", syntax), DX), self.intake.begin)
            ) as arriving:
                for piece in pieces:
                    arriving.write([memoryview(bytearray(piece))])
                arriving.commit()
        except Refusal as refusal:
            return refusal.comment
        return ""

    def put(self) -> tuple[Path, object]:
        """The file that was put last, and what was said of it."""
        item = self.indexer._queue.get_nowait()
        assert item is not None
        return Path(item.file), item.instance


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("house") / "state")
    yield made
    made.ledger.close()


PRIVATE = element(0x00090010, b"UN", bytes(40_000))
ENCODED = {
    "small": data_set("1.2.3"),
    "long header": PRIVATE + data_set("1.2.3", pixels=bytes(70_000)),
    "header too long to wait in memory": PRIVATE * 9 + data_set("1.2.3", pixels=bytes(70_000)),
    "no pixels": data_set("1.2.3")[: -(12 + 256 * 64)],
    "behind the pixels": data_set("1.2.3") + element(0xFFFCFFFC, b"OB", bytes(100)),
    "no study": data_set("1.2.3", study=""),
    "another instance": data_set("1.2.4"),
    "cut": data_set("1.2.3", pixels=b"")[:-20],
    "garbage": b"\xff" * 50_000,
    "too large": data_set("1.2.3", pixels=bytes(9 << 20)),
}


def cut(encoded: bytes, cuts: list[int]) -> list[bytes]:
    """In pieces that end at these fractions of a million."""
    ends = sorted({len(encoded) * at // 1_000_000 for at in cuts} | {len(encoded)})
    return [encoded[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


@settings(max_examples=80, deadline=None)
@given(name=st.sampled_from(sorted(ENCODED)), cuts=st.lists(st.integers(0, 1_000_000), max_size=12))
def test_pieces_make_no_difference(house: House, name: str, cuts: list[int]) -> None:
    encoded = ENCODED[name]
    whole = house.arrive([encoded])
    if not whole:
        house.put()
    assert house.arrive(cut(encoded, cuts)) == whole
    if not whole:
        file, said = house.put()
        assert file.read_bytes().endswith(encoded)
        assert said == describe(file), (
            "whatever lies before Pixel Data, the row's header is short enough to wait in memory"
        )
    for file in house.archive.unindexed():
        file.unlink()
    assert not list(unindexed(house.archive))


def test_a_deflated_data_set_is_read_again_for_its_pixels(house: House) -> None:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    deflated = packer.compress(data_set("1.2.3")) + packer.flush()
    assert house.arrive([deflated], DeflatedExplicitVRLittleEndian) == ""
    file, said = house.put()
    assert said is None
    assert describe(file).sop_instance_uid == "1.2.3"
    file.unlink()


class Disk(Archive):
    """An archive that says how much is free as often as it is asked."""

    asked, left = 0, 1 << 40

    def free(self) -> Free:
        self.asked += 1
        return Free(self.left)


RESERVE, ASSOCIATIONS = 1 << 30, 4


@pytest.fixture
def disk(house: House) -> Iterator[Disk]:
    yield Disk(house.archive.root, "listener-2")
    assert not list(unindexed(house.archive))


@contextlib.contextmanager
def arriving_at(disk: Disk, house: House) -> Iterator[Arriving]:
    """An object whose header has come, in 32 KiB."""
    limits = Receive(
        reserve_bytes=RESERVE, maximum_associations=ASSOCIATIONS, maximum_object_bytes=128 << 20
    )
    intake = ImageStore(limits, disk, house.indexer)
    with contextlib.closing(
        Arriving(StoreCommand(meta("1.2.3", ExplicitVRLittleEndian), DX), intake.begin)
    ) as arriving:
        arriving.write([memoryview(data_set("1.2.3", pixels=bytes(30 << 20))[: 32 << 10])])
        yield arriving


def taken(arriving: Arriving) -> int:
    """How many bytes more, before the object is refused."""
    for size in range(0, 20 << 20, 16 << 10):
        try:
            arriving.write([memoryview(bytes(16 << 10))])
        except OutOfResources:
            return size
    raise AssertionError("it is not refused")


def test_a_disk_with_room_is_looked_at_every_16_mib(disk: Disk, house: House) -> None:
    with arriving_at(disk, house) as arriving:
        for _ in range(50):
            arriving.write([memoryview(bytes(1 << 20))])
        assert 1 + 2 <= disk.asked <= 1 + 3
        disk.left = RESERVE
        assert taken(arriving) <= 16 << 20


def test_a_disk_that_is_nearly_full_is_looked_at_before_its_reserve_is_used_by_all_who_may_come(
    disk: Disk, house: House
) -> None:
    room = 1 << 20
    disk.left = RESERVE + room
    with arriving_at(disk, house) as arriving:
        disk.left = RESERVE
        assert 0 < taken(arriving) <= room // ASSOCIATIONS


class Note(PiecewiseSink):
    """A taker that wants pieces, as that of a rejection note."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, pieces: Sequence[memoryview]) -> None:
        self.written += b"".join(pieces)

    def commit(self) -> StoreOutcome:
        return StoreOutcome.REJECTION_NOTE

    def close(self) -> None:
        pass


def test_who_wants_pieces_is_not_asked_to_read() -> None:
    """Before the header is known nobody can say who it will be."""
    encoded, note = data_set("1.2.3", pixels=bytes(70_000)), Note()
    with contextlib.closing(
        Arriving(
            StoreCommand(meta("1.2.3", ExplicitVRLittleEndian), DX), lambda _command, _header: note
        )
    ) as arriving:
        assert arriving.reads_after == 32 << 10
        unread = BorrowedBuffer(-1, bytearray(100), 10, 90, 1, False, b"")
        for piece, missing in (
            (encoded[:100], (32 << 10) - 100),
            (encoded[100 : 33 << 10], None),
            (encoded[33 << 10 :], None),
        ):
            arriving.write([memoryview(piece)])
            arriving.receive(unread, 1)
            assert arriving.reads_after == missing
        assert (unread.start, unread.end) == (10, 90)
        assert arriving.commit() is StoreOutcome.REJECTION_NOTE
    assert note.written == encoded


def test_a_header_is_held_back_to_its_limit_and_no_further() -> None:
    beginning = Beginning(ExplicitVRLittleEndian)
    with pytest.raises(CannotUnderstand, match="More than 16 MiB"):
        beginning.add(memoryview(element(0x00090010, b"UN", bytes(1 << 20)) * 20))
    assert len(beginning.held) == MAXIMUM_HEADER_BYTES + 1


def test_a_header_that_ends_where_a_window_ends_is_not_taken_for_the_whole() -> None:
    first = data_set("1.2.3", pixels=b"")[:-12]
    padded = first + element(0x00290010, b"UN", bytes((32 << 10) - len(first) - 12))
    assert len(padded) == 32 << 10
    beginning = Beginning(ExplicitVRLittleEndian)
    beginning.add(memoryview(padded))
    assert beginning.header is None
    pixels = element(0x7FE00010, b"OW", bytes(100))
    beginning.add(memoryview(pixels))
    assert (
        beginning.end().pixels_start
        == read_header(padded + pixels, ExplicitVRLittleEndian).pixels_start
    )


def test_rows_of_associations_are_written_together_and_all_at_the_end(tmp_path: Path) -> None:
    made = make_settings(tmp_path / "state")
    ledger = Ledger(made.ledger_url)
    book = AssociationRecordWriter(ledger)
    book.start()
    record = AssociationRecord(1.0, 2.0, "10.0.0.7", "CR9", "HILUM", "released", None, 1, 0, None)
    for _ in range(300):
        book.put(record)
    book.stop(20)
    import sqlite3

    with sqlite3.connect(made.site.state_dir / "ledger.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM association").fetchone() == (300,)
    ledger.close()
