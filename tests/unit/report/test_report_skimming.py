"""The short ways through a header lead where pydicom's long one does."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydicom.datadict import dictionary_VR, tag_for_keyword
from pydicom.dataset import Dataset
from pydicom.filereader import read_dataset
from pydicom.tag import BaseTag

from hilum.dicom.elements import skimmed
from hilum.errors import NotAnalysed
from hilum.report.headers import elements
from hilum.report.headers.clean_text import cleaned
from hilum.report.headers.inherited import OF_FIRST
from hilum.report.headers.suppress_warnings import quietly
from hilum_preprocessing.header.elements import MALFORMED
from tests.support.objects.synthetic_header import encoded_header
from tests.support.reports.results import header_of

KEYWORDS = (
    "AccessionNumber",
    "AcquisitionDateTime",
    "AdditionalPatientHistory",
    "ImagerPixelSpacing",
    "InstitutionAddress",
    "PatientAge",
    "PatientBirthDate",
    "PatientID",
    "PatientName",
    "PatientOrientation",
    "PatientSex",
    "PatientWeight",
    "Rows",
    "SoftwareVersions",
    "StudyDescription",
    "StudyInstanceUID",
    "StudyTime",
)
CHARACTER_SETS = (
    "",
    "ISO_IR 100",
    "ISO_IR 13",
    "ISO_IR 192",
    "GB18030",
    "ISO 2022 IR 6\\ISO 2022 IR 87",
    "\\ISO 2022 IR 149",
)
ASCII = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20)
VALUES = ASCII | st.sampled_from(
    (
        "20260105",
        "083000",
        "0.2\\0.2",
        "1.5",
        "L\\F",
        "\\",
        " a ",
        "1.2.3",
        "062Y",
        "A^B^C=D",
        "1_0",
        "\0\0",
        "a\0",
    )
)


def way(read: Any, tag: BaseTag) -> Any:
    """What a reader's value is cleaned to; None for one that is left out."""
    try:
        vr, value = read()
        return vr, cleaned(tag, vr, value)
    except MALFORMED:
        return None
    except NotAnalysed as error:
        return str(error)


def outcome(found: Any) -> Any:
    return None if found is None or (isinstance(found, tuple) and found[1] is None) else found


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.sampled_from(KEYWORDS), VALUES, st.sampled_from(CHARACTER_SETS))
def test_plain_values_are_what_pydicom_decodes(
    keyword: str, value: str, character_set: str
) -> None:
    tag = BaseTag(tag_for_keyword(keyword) or 0)
    with quietly():
        dataset = read_dataset(
            BytesIO(encoded_header({"name": (character_set, "A"), keyword: value})), False, True
        )
        plain = elements.plain(dataset.get_item(tag))
        if plain is not None:
            assert outcome(way(lambda: plain, tag)) == outcome(
                way(lambda: elements.decoded(dataset[tag]), tag)
            )
            assert plain[0] == dictionary_VR(tag)


def test_most_values_of_a_header_are_plain() -> None:
    values = {keyword: "1" for keyword in KEYWORDS if keyword not in ("PatientName", "Rows")}
    dataset = read_dataset(
        BytesIO(encoded_header({"name": ("", "A"), **values, "Rows": "\x01\x00"})), False, True
    )
    assert all(
        elements.plain(dataset.get_item(tag_for_keyword(keyword) or 0)) is not None
        for keyword in KEYWORDS
    )


def radiograph() -> bytes:
    from testing.phantoms.phantom import make_instance

    return header_of(make_instance(3, rows=16, columns=16))


def test_what_is_skimmed_is_what_was_wanted() -> None:
    whole, part = (
        read_dataset(BytesIO(raw), False, True)
        for raw in (radiograph(), skimmed(radiograph(), OF_FIRST))
    )
    assert part == Dataset(
        {element.tag: element for element in whole if int(element.tag) in OF_FIRST}
    )
    assert 10 < len(part) < len(whole)


UNDEFINED = b"\x08\x00\x10\x11SQ\x00\x00\xff\xff\xff\xff\xfe\xff\xdd\xe0\x00\x00\x00\x00"


@pytest.mark.parametrize(
    "tail",
    [
        UNDEFINED,
        b"\x10\x00",
        b"\x10\x00\x10\x00PN\x08\x00Doe",
        b"\x10\x00\x10\x00ZZ\x00\x00",
        b"\x10\x00\x10\x00OB\0\0",
    ],
)
def test_a_header_that_lengths_do_not_lead_through_is_left_whole(tail: bytes) -> None:
    assert skimmed(radiograph() + tail, OF_FIRST) == radiograph() + tail


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_stop_it(raw: bytes) -> None:
    assert len(skimmed(raw, OF_FIRST)) <= len(raw)
