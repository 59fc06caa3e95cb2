"""A result as an HL7 v2 message, read back by two parsers that are not ours."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hilum.domain import Document, ImageReason, ReadingState, Release, ReportJob
from hilum.report import build_documents
from hilum.report.hl7 import er7
from hilum.settings import Hl7MessageSettings
from testing.phantoms.phantom import make_study
from tests.support.hl7.parsed import patient_of, plain, read, segments, validated
from tests.support.models.releases import REPOSITORY
from tests.support.reports.results import (
    CONTEXT,
    instance_of,
    make_release,
    reading_of,
    report_job,
    report_of,
    results_of,
    study_job,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydicom")
RELEASE = make_release()
LATIN = "8859/1"
UTF_8 = "UNICODE UTF-8"
DAMAGED = b"\x40\x00\x75\x02OB\x02\x00\x01\x20"  # no header reads past it


def job(release: Release = RELEASE, **header: Any) -> ReportJob:
    (image,) = make_study(1, views=("PA",), rows=16, columns=16)
    image.SpecificCharacterSet = "ISO_IR 192"
    for keyword, value in header.items():
        setattr(image, keyword, value)
    return report_of([image], release)


def not_analysed() -> ReportJob:
    (image,) = [instance_of(item) for item in make_study(3, views=("PA",), rows=16, columns=16)]
    constant = {
        "state": ReadingState.NOT_ANALYSED,
        "logits": None,
        "reason": ImageReason.CONSTANT_IMAGE.value,
    }
    (result,) = results_of(study_job([image], [reading_of(image, RELEASE, **constant)]), RELEASE)
    return report_job([image], result)


def built(claimed: ReportJob, release: Release = RELEASE, **wanted: Any) -> Document:
    context = dataclasses.replace(CONTEXT, hl7=Hl7MessageSettings(**wanted))
    (document,) = build_documents(claimed, release, context, ("hl7",))
    return document


def message_of(claimed: ReportJob, **wanted: Any) -> Any:
    """It as python-hl7 reads it; hl7apy has found nothing that HL7 2.5.1 does not have."""
    content = built(claimed, **wanted).content
    validated(content)
    return read(content)


def fields(segment: Any) -> Mapping[int, str]:
    """A segment's fields by their numbers."""
    return {number: str(segment[number]) for number in range(1, len(segment))}


def observations(message: Any, value_type: str) -> list[Mapping[int, str]]:
    """OBX segments of a value type."""
    found = [fields(segment) for segment in segments(message, "OBX")]
    return [item for item in found if item[2] == value_type]


def test_the_header_names_a_preliminary_result_of_this_study() -> None:
    claimed = job()
    message = message_of(claimed, receiving_application="RIS", receiving_facility="General")
    header, order = message.segment("MSH"), message.segment("OBR")
    assert str(header[9]) == "ORU^R01^ORU_R01"
    assert [str(header[number]) for number in (3, 4, 5, 6)] == ["HILUM", "", "RIS", "General"]
    assert [str(header[number]) for number in (7, 11, 12)] == ["20260921141320+0000", "P", "2.5.1"]
    assert [str(header[number]) for number in (15, 16, 18)] == ["", "", UTF_8]
    assert str(order[4]) == "18748-4^Diagnostic Imaging Report^LN"
    assert [str(order[number]) for number in (24, 25)] == ["RAD", "P"]
    (study,) = observations(message, "ST")
    assert (study[3], study[11]) == ("113014^DICOM Study^DCM", "O")
    assert study[5] == claimed.result.study_instance_uid


def test_no_observation_is_final() -> None:
    for claimed in (job(), not_analysed()):
        found = [fields(segment) for segment in segments(message_of(claimed), "OBX")]
        assert {item[11] for item in found} == {"O", "P"}
        assert [item[1] for item in found] == [str(number) for number in range(1, len(found) + 1)]


