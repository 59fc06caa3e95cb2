from __future__ import annotations

import json
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
)

from hilum.domain import Instance
from hilum.errors import NotAnalysed
from hilum.receive.headers.patient import read_patient
from hilum.report import build_documents
from hilum.report.headers.header import pair, read_header, utc_offset
from testing.phantoms.phantom import make_instance
from tests.support.reports.results import (
    CONTEXT,
    LABELS,
    instance_of,
    make_release,
    parse,
    reading_of,
    report_job,
    results_of,
    study_job,
)

TYPE_2 = (
    "PatientName",
    "PatientID",
    "PatientBirthDate",
    "PatientSex",
    "AccessionNumber",
    "StudyID",
    "StudyDate",
    "StudyTime",
)


def encoded(tag: int, vr: bytes, value: bytes) -> bytes:
    padded = value + b" " * (len(value) % 2)
    return (
        (tag >> 16).to_bytes(2, "little")
        + (tag & 0xFFFF).to_bytes(2, "little")
        + vr
        + len(padded).to_bytes(2, "little")
        + padded
    )


def instance(header: bytes, transfer_syntax_uid: str = ExplicitVRLittleEndian) -> Instance:
    class_uid = "1.2.840.10008.5.1.4.1.1.1.1"
    return Instance(
        "1.2.3",
        class_uid,
        "1.2",
        "1.3",
        transfer_syntax_uid,
        "1.dcm",
        1,
        "d",
        "p",
        0.0,
        "MOD1",
        "HILUM",
        header,
    )


def with_header(**overrides):
    return read_header(instance_of(make_instance(rows=16, columns=16, overrides=overrides)))


def test_what_is_missing_is_empty():
    header = read_header(instance(b""))
    assert [header.get(keyword) for keyword in TYPE_2] == [""] * len(TYPE_2)
    assert (header.StudyInstanceUID, header.SpecificCharacterSet) == ("1.2", "ISO_IR 192")


@pytest.mark.parametrize(
    "syntax", [ExplicitVRLittleEndian, ImplicitVRLittleEndian, ExplicitVRBigEndian]
)
def test_each_encoding_is_read_by_its_own_rules(syntax):
    dataset = make_instance(rows=16, columns=16)
    dataset.file_meta.TransferSyntaxUID = syntax
    header = read_header(instance_of(dataset))
    assert (str(header.PatientName), header.Rows, header.Modality) == ("Adler^Phantom", 16, "DX")


def test_a_deflated_objects_header_is_kept_inflated():
    found = instance_of(
        make_instance(rows=16, columns=16), transfer_syntax_uid=DeflatedExplicitVRLittleEndian
    )
    assert str(read_header(found).PatientName) == "Adler^Phantom"


@pytest.mark.parametrize("vr", [b"PN", b"LT", b"ST"])
def test_a_name_that_claims_to_be_a_long_text_is_one_name(vr):
    """pydicom leaves the backslash of a long text alone.

    Three names in its place were no name for the reference builder.
    """
    assert (
        read_header(instance(encoded(0x00100010, vr, b"Doe^Jane\\Roe\\"))).PatientName == "Doe^Jane"
    )


@pytest.mark.parametrize(
    ("sex", "expected"),
    [("F", "F"), ("m", "M"), (" O ", "O"), ("X", ""), ("Female", ""), ("", ""), ("MALE", "")],
)
def test_patient_sex_is_one_of_three_or_empty(sex, expected):
    assert read_header(instance(encoded(0x00100040, b"CS", sex.encode()))).PatientSex == expected


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("20260105", "20260105"),
        ("2026.01.05", "20260105"),
        ("20261332", ""),
        ("", ""),
        ("unknown", ""),
        ("2026", ""),
        ("20260229", ""),
    ],
)
def test_a_date_is_a_day_of_the_calendar_or_empty(date, expected):
    assert read_header(instance(encoded(0x00080020, b"DA", date.encode()))).StudyDate == expected


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("083000", "083000"),
        ("08:30:00", "083000"),
        ("08", "08"),
        ("0830.5", ""),
        ("235959.123456", "235959.123456"),
        ("25", ""),
        ("-", ""),
    ],
)
def test_a_time_is_on_the_clock_or_empty(time, expected):
    assert read_header(instance(encoded(0x00080030, b"TM", time.encode()))).StudyTime == expected


def test_an_identifier_is_copied_whole_however_long_it_is():
    long = "A" * 20 + "-WITH-MORE-THAN-SIXTEEN"
    header = read_header(instance(encoded(0x00080050, b"SH", long.encode())))
    assert header.AccessionNumber.rstrip() == long


def test_of_several_values_where_one_belongs_identifiers_are_kept_and_the_rest_is_settled():
    raw = encoded(0x00080020, b"DA", b"20260105\\20260106") + encoded(0x00080050, b"SH", b"A1\\A2")
    raw += encoded(0x00100010, b"PN", b"Doe^Jane\\Roe^Joan") + encoded(0x00100040, b"CS", b"F\\M")
    header = read_header(instance(raw))
    assert list(header.AccessionNumber) == ["A1", "A2"]
    assert (header.StudyDate, str(header.PatientName), header.PatientSex) == ("", "Doe^Jane", "")


def test_latin_1_without_a_character_set_is_readable_text():
    header = read_header(instance(encoded(0x00100010, b"PN", "Müller^Jörg".encode("latin-1"))))
    assert str(header.PatientName).rstrip() == "Müller^Jörg"


CHINESE = b"\x1b$)A\xcd\xf5"  # PS3.5 K.2


