"""What a row keeps of an image's header.

Never bulk, never more than 64 KiB, and always whose it is.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pydicom.dataset import Dataset
from pydicom.filebase import DicomBytesIO
from pydicom.filereader import read_dataset
from pydicom.filewriter import write_dataset
from pydicom.uid import ExplicitVRBigEndian, ExplicitVRLittleEndian, ImplicitVRLittleEndian

from hilum.receive.headers import file_meta
from hilum.receive.headers.patient import read_patient
from hilum.receive.indexing.describe import describe
from hilum.report.headers.header import TYPE_2
from hilum.report.headers.inherited import DESCRIPTORS, IDENTIFIERS, tags
from hilum.report.template.extract import extract
from hilum.store.schema.row_header import IDENTIFYING, MAXIMUM_BYTES, identifying, kept
from testing.phantoms.phantom import make_instance
from tests.support.ledger.storing import data_set, element, meta
from tests.support.objects.header_bombs import BOMBS, bomb_in
from tests.support.reports.results import header_of, instance_of

ENCODINGS = [ExplicitVRLittleEndian, ImplicitVRLittleEndian, ExplicitVRBigEndian]


def encoded(dataset: Dataset, syntax: str) -> bytes:
    target = DicomBytesIO()
    target.is_implicit_VR, target.is_little_endian = (
        syntax == ImplicitVRLittleEndian,
        syntax != ExplicitVRBigEndian,
    )
    write_dataset(target, dataset)
    return bytes(target.getvalue())


def decoded(header: bytes, syntax: str) -> Dataset:
    from io import BytesIO

    return read_dataset(
        BytesIO(header), syntax == ImplicitVRLittleEndian, syntax != ExplicitVRBigEndian
    )


def tags_of(dataset: Dataset) -> set[int]:
    return {int(tag) for tag in dataset.keys()}  # noqa: SIM118 - to iterate a data set converts each element


def with_bulk() -> Dataset:
    """As a CR with annotations, thumbnails and what its maker keeps for itself."""
    found = Dataset({tag: item for tag, item in make_instance(1).items() if tag < 0x7FE00010})
    found.PatientComments = "c" * 9000
    found.add_new(0x00091010, "UN", bytes(300_000))
    found.add_new(0x00090010, "LO", "MAKER")
    icon = Dataset()
    icon.PixelData, icon["PixelData"].VR = bytes(16_384), "OW"
    found.IconImageSequence = [icon]
    found.add_new(0x50003000, "OW", bytes(2000))
    found.add_new(0x60000010, "US", 2500)
    found.add_new(0x60003000, "OW", bytes(1_000_000))
    found.add_new(0x60023000, "OW", bytes(64))
    return found


@pytest.mark.parametrize("syntax", ENCODINGS)
def test_bulk_stays_in_the_file(syntax: str) -> None:
    found = with_bulk()
    header = kept(encoded(found, syntax), syntax)
    gone = {0x00090010, 0x00091010, 0x00880200, 0x50003000, 0x60003000, 0x60023000}
    assert tags_of(decoded(header, syntax)) == tags_of(found) - gone
    assert len(header) < 16_384
    assert read_patient(header, syntax).patient_id == found.PatientID


def test_a_report_says_the_same_without_it() -> None:
    whole = instance_of(make_instance(1))
    large = header_of(make_instance(1)) + element(0x60003000, b"OW", bytes(100_000))
    short = kept(large, whole.transfer_syntax_uid)
    assert short == whole.header
    assert extract(instance_of(make_instance(1), header=short)) == extract(whole)


def test_a_usual_header_is_kept_to_the_byte() -> None:
    header = header_of(make_instance(1))
    assert len(header) < 8192
    assert kept(header, ExplicitVRLittleEndian) == header


@pytest.mark.parametrize("syntax", ENCODINGS)
def test_it_is_bounded_however_many_elements_there_are_and_says_whose_it_is(syntax: str) -> None:
    found = make_instance(1)
    for number in range(500):
        found.add_new(0x00181900 + number, "LO", "x" * 60)  # elements that no dictionary knows
    for number in range(40):
        found.add_new(0x00201900 + number, "LT", "y" * 9000)
    del found.PixelData
    header = kept(encoded(found, syntax), syntax)
    assert MAXIMUM_BYTES - 10_000 < len(header) <= MAXIMUM_BYTES
    left = decoded(header, syntax)
    assert {tag for tag in IDENTIFYING if tag in found} <= tags_of(left) < tags_of(found)


def test_what_identifies_is_what_reports_must_have() -> None:
    assert {int(tag) for tag in TYPE_2} | tags(
        DESCRIPTORS | IDENTIFIERS | {"IssuerOfPatientID", "TimezoneOffsetFromUTC"}
    ) <= IDENTIFYING


@pytest.mark.parametrize("syntax", ENCODINGS)
def test_with_the_pixels_all_leaves_but_whose_it_is(syntax: str) -> None:
    found = with_bulk()
    header = identifying(encoded(found, syntax), syntax)
    left = tags_of(decoded(header, syntax))
    assert left == {tag for tag in IDENTIFYING if tag in found}
    assert len(header) < 2000
    assert identifying(header, syntax) == header
    image = instance_of(make_instance(1), header=header, transfer_syntax_uid=syntax)
    assert extract(image).get("PatientID") == found.PatientID, (
        "a late image still makes a report on the whole study"
    )


@pytest.mark.parametrize(
    "name", ["empty items", "empty items of a defined length", "deep of defined lengths"]
)
def test_of_a_header_that_an_earlier_version_has_taken_what_may_be_read_is_left(name: str) -> None:
    header = bomb_in(BOMBS[name]())[:-76]
    for short in (kept, identifying):
        left = short(header, ExplicitVRLittleEndian)
        assert read_patient(left, ExplicitVRLittleEndian).patient_id == "P1"
        assert len(left) < 1000


def test_overlays_are_not_in_the_row_and_are_in_the_file(tmp_path: Path) -> None:
    whole = data_set("1.2.3.4")
    start = whole.index(b"\xe0\x7f\x10\x00OW")
    overlay = element(0x60003000, b"OW", b"\5" * 500_000)
    file = tmp_path / "stored.dcm"
    file.write_bytes(file_meta.encode(meta("1.2.3.4")) + whole[:start] + overlay + whole[start:])
    assert describe(file).header == whole[:start]