def test_each_finding_is_a_pair_of_a_decision_and_a_number() -> None:
    claimed = job()
    message = message_of(claimed)
    decisions, numbers = observations(message, "CWE"), observations(message, "NM")
    assert [item[4] for item in decisions] == [item[4] for item in numbers]
    assert [(item[3], item[5]) for item in decisions[:2]] == [
        ("60046008^Pleural effusion^SCT^effusion^Pleural effusion^L", "52101004^Present^SCT"),
        ("36118008^Pneumothorax^SCT^pneumothorax^Pneumothorax^L", "272519000^Absent^SCT"),
    ]
    assert decisions[-1][5] == "373068000^Undetermined^SCT"  # it has no operating point
    assert {(item[3], item[6]) for item in numbers} == {
        ("246262008^Score^SCT", "{uncalibrated}^Model output, uncalibrated^UCUM")
    }
    scores = [float(item[5]) for item in numbers]
    assert scores == pytest.approx([finding.score for finding in claimed.result.findings])
    assert all(item[18].startswith("densenet121@2^^2.25.") for item in (*decisions, *numbers))


def test_only_a_calibrated_number_is_a_certainty_in_percent() -> None:
    claimed = job()
    findings = tuple(dataclasses.replace(item, probability=0.5) for item in claimed.result.findings)
    calibrated = dataclasses.replace(claimed.result, findings=findings, is_calibrated=True)
    message = message_of(dataclasses.replace(claimed, result=calibrated))
    (first, *_) = observations(message, "NM")
    assert (first[3], first[5], first[6]) == (
        "111012^Certainty of Finding^DCM",
        "50.0",
        "%^Percent^UCUM",
    )


def test_a_small_number_has_no_exponent() -> None:
    claimed = job()
    findings = tuple(dataclasses.replace(item, score=1.5e-9) for item in claimed.result.findings)
    small = dataclasses.replace(claimed.result, findings=findings)
    (first, *_) = observations(message_of(dataclasses.replace(claimed, result=small)), "NM")
    assert first[5] == "0.0000000015"


def test_the_caveats_come_before_any_number() -> None:
    names = [fields(item)[2] for item in segments(message_of(job()), "OBX")]
    texts = [item[5] for item in observations(message_of(job()), "TX")]
    assert names[: len(texts) + 1] == ["ST", *["TX"] * len(texts)]
    assert CONTEXT.disclaimer in texts
    assert any("no physician has confirmed" in text for text in texts)


def test_a_study_that_was_not_analysed_says_so_and_has_no_number() -> None:
    message = message_of(not_analysed())
    (summary,) = observations(message, "CWE")
    assert summary[5] == "111245^No algorithms succeeded; without findings^DCM"
    assert observations(message, "NM") == []
    assert any(
        "does not mean that nothing is there" in item[5] for item in observations(message, "TX")
    )


def test_a_study_without_a_readable_header_has_no_message_and_is_reported_as_json() -> None:
    claimed = not_analysed()
    broken = tuple(dataclasses.replace(item, header=DAMAGED) for item in claimed.instances)
    unreadable = dataclasses.replace(claimed, instances=broken)
    found = build_documents(unreadable, RELEASE, CONTEXT, ("sr", "json", "hl7"))
    assert [item.kind for item in found] == ["json"]


def test_the_same_result_is_the_same_message_and_another_one_has_another_identity() -> None:
    first, again = built(job()), built(job())
    assert first.content == again.content
    other = str(message_of(not_analysed()).segment("MSH")[10])
    identity = str(read(first.content).segment("MSH")[10])
    assert re.fullmatch("[A-Z2-7]{20}", identity)
    assert identity != other


def test_the_other_parser_finds_the_patient_and_the_observations_in_their_groups() -> None:
    message = validated(built(job(PatientID="P1")).content)
    results = message.oru_r01_patient_result.oru_r01_order_observation.oru_r01_observation
    values = [item.obx.obx_2.to_er7() for item in results]
    assert patient_of(message).pid_3.pid_3_1.to_er7() == "P1"
    assert values == ["ST", *["TX"] * 4, *["CWE", "NM"] * 5]


