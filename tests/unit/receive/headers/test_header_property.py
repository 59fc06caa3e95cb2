"""Any header that the listener lets in becomes a valid report, or ends with a reason.

And what identifies a patient or an order is whole.

The headers are drawn at random from what hospitals send: names in every character set, sexes that
are none, values that are missing, empty, too long, doubled or broken.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from pydicom.dataset import Dataset

from hilum.domain import Document
from hilum.errors import NotAnalysed
from hilum.receive.headers.header import read_header
from hilum.report import build_documents
from tests.support.objects.drawn_headers import HEADERS, localised
from tests.support.objects.synthetic_header import encoded_header, instance_with
from tests.support.reports.results import (
    CONTEXT,
    LABELS,
    make_release,
    parse,
    reading_of,
    report_job,
    results_of,
    study_job,
)

RELEASE: Final = make_release(labels=LABELS[:1])
IDENTIFYING: Final = ("PatientID", "IssuerOfPatientID", "AccessionNumber", "StudyID")


def built(header: bytes) -> Document | NotAnalysed:
    """The report, or the reason why there is none."""
    image = instance_with(header)
    (result,) = results_of(study_job([image], [reading_of(image, RELEASE, logits=(0.5,))]), RELEASE)
    try:
        return build_documents(report_job([image], result), RELEASE, CONTEXT, ("sr",))[0]
    except NotAnalysed as error:
        return error


def values_of(report: Dataset, keyword: str) -> str:
    value = report.get(keyword, "")
    return (
        "\\".join(map(str, value))
        if isinstance(value, list | tuple) or value.__class__.__name__ == "MultiValue"
        else str(value)
    )


def is_damaged(text: str) -> bool:
    """A control character inside: whatever one made of it would be another identifier."""
    return re.search(r"[\x00-\x1f\x7f]", text) is not None


def check(report: Dataset, header: Mapping[str, Any]) -> None:
    for keyword in IDENTIFYING:
        assert values_of(report, keyword).strip(" ") == (header[keyword] or "").strip(" "), keyword
    assert report.SpecificCharacterSet == "ISO_IR 192"
    assert report.PatientSex in ("", "M", "F", "O")
    for keyword in ("PatientBirthDate", "StudyDate"):
        assert re.fullmatch(r"(\d{8})?", values_of(report, keyword)), keyword
    assert re.fullmatch(
        r"((?:[01]\d|2[0-3])([0-5]\d([0-5]\d(\.\d{1,6})?)?)?)?", values_of(report, "StudyTime")
    )
    assert len(values_of(report, "StudyDescription")) <= 64
    if header["PatientName"] is None:
        assert str(report.PatientName) == header["name"][1]


# Ours to keep although the standard forbids them: a shortened identifier is another one; and a name
# keeps its old form.
TOLERATED: Final = re.compile(
    r"(AccessionNumber|PatientID|IssuerOfPatientID|StudyID|PatientName|ReferringPhysicianName)|DeviceUID|"
    r"^Comprehensive3DSR$|needed to build DICOMDIR"
)
_SAMPLE: Final = 5


@pytest.fixture(scope="module")
def sampled() -> list[bytes]:
    """Reports for a validator, one in so many."""
    return []


@settings(
    max_examples=130,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(HEADERS)
def test_any_header_gives_a_valid_report_or_a_reason(
    sampled: list[bytes], header: dict[str, Any]
) -> None:
    header = localised(header)
    raw = encoded_header(header)
    read_header(raw, "1.2.840.10008.1.2.1")  # the listener lets it in
    document = built(raw)
    has_damage = any(is_damaged(header[keyword] or "") for keyword in IDENTIFYING)
    assert isinstance(document, NotAnalysed) == has_damage
    if isinstance(document, NotAnalysed):
        assert (
            str(document)
            == "corrupt_header: an identifier of the patient or the order holds control characters"
        )
    else:
        check(parse(document.content), header)
        sampled.append(document.content)


def test_a_sample_of_them_passes_the_validator(sampled: list[bytes], tmp_path: Path) -> None:
    program = shutil.which("dciodvfy")
    if program is None:
        pytest.skip("dciodvfy is not installed (Debian package dicom3tools)")
    assert sampled, "the test before this one fills it"
    complaints: set[str] = set()
    for number, content in enumerate(sampled[::_SAMPLE]):
        file = tmp_path / f"{number}.dcm"
        file.write_bytes(content)
        done = subprocess.run(
            [program, "-new", str(file)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=False,
        )
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        assert "Comprehensive3DSR" in lines
        complaints.update(line for line in lines if not TOLERATED.search(line))
    assert complaints == set()
