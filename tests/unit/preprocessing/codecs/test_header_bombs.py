"""A header costs what its bytes cost.

No reader follows more elements, items and levels than a header may have.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pydicom.dataset import Dataset
from pydicom.uid import ExplicitVRLittleEndian

from hilum.dicom.elements import places, values_in
from hilum.domain import Instance
from hilum.errors import NotAnalysed
from hilum.receive.commitment.request import CommitmentRefused, read_information
from hilum.receive.headers import file_meta
from hilum.receive.headers.header import read_header
from hilum.receive.statuses import COMMENT_LENGTH, CannotUnderstand, HeaderTooComplex
from hilum.receive.storage.header_window import Beginning
from hilum.receive.storage.rejection_note import read_note
from hilum.report.headers.header import read_header as read_for_report
from hilum.report.template.extract import extract
from hilum_preprocessing import NotAnalysable, Reason, check_tags, read_file
from hilum_preprocessing.codecs.frames import decode_frame
from hilum_preprocessing.header.element_index import END, BrokenDataSet, encoding_of, index
from hilum_preprocessing.header.elements import element
from hilum_preprocessing.header.luts import modality_of, voi_of
from hilum_preprocessing.header.pixel_header import PixelHeader
from hilum_preprocessing.header.structure import (
    MAXIMUM_ELEMENTS,
    MAXIMUM_LISTED,
    CountedBytes,
    TooComplex,
    require_bounded,
)
from testing.phantoms.phantom import make_instance
from tests.support.ledger.storing import meta
from tests.support.objects.header_bombs import BOMBS, PATIENT_IDS, Bomb, bomb_in, calls_of, explicit
from tests.support.objects.notes import KOS, key_objects, wire
from tests.support.objects.radiograph import radiograph, ramp, spec
from tests.support.reports.results import instance_of

_MOST_CALLS = (
    80 * MAXIMUM_ELEMENTS
)  # of functions, by a reader that stops in time; two million items take fifty million
_EXACTLY = MAXIMUM_ELEMENTS - 20  # with what an image has besides
bombs = pytest.mark.parametrize("name", BOMBS)


def file_of(tmp_path: Path, bomb: Bomb, *, in_meta: bytes = b"") -> Path:
    encoded = file_meta.encode(meta("1.2.3.4", bomb.transfer_syntax_uid))
    group = encoded[144:] + in_meta
    file = tmp_path / "bomb.dcm"
    file.write_bytes(encoded[:140] + struct.pack("<L", len(group)) + group + bomb_in(bomb))
    return file


def stored(bomb: Bomb) -> Instance:
    """As a row of an earlier version may hold it."""
    image = radiograph(
        ramp(8, 8), SOPInstanceUID="1.2.3.4", StudyInstanceUID="1.2.3", SeriesInstanceUID="1.2.3.1"
    )
    return instance_of(
        image, header=bomb_in(bomb)[: -64 - 12], transfer_syntax_uid=bomb.transfer_syntax_uid
    )


def read_whole(file: Path) -> None:
    """What a decode process reads of an object."""
    dataset = read_file(file)
    check_tags(dataset, spec())
    modality_of(dataset)
    voi_of(dataset)
    decode_frame(dataset, PixelHeader.of(dataset))


@bombs
def test_it_is_refused_at_the_edge_with_what_to_do(name: str) -> None:
    bomb = BOMBS[name]()
    encoded = bomb_in(bomb)

    def read() -> None:
        with pytest.raises(HeaderTooComplex, match="before Pixel Data; send less") as refused:
            read_header(encoded, bomb.transfer_syntax_uid)
        assert len(refused.value.comment) <= COMMENT_LENGTH

    assert calls_of(read) < 3 * _MOST_CALLS


@bombs
def test_a_sender_is_refused_before_it_has_sent_all_of_it(name: str) -> None:
    """Or when the element has ended, where only its end shows that it is one."""
    bomb = BOMBS[name]()
    beginning = Beginning(bomb.transfer_syntax_uid)
    with pytest.raises(HeaderTooComplex):
        beginning.add(memoryview(bomb_in(bomb) + bytes(4 << 20)))


@bombs
def test_a_decode_process_ends_early_with_one_that_lies_in_an_archive(
    name: str, tmp_path: Path
) -> None:
    file = file_of(tmp_path, BOMBS[name]())

    def read() -> None:
        with suppress(NotAnalysable):  # or what is too much of it is not looked at
            read_whole(file)

    assert calls_of(read) < _MOST_CALLS


@pytest.mark.parametrize(
    ("name", "keyword"),
    [
        ("empty items", "Modality"),
        ("private elements", "Modality"),
        ("empty items of a defined length", "ViewCodeSequence"),
        ("empty items in UN of a defined length", "ViewCodeSequence"),
        ("items that are none", "ViewCodeSequence"),
        ("values of a number", "WindowCenter"),
        ("words", "Rows"),
    ],
)
def test_it_ends_as_a_corrupt_header_that_says_how(name: str, keyword: str, tmp_path: Path) -> None:
    file = file_of(tmp_path, BOMBS[name]())
    with pytest.raises(NotAnalysable, match="more than 10,000 elements and items") as ended:
        element(read_file(file), keyword)
    assert ended.value.reason is Reason.CORRUPT_HEADER


def test_file_meta_information_is_a_header_too(tmp_path: Path) -> None:
    items = explicit(
        0x00020100, b"SQ", struct.pack("<HHL", 0xFFFE, 0xE000, 0) * 2_000_000, 0xFFFFFFFF
    )
    file = file_of(tmp_path, BOMBS["deep"](), in_meta=items)

    def read() -> None:
        with pytest.raises(NotAnalysable):
            read_file(file)
        with pytest.raises(CannotUnderstand):
            file_meta.decode(file.read_bytes())

    assert calls_of(read) < _MOST_CALLS


@pytest.mark.parametrize(
    "name",
    [
        "empty items",
        "empty items for the report",
        "implicit private elements",
        "deep",
        "character sets",
    ],
)
@pytest.mark.parametrize("reader", [read_for_report, extract])
def test_a_report_ends_early_with_a_row_of_an_earlier_version(
    reader: Callable[[Instance], object], name: str
) -> None:
    image = stored(BOMBS[name]())

    def read() -> None:
        with suppress(NotAnalysed):
            reader(image)

    assert calls_of(read) < _MOST_CALLS


@bombs
def test_looking_for_a_patient_ends_early(name: str) -> None:
    bomb = BOMBS[name]()
    header = memoryview(bomb_in(bomb))

    def read() -> None:
        for look in (
            lambda: index(header, encoding_of(bomb.transfer_syntax_uid), range(END)),
            lambda: values_in(header, bomb.transfer_syntax_uid, (PATIENT_IDS,)),
            lambda: places(bytes(header), (PATIENT_IDS,)),
        ):
            with suppress(BrokenDataSet, TooComplex):
                look()

    assert calls_of(read) < _MOST_CALLS


@pytest.mark.parametrize("name", ["empty items of a defined length", "deep"])
def test_requests_that_list_instances_are_bounded_too(name: str) -> None:
    bomb = BOMBS[name]()

    def read() -> None:
        with pytest.raises(CannotUnderstand):
            read_note(meta("1.2.3.4"), bomb.content)
        with pytest.raises(CommitmentRefused):
            read_information(bomb.content, ExplicitVRLittleEndian)

    assert calls_of(read) < 20 * _MOST_CALLS


def test_a_rejection_note_of_two_thousand_images_is_read() -> None:
    image = make_instance(1)
    others = [Dataset() for _ in range(2000)]
    for number, other in enumerate(others):
        other.SOPClassUID, other.SOPInstanceUID = image.SOPClassUID, f"1.2.9.{number}"
        other.StudyInstanceUID, other.SeriesInstanceUID = (
            image.StudyInstanceUID,
            image.SeriesInstanceUID,
        )
    encoded = wire(key_objects([image, *others], "113001"))
    assert len(read_note(meta("1.2.3.4"), encoded)) == 2001
    with pytest.raises(HeaderTooComplex):
        read_header(encoded, ExplicitVRLittleEndian)
    assert read_header(encoded, ExplicitVRLittleEndian, MAXIMUM_LISTED).sop_class_uid == KOS


@pytest.mark.parametrize("count", [_EXACTLY, MAXIMUM_ELEMENTS + 1])
def test_the_limit_is_where_it_is_said_to_be(count: int, tmp_path: Path) -> None:
    item = struct.pack("<HHL", 0xFFFE, 0xE000, 0)
    bomb = Bomb(
        0x00400275,
        explicit(
            0x00400275, b"SQ", item * count + struct.pack("<HHL", 0xFFFE, 0xE0DD, 0), 0xFFFFFFFF
        ),
    )
    encoded = bomb_in(bomb)
    if count > MAXIMUM_ELEMENTS:
        with pytest.raises(HeaderTooComplex):
            read_header(encoded, ExplicitVRLittleEndian)
        return
    assert read_header(encoded, ExplicitVRLittleEndian).sop_instance_uid == "1.2.3.4"
    assert len(read_file(file_of(tmp_path, bomb))[0x00400275].value) == count


def test_large_values_are_no_elements(tmp_path: Path) -> None:
    """Overlay planes, icons and private data of megabytes.

    Few elements, whatever their bytes look like.
    """
    overlay = struct.pack("<HHL", 0xFFFE, 0xE000, 0) * 100_000 + b"\\" * 1_000_000
    for vr in (b"OW", b"UN"):
        bomb = Bomb(0x60003000, explicit(0x60003000, vr, overlay))
        read_header(bomb_in(bomb), ExplicitVRLittleEndian)
        read_whole(file_of(tmp_path, bomb))


def test_bytes_that_a_reader_takes_for_elements_are_counted_whatever_they_are() -> None:
    counted = CountedBytes(bytes(1 << 20))
    with pytest.raises(TooComplex):
        [counted.read(8) for _ in range(1 << 17)]


def test_what_is_too_short_to_hold_so_many_is_not_walked() -> None:
    assert calls_of(lambda: require_bounded(bytes(MAXIMUM_ELEMENTS * 8))) < 5


def test_character_sets_of_every_item_count(tmp_path: Path) -> None:
    names = struct.pack("<HH2sH", 8, 5, b"CS", 60_000) + b"\\" * 60_000
    item = struct.pack("<HHL", 0xFFFE, 0xE000, len(names)) + names
    bomb = Bomb(
        0x00400275,
        explicit(
            0x00400275, b"SQ", item * 250 + struct.pack("<HHL", 0xFFFE, 0xE0DD, 0), 0xFFFFFFFF
        ),
    )
    with pytest.raises(HeaderTooComplex):
        read_header(bomb_in(bomb), ExplicitVRLittleEndian)
    with pytest.raises(NotAnalysable, match="more than 10,000"):
        read_file(file_of(tmp_path, bomb))