def test_the_example_of_the_documentation_is_a_message_of_ours() -> None:
    page = (REPOSITORY / "docs/destinations/hl7.md").read_text(encoding="utf-8")
    example = page.partition("```hl7\n")[2].partition("```")[0].splitlines()
    claimed = job(PatientName="Weiß^Jürgen", PatientID="4711")
    wanted = {"receiving_application": "RIS", "receiving_facility": "GENERAL"}
    document = built(claimed, assigning_authority="GENERAL", **wanted)
    assert len(example) > len({"MSH", "PID", "OBR", "OBX"})
    assert [line for line in document.content.decode().split("\r") if line in example] == example


# ---- the patient


def test_prefix_and_suffix_change_places() -> None:
    message = message_of(job(PatientName="Adams^John^Robert^Rev.^B.A. M.Div."))
    assert str(message.segment("PID")[5]) == "Adams^John^Robert^B.A. M.Div.^Rev."


def test_each_group_of_a_name_is_a_repetition() -> None:
    message = message_of(job(PatientName="Yamada^Tarou=山田^太郎=やまだ^たろう"))
    assert str(message.segment("PID")[5]) == (
        "Yamada^Tarou^^^^^L^A~山田^太郎^^^^^L^I~やまだ^たろう^^^^^L^P"
    )


@pytest.mark.parametrize(
    ("issuer", "wanted", "expected"),
    [
        ("", {}, "P1"),
        ("", {"assigning_authority": "HOSP"}, "P1^^^HOSP"),
        ("OTHER", {"assigning_authority": "HOSP"}, "P1^^^OTHER"),
        (
            "HOSP",
            {"assigning_authority": "HOSP", "assigning_authority_oid": "1.2.3"},
            "P1^^^HOSP&1.2.3&ISO",
        ),
        (
            "OTHER",
            {"assigning_authority": "HOSP", "assigning_authority_oid": "1.2.3"},
            "P1^^^OTHER",
        ),
    ],
)
def test_a_patient_id_has_its_assigning_authority(
    issuer: str, wanted: dict[str, str], expected: str
) -> None:
    message = message_of(job(PatientID="P1", IssuerOfPatientID=issuer), **wanted)
    assert str(message.segment("PID")[3]) == expected


@pytest.mark.parametrize(
    ("places", "filled"),
    [
        (("OBR-18",), {18}),
        (("OBR-3",), {3}),
        (("OBR-2", "OBR-3", "OBR-18"), {2, 3, 18}),
        ((), set()),
    ],
)
def test_the_accession_number_is_where_the_settings_want_it(
    places: tuple[str, ...], filled: set[int]
) -> None:
    claimed = job(AccessionNumber="A1")
    order = message_of(claimed, accession_fields=places).segment("OBR")
    assert {number for number in (2, 3, 18) if str(order[number]) == "A1"} == filled
    if 3 not in filled:
        assert str(order[3]) == f"{claimed.result.identifiers['sr_series']}^HILUM"


def test_without_an_accession_number_the_order_has_our_own() -> None:
    claimed = job(AccessionNumber="")
    order = message_of(claimed, accession_fields=("OBR-3",)).segment("OBR")
    assert str(order[3]).startswith(claimed.result.identifiers["sr_series"])


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({"StudyDate": "20261126", "StudyTime": "083015.25"}, "20261126083015"),
        (
            {"StudyDate": "20261126", "StudyTime": "0830", "TimezoneOffsetFromUTC": "+0100"},
            "202611260830+0100",
        ),
        ({"StudyDate": "20261126", "StudyTime": ""}, "20261126"),
        ({"StudyDate": "", "StudyTime": "0830"}, ""),
    ],
)
def test_the_time_of_the_study_is_as_exact_as_its_images_say(
    header: dict[str, str], expected: str
) -> None:
    assert str(message_of(job(**header)).segment("OBR")[7]) == expected