def test_escapes_of_a_character_set_do_not_come_along():
    raw = encoded(0x00080005, b"CS", b"\\ISO 2022 IR 58") + encoded(0x00081030, b"LO", CHINESE)
    raw += encoded(0x00100010, b"PN", b"Wang^X=" + CHINESE + b"^" + CHINESE) + encoded(
        0x00100020, b"LO", CHINESE + b"1"
    )
    header = read_header(instance(raw))
    assert (header.PatientName, header.PatientID, header.StudyDescription) == (
        "Wang^X=王^王",
        "王1",
        "王",
    )
    assert read_patient(raw, ExplicitVRLittleEndian).patient_id == "王1"


@pytest.mark.parametrize("character_set", [b"", b"\\ISO 2022 IR 149", b"ISO_IR 100"])
def test_an_escape_that_was_not_declared_damages_an_identifier(character_set):
    with pytest.raises(NotAnalysed, match="control characters"):
        read_header(
            instance(
                encoded(0x00080005, b"CS", character_set)
                + encoded(0x00100020, b"LO", CHINESE + b"1")
            )
        )


def test_an_unknown_character_set_is_neither_fatal_nor_printed():
    raw = encoded(0x00080005, b"CS", b"ISO_IR 999") + encoded(0x00100010, b"PN", b"Doe^Jane")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert str(read_header(instance(raw)).PatientName) == "Doe^Jane"


def test_control_characters_do_not_come_along():
    header = read_header(instance(encoded(0x00081030, b"LO", b"Chest\x1b[31m\x00\r\n PA")))
    assert header.StudyDescription.strip() == "Chest[31m PA"


@pytest.mark.parametrize("bad", [b"1,80", b"abc", b"nan", b"inf"])
def test_a_number_that_is_none_is_left_out(bad):
    assert "PatientSize" not in read_header(instance(encoded(0x00101020, b"DS", bad)))


def test_private_attributes_and_binaries_are_left_out():
    raw = (
        encoded(0x00090010, b"LO", b"VENDOR")
        + encoded(0x00091001, b"LO", b"secret")
        + encoded(0x00282110, b"CS", b"00")
    )
    header = read_header(instance(raw))
    assert all(not element.tag.is_private for element in header)
    assert header.LossyImageCompression == "00"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["L", "F"], ("L", "F")),
        (["", ""], None),
        ("L", None),
        (None, None),
        (["L", "F", "X"], None),
    ],
)
def test_patient_orientation_has_two_values_or_counts_as_absent(value, expected):
    assert pair(with_header(PatientOrientation=value), "PatientOrientation") == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [("+0100", "+0100"), ("-0430", "-0430"), ("0100", None), ("+2500", None), (None, None)],
)
def test_the_time_zone_is_valid_or_absent(value, expected):
    assert utc_offset(with_header(TimezoneOffsetFromUTC=value)) == expected


def test_the_ledgers_identity_wins_over_the_headers():
    raw = encoded(0x0020000D, b"UI", b"9.9.9") + encoded(0x00080018, b"UI", b"8.8.8\0")
    header = read_header(instance(raw))
    assert (header.StudyInstanceUID, header.SOPInstanceUID, header.SeriesInstanceUID) == (
        "1.2",
        "1.2.3",
        "1.3",
    )


def test_a_header_that_cannot_be_read_is_a_reason_without_patient_data():
    with pytest.raises(NotAnalysed) as caught:
        read_header(
            instance(
                encoded(0x00100010, b"PN", b"Doe^Jane") + b"\x40\x00\x75\x02OB\x02\x00\x01\x20"
            )
        )
    assert caught.value.reason == "corrupt_header"
    assert "Doe" not in str(caught.value)


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=120),
    st.sampled_from([ExplicitVRLittleEndian, ImplicitVRLittleEndian, ExplicitVRBigEndian, "1.2.3"]),
)
def test_no_bytes_do_anything_but_a_header_or_a_reason(raw, syntax):
    try:
        header = read_header(instance(raw, syntax))
    except NotAnalysed:
        return
    assert all(keyword in header for keyword in TYPE_2)


tags = st.sampled_from(
    [
        0x00080020,
        0x00080030,
        0x00080050,
        0x00100010,
        0x00100020,
        0x00100030,
        0x00100040,
        0x00101010,
        0x00101030,
    ]
)
vrs = st.sampled_from(
    [
        b"PN",
        b"LO",
        b"SH",
        b"DA",
        b"TM",
        b"CS",
        b"DS",
        b"IS",
        b"AS",
        b"UI",
        b"US",
        b"SQ",
        b"UN",
        b"OB",
        b"ZZ",
    ]
)
values = st.binary(max_size=24) | st.sampled_from(
    [b"20260105", b"a\\b", b"12\\13", b"F\\M", b"\\", b"=^", b"0830", b" ", b"\x1b$B"]
)
broken = st.lists(st.tuples(tags, vrs, values), max_size=8)


@settings(max_examples=150, deadline=None)
@given(broken)
def test_broken_elements_never_break_the_header(elements):
    try:
        header = read_header(instance(b"".join(encoded(*element) for element in sorted(elements))))
    except NotAnalysed:
        return
    assert header.PatientSex in ("", "M", "F", "O")
    assert header.StudyDate == "" or len(header.StudyDate) == 8


@settings(max_examples=25, deadline=None)
@given(broken)
def test_broken_elements_never_break_the_report(elements):
    release = make_release(labels=LABELS[:1])
    image = instance(b"".join(encoded(*element) for element in sorted(elements)))
    (result,) = results_of(study_job([image], [reading_of(image, release, logits=(0.5,))]), release)
    try:
        sr, plain = build_documents(report_job([image], result), release, CONTEXT)
    except NotAnalysed:
        return
    assert parse(sr.content).StudyInstanceUID == image.study_instance_uid
    assert json.loads(plain.content)["study"]["study_instance_uid"] == image.study_instance_uid
