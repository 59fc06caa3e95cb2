"""DICOM JSON as keywords and texts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hilum.retrieve.dicomweb.dicom_json import DicomJsonError, answers
from tests.support.retrieve.web_server import element


@pytest.mark.parametrize(
    ("tag", "made", "keyword", "expected"),
    [
        ("00080020", element("DA", "20240101"), "StudyDate", "20240101"),
        ("00080061", element("CS", "CR", "DX"), "ModalitiesInStudy", "CR\\DX"),
        ("00201208", element("IS", 4), "NumberOfStudyRelatedInstances", "4"),
        ("00201208", element("IS", "4"), "NumberOfStudyRelatedInstances", "4"),
        ("00201208", element("IS", 4.0), "NumberOfStudyRelatedInstances", "4"),
        ("00180050", element("DS", 1.5), "SliceThickness", "1.5"),
        ("0020000d", element("UI", "1.2.3\0"), "StudyInstanceUID", "1.2.3"),
        (
            "00100010",
            element("PN", {"Alphabetic": "A^B", "Phonetic": "c"}),
            "PatientName",
            "A^B==c",
        ),
        ("00080050", element("SH", None), "AccessionNumber", ""),
        ("00080050", {"vr": "SH"}, "AccessionNumber", ""),
    ],
)
def test_an_element_becomes_a_text(tag: str, made: Any, keyword: str, expected: str) -> None:
    assert answers(json.dumps([{tag: made}]).encode()) == [{keyword: expected}]


def test_sequences_bulk_data_and_unknown_elements_are_left_out() -> None:
    content = [
        {
            "00081115": element("SQ", {"0020000E": element("UI", "1.2")}),
            "7FE00010": {"vr": "OW", "BulkDataURI": "http://elsewhere/"},
            "00091001": element("LO", "private"),
        }
    ]

    assert answers(json.dumps(content).encode()) == [{}]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>",
        b"{}",
        b"[1]",
        b"[NaN]",
        b'[{"StudyDate": {"vr": "DA"}}]',
        b'[{"00080020": "20240101"}]',
        b'[{"00080020": {"vr": "DA", "Value": "20240101"}}]',
        b'[{"00080020": {"vr": "DA", "Value": [true]}}]',
        b'[{"00080020": {"vr": "DA", "Value": [["20240101"]]}}]',
        b'[{"00080020": {"vr": "DA", "Value": [{"a": 1}]}}]',
        b'[{"00080020": {"vr": "DA", "Value": ["\xff"]}}]',
        b'[{"00180050": {"vr": "DS", "Value": [1e999]}}]',
        b"[" * 100_000,
    ],
)
def test_other_json_is_refused(content: bytes) -> None:
    with pytest.raises(DicomJsonError):
        answers(content)


def test_an_error_holds_no_value() -> None:
    with pytest.raises(DicomJsonError) as caught:
        answers(b'[{"00100010": {"vr": "PN", "Value": [["Doe^Jane"]]}}]')

    assert "Doe" not in str(caught.value)


@given(st.binary(max_size=200))
def test_any_bytes_are_answers_or_refused(content: bytes) -> None:
    try:
        found = answers(content)
    except DicomJsonError:
        return
    assert all(isinstance(value, str) for item in found for value in item.values())