def test_enhanced_mode_asks_for_the_commit_alone() -> None:
    header = message_of(job(), acknowledgement="enhanced").segment("MSH")
    assert [str(header[number]) for number in (15, 16)] == ["AL", "NE"]


# ---- character sets


@pytest.mark.parametrize(("character_set", "codec"), [(UTF_8, "utf-8"), (LATIN, "iso-8859-1")])
def test_umlauts_are_written_in_both_character_sets(character_set: str, codec: str) -> None:
    document = built(job(PatientName="Weiß^Jürgen"), character_set=character_set)
    assert "Weiß^Jürgen".encode(codec) in document.content
    message = read(document.content, codec)
    assert str(message.segment("MSH")[18]) == character_set
    assert str(message.segment("PID")[5]) == "Weiß^Jürgen"
    assert patient_of(validated(document.content, codec)).pid_5.pid_5_1.to_er7() == "Weiß"


@pytest.mark.parametrize("name", ["Wałęsa^Lech", "Yamada^Tarou=山田^太郎"])
def test_letters_outside_the_character_set_are_kept_and_say_so(name: str) -> None:
    document = built(job(PatientName=name), character_set=LATIN)
    message = read(document.content)
    assert str(message.segment("MSH")[18]) == UTF_8
    assert b"?" not in document.content.partition(b"\r")[2].partition(b"\r")[0]


# ---- hostile values

HOSTILE = "Roe|^~\\&\rOBX|1|CWE|forged\nPID|2\x00\x0b\x1c\x1b$B"


def test_a_hostile_name_stays_one_value() -> None:
    message = message_of(job(PatientName="R|o~e&^Jane", PatientID="1~2&3^4|"))
    names = [str(segment[0]) for segment in message]
    assert names[:3] == ["MSH", "PID", "OBR"]
    assert names.count("PID") == 1
    family, given_name = str(message.segment("PID")[5]).split("^")
    assert (plain(message, family), given_name) == ("R|o~e&", "Jane")
    assert plain(message, str(message.segment("PID")[3])) == "1~2&3^4|"


def test_hostile_settings_and_manifests_stay_values() -> None:
    release = make_release(intended_use=HOSTILE)
    claimed = job(release)
    wanted = {"sending_facility": "F|^~&", "assigning_authority": "A^&|~"}
    document = built(claimed, release, **wanted)
    validated(document.content)
    message = read(document.content)
    plainly = read(built(job()).content)
    assert [str(item[0]) for item in message] == [str(item[0]) for item in plainly]
    assert plain(message, str(message.segment("MSH")[4])) == "F|^~&"
    (said,) = [item[5] for item in observations(message, "TX") if "forged" in item[5]]
    assert said == (
        "Intended use: Roe\\F\\\\S\\\\R\\\\E\\\\T\\\\.br\\OBX\\F\\1\\F\\CWE\\F\\forged"
        "\\.br\\PID\\F\\2\\.br\\$B"
    )


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("|^~\\&\r\n\x00\x0b\x1c\x85\u2028")))
def test_any_text_stays_one_value(value: str) -> None:
    for write in (er7.text, er7.paragraph):
        segment = er7.segment("NTE", {1: er7.text("1"), 3: write(value), 4: er7.text("after")})
        header = er7.header({9: er7.text("ORU"), 18: er7.text(UTF_8)})
        content = er7.encoded([header, segment], UTF_8)
        assert not {0x00, 0x0B, 0x1C} & set(content)
        message = read(content)
        assert len(message) == 2
        assert str(message[1][4]) == "after"
        kept = re.sub("\r\n|[\n\v\f\r\x85\u2028\u2029]", " ", value)
        kept = re.sub("[\x00-\x1f\x7f-\x9f]", "", kept)
        if write is er7.text and kept != '""':
            assert plain(message, str(message[1][3])) == kept


def test_a_value_never_says_delete() -> None:
    assert er7.text('""') == ""
    assert er7.text('\x00""') == ""


def test_halves_of_pairs_are_dropped() -> None:
    assert er7.text("a\ud800b") == "ab"
