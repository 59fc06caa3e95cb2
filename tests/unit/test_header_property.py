"""Any header that the listener lets in becomes a valid report, or ends with a reason; and what identifies a patient or an order is whole.

The headers are drawn at random from what hospitals send: names in every character set, sexes that are none, values that are missing,
empty, too long, doubled or broken.
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
from hypothesis import strategies as st
from pydicom.dataset import Dataset

from hilum.domain import Document
from hilum.errors import NotAnalysed
from hilum.receive.header import read_header as read_received
from hilum.report import build_documents
from tests.support.results import CONTEXT, LABELS, make_release, parse, reading_of, report_job, results_of, study_job
from tests.support.synthetic_header import encoded_header, instance_with

RELEASE: Final = make_release(labels=LABELS[:1])
# (Specific Character Set, a name in it): those of the shared files, and Korean and simplified Chinese (PS3.5 Annexes H to K).
NAMES: Final = (
    ("", "Doe^Jane"),
    ("ISO_IR 100", "Äneas^Rüdiger"),
    ("ISO_IR 144", "Люкceмбypг"),  # noqa: RUF001 - the example of PS3.5
    ("ISO_IR 192", "Wang^XiaoDong=王^小东"),
    ("GB18030", "Wang^XiaoDong=王^小东"),
    ("ISO 2022 IR 6\\ISO 2022 IR 87", "Yamada^Tarou=山田^太郎=やまだ^たろう"),
    ("ISO 2022 IR 13\\ISO 2022 IR 87", "ﾔﾏﾀﾞ^ﾀﾛｳ=山田^太郎=やまだ^たろう"),
    ("\\ISO 2022 IR 149", "Hong^Gildong=洪^吉洞=홍^길동"),
)
ODD_NAMES: Final = ("", "^", "=", "Doe^Jane^A^B^C", "Doe^Jane^A^B^C^D^E", "A=B=C=D", "Doe\\Roe", "X" * 70, "Doe^Jane\x1b", "  ", "Doe\r\n")
SEXES: Final = ("M", "F", "O", "U", "", "male", "F\\M", "X ", "\x00")
DATES: Final = ("20260105", "2026.01.05", "20261345", "", "  ", "unknown", "2026", "99999999", "20260105\\20260106", "00000000")
TIMES: Final = ("083000", "08:30:00.12", "25", "24", "0860", "083060", "083000.1234567", "", "now", "08\\09")
LOCAL: Final = "(in the character set)"
IDENTIFIERS: Final = ("A1", "", "A" * 80, "A\\B", " lead", LOCAL, "0", "-", "A\x1b[1mB", "A\x07B", "A\tB", "a=b^c", "\\")
TEXTS: Final = ("Thorax pa", "", "T" * 300, "a\\b", "line\r\nline", "bell\x07", "x" * 64, LOCAL)
NUMBERS: Final = ("1.80", "", "1,80", "abc", "1" * 40, "nan", "1e99", "1\\2", "\x00")


def maybe(values: tuple[str, ...]) -> st.SearchStrategy[str | None]:
    """None: the attribute is missing."""
    return st.none() | st.sampled_from(values)


HEADERS: Final = st.fixed_dictionaries(
    {
        "name": st.sampled_from(NAMES),
        "PatientName": st.none() | st.sampled_from(ODD_NAMES),
        "PatientID": maybe(IDENTIFIERS),
        "IssuerOfPatientID": maybe(IDENTIFIERS),
        "AccessionNumber": maybe(IDENTIFIERS),
        "StudyID": maybe(IDENTIFIERS),
        "PatientSex": maybe(SEXES),
        "PatientBirthDate": maybe(DATES),
        "StudyDate": maybe(DATES),
        "StudyTime": maybe(TIMES),
        "TimezoneOffsetFromUTC": maybe(("+0100", "-0330", "0100", "+9999", "")),
        "ReferringPhysicianName": maybe(ODD_NAMES),
        "StudyDescription": maybe(TEXTS),
        "PatientComments": maybe(TEXTS),
        "PatientAge": maybe(("062Y", "62", "", "old", "062Y\\063Y")),
        "PatientWeight": maybe(NUMBERS),
        "PatientSize": maybe(NUMBERS),
        "PregnancyStatus": maybe(("\x01\x00", "\x01", "\x00\x00\x00\x00", "")),
        "SmokingStatus": maybe(("YES", "maybe", "")),
        "PatientIdentityRemoved": maybe(("NO", "PERHAPS")),
        "OtherPatientIDsSequence": maybe(("", "FEFF00E000000000", "FEFF00E00E00000010002000 4C4F0600 413120202020".replace(" ", ""))),
        "ProcedureCodeSequence": maybe(("", "FEFF00E000000000", "FEFF00E00A00000008000001 53480200 4131".replace(" ", ""))),
        "ReferencedStudySequence": maybe(("", "FEFF00E000000000")),
        "PatientOrientation": maybe(("L\\F", "L", "", "\\", "L\\F\\X", "left\\foot")),
        "ImagerPixelSpacing": maybe(("0.2\\0.2", "0.2", "", "a\\b", "\\", "0.2\\0.2\\0.2")),
    }
)
IDENTIFYING: Final = ("PatientID", "IssuerOfPatientID", "AccessionNumber", "StudyID")


def localised(header: dict[str, Any]) -> dict[str, Any]:
    """With identifiers and texts that only this character set can say."""
    word = header["name"][1].split("=")[-1].split("^")[0]
    return {key: word if value == LOCAL else value for key, value in header.items()}


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
    return "\\".join(map(str, value)) if isinstance(value, list | tuple) or value.__class__.__name__ == "MultiValue" else str(value)


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
    assert re.fullmatch(r"((?:[01]\d|2[0-3])([0-5]\d([0-5]\d(\.\d{1,6})?)?)?)?", values_of(report, "StudyTime"))
    assert len(values_of(report, "StudyDescription")) <= 64
    if header["PatientName"] is None:
        assert str(report.PatientName) == header["name"][1]


# Ours to keep although the standard forbids them: a shortened identifier is another one; and a name keeps its old form.
TOLERATED: Final = re.compile(
    r"(AccessionNumber|PatientID|IssuerOfPatientID|StudyID|PatientName|ReferringPhysicianName)|DeviceUID|"
    r"^Comprehensive3DSR$|needed to build DICOMDIR"
)
_SAMPLE: Final = 5


@pytest.fixture(scope="module")
def sampled() -> list[bytes]:
    """Reports for a validator, one in so many."""
    return []


@settings(max_examples=130, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(HEADERS)
def test_any_header_gives_a_valid_report_or_a_reason(sampled: list[bytes], header: dict[str, Any]) -> None:
    header = localised(header)
    raw = encoded_header(header)
    read_received(raw, "1.2.840.10008.1.2.1")  # the listener lets it in
    document = built(raw)
    has_damage = any(is_damaged(header[keyword] or "") for keyword in IDENTIFYING)
    assert isinstance(document, NotAnalysed) == has_damage
    if isinstance(document, NotAnalysed):
        assert str(document) == "corrupt_header: an identifier of the patient or the order holds control characters"
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
        done = subprocess.run([program, "-new", str(file)], capture_output=True, text=True, errors="replace", timeout=30, check=False)
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        assert "Comprehensive3DSR" in lines
        complaints.update(line for line in lines if not TOLERATED.search(line))
    assert complaints == set()
