"""The FHIR Bundle of a result: what each resource says, and by what it is known again."""

from __future__ import annotations

import dataclasses
import json

import pytest

from hilum.domain import ReadingState
from hilum.report import build_documents
from testing.fhir_server import FhirStore, resources_of
from tests.support.fhir.bundles import (
    CASES,
    HOSTILE,
    Bundle,
    analysed,
    built,
    bundle_of,
    calibrated,
    images,
    not_analysed,
    of_kind,
    one,
    revised,
)
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

every_case = pytest.mark.parametrize("case", CASES)


def kinds_in(bundle: Bundle) -> list[str]:
    return [item["resourceType"] for item in resources_of(bundle)]


def uid(resource: dict[str, object]) -> object:
    (first, *_) = resource["identifier"]  # type: ignore[misc]
    return first["value"]


def test_a_result_is_a_device_a_study_observations_a_report_and_its_provenance() -> None:
    found = kinds_in(analysed())

    assert found == [
        "Device",
        "ImagingStudy",
        *["Observation"] * 5,
        "DiagnosticReport",
        "Provenance",
    ]


@every_case
def test_a_server_that_has_the_bundle_creates_nothing_again(case: str) -> None:
    bundle = CASES[case]()
    store = FhirStore()

    first = store.transact(bundle)
    held = dict(store.resources)
    again = store.transact(bundle)

    assert {item["response"]["status"] for item in first["entry"]} == {"201 Created"}
    assert {item["response"]["status"] for item in again["entry"]} == {"200 OK"}
    assert store.resources == held


@every_case
def test_all_is_preliminary_and_has_no_person_as_author(case: str) -> None:
    bundle = CASES[case]()

    stated = [*of_kind(bundle, "Observation"), one(bundle, "DiagnosticReport")]
    assert {item["status"] for item in stated} == {"preliminary"}
    assert not any("performer" in item or "resultsInterpreter" in item for item in stated)
    assert of_kind(bundle, "Patient") == []


@every_case
def test_the_conclusion_begins_with_the_disclaimer(case: str) -> None:
    report = one(CASES[case](), "DiagnosticReport")

    assert report["conclusion"].startswith(CONTEXT.disclaimer)


def test_the_same_result_gives_the_same_bytes() -> None:
    job = report_of(images(), make_release())

    assert built(job).content == built(job).content


def test_a_score_is_called_a_score_and_a_probability_is_in_percent() -> None:
    (score,) = of_kind(analysed(), "Observation")[0]["component"]
    (certainty,) = of_kind(calibrated(), "Observation")[0]["component"]

    assert score["code"]["coding"][0]["code"] == "246262008"
    assert score["valueQuantity"]["code"] == "{uncalibrated}"
    assert 0 < score["valueQuantity"]["value"] < 1
    assert certainty["code"]["coding"][0]["code"] == "111012"
    assert certainty["valueQuantity"]["code"] == "%"
    assert 1 < certainty["valueQuantity"]["value"] < 100


def test_a_decision_is_the_code_that_the_structured_report_has() -> None:
    found = {
        item["code"]["text"]: item["valueCodeableConcept"]["coding"][0]["code"]
        for item in of_kind(analysed(), "Observation")
    }

    assert found == {
        "Pleural effusion": "52101004",
        "Pneumothorax": "272519000",
        "Infiltration": "52101004",
        "Pleural thickening": "52101004",
        "Nodule": "373068000",
    }


def test_a_concept_without_a_verified_code_is_text() -> None:
    (found,) = [
        item["code"]
        for item in of_kind(analysed(), "Observation")
        if item["code"]["text"] == "Pleural thickening"
    ]

    assert found == {"text": "Pleural thickening"}


def test_untrained_weights_decide_nothing() -> None:
    bundle = CASES["untrained"]()

    codes = [
        item["valueCodeableConcept"]["coding"][0]["code"] for item in of_kind(bundle, "Observation")
    ]
    assert set(codes) == {"373068000"}
    assert "Untrained: " in one(bundle, "DiagnosticReport")["conclusion"]


def test_a_study_that_was_not_analysed_has_a_reason_and_no_observation() -> None:
    bundle = not_analysed()

    report = one(bundle, "DiagnosticReport")
    assert of_kind(bundle, "Observation") == []
    assert "result" not in report
    assert report["conclusionCode"][0]["coding"][0]["code"] == "111245"
    assert "Not analysed (unsupported_transfer_syntax): " in report["conclusion"]
    assert len(one(bundle, "Provenance")["entity"]) == 1


def test_a_study_without_a_header_that_can_be_read_has_no_bundle() -> None:
    release = make_release()
    instance = instance_of(images()[0], header=b"\x40\x00\x75\x02OB\x02\x00\x01\x20")
    reading = reading_of(
        instance, release, state=ReadingState.NOT_ANALYSED, logits=None, reason="corrupt_header"
    )
    (result,) = results_of(study_job([instance], [reading]), release)

    assert build_documents(report_job([instance], result), release, CONTEXT, ("fhir",)) == []


def test_a_patient_is_named_by_number_and_by_its_issuer() -> None:
    named = one(
        analysed(PatientID=" 0042 ", IssuerOfPatientID="Clinic A", PatientName="Miller^Ann"),
        "DiagnosticReport",
    )["subject"]

    assert named == {
        "type": "Patient",
        "identifier": {"value": "0042", "assigner": {"display": "Clinic A"}},
    }


@pytest.mark.parametrize(
    ("issuer", "system"), [("", "urn:oid:1.2.3"), ("Clinic A", None)], ids=["none", "an issuer"]
)
def test_the_namespace_of_the_settings_is_for_numbers_without_an_issuer(
    issuer: str, system: str | None
) -> None:
    context = dataclasses.replace(CONTEXT, patient_id_system="urn:oid:1.2.3")
    job = report_of(images(IssuerOfPatientID=issuer), make_release())

    subject = one(bundle_of(built(job, context=context)), "ImagingStudy")["subject"]

    assert subject["identifier"].get("system") == system


def test_no_name_of_a_patient_is_sent() -> None:
    assert "Miller" not in json.dumps(analysed(PatientName="Miller^Ann"))


def test_a_study_without_a_patient_id_says_so() -> None:
    subject = one(CASES["no patient, order or date"](), "ImagingStudy")["subject"]

    assert subject == {"type": "Patient", "display": "The images name no Patient ID."}


@pytest.mark.parametrize(
    ("time", "zone", "moment"),
    [
        ("093005.5", "+0530", "2026-02-03T09:30:05+05:30"),
        ("09", "-0100", "2026-02-03T09:00:00-01:00"),
        ("093005", "", "2026-02-03"),
        ("", "+0530", "2026-02-03"),
    ],
)
def test_a_time_is_given_with_its_zone_or_not_at_all(time: str, zone: str, moment: str) -> None:
    bundle = analysed(StudyDate="20260203", StudyTime=time, TimezoneOffsetFromUTC=zone)

    assert one(bundle, "ImagingStudy")["started"] == moment
    assert one(bundle, "DiagnosticReport")["effectiveDateTime"] == moment


def test_a_hostile_number_changes_no_condition() -> None:
    bundle = CASES["issuer, zone and a hostile number"]()

    subject = one(bundle, "DiagnosticReport")["subject"]
    assert subject["identifier"]["value"] == HOSTILE
    for entry in bundle["entry"]:
        _, _, value = entry["request"]["ifNoneExist"].partition("=urn:dicom:uid|urn:oid:")
        assert value.replace(".", "").isdigit()


def test_a_later_result_is_a_new_report_that_names_the_one_it_replaces() -> None:
    before, after = revised()

    earlier = uid(one(before, "DiagnosticReport"))
    report = one(after, "DiagnosticReport")
    (extension,) = report["extension"]
    (revision,) = [
        item for item in one(after, "Provenance")["entity"] if item["role"] == "revision"
    ]
    assert uid(report) != earlier
    assert extension["valueReference"]["identifier"]["value"] == earlier
    assert revision["what"]["identifier"]["value"] == earlier
    assert "extension" not in one(before, "DiagnosticReport")
    assert uid(one(after, "ImagingStudy")) == uid(one(before, "ImagingStudy"))
    assert uid(one(after, "Device")) == uid(one(before, "Device"))


def test_another_release_is_another_device_with_a_report_of_its_own() -> None:
    other = make_release(version="3", weights_sha256="cd" * 32)
    store = FhirStore()

    store.transact(analysed())
    store.transact(bundle_of(built(report_of(images(), other), other)))

    assert len(store.of("Device")) == 2
    assert len(store.of("DiagnosticReport")) == 2
    assert len(store.of("Observation")) == 10
    assert len(store.of("ImagingStudy")) == 1


def test_the_device_says_which_weights_were_used() -> None:
    device = one(analysed(), "Device")

    assert [item["value"] for item in device["version"]] == ["2", "ab" * 32]


def test_the_provenance_names_the_images_that_were_used() -> None:
    release = make_release()
    both = images(("PA", "LATERAL"))
    job = report_of(both, release, [True, False])

    found = one(bundle_of(built(job, release)), "Provenance")["entity"]

    assert [item["what"]["identifier"]["value"] for item in found] == [
        f"urn:oid:{both[0].SOPInstanceUID}"
    ]


def test_each_reference_leads_to_an_entry() -> None:
    bundle = analysed()
    urls = [entry["fullUrl"] for entry in bundle["entry"]]

    text = json.dumps([entry["resource"] for entry in bundle["entry"]])

    assert len(set(urls)) == len(urls)
    assert text.count('"reference"') == sum(text.count(url) for url in urls)


def test_a_report_is_known_by_the_identity_that_the_json_of_its_result_has() -> None:
    job = report_of(images(), make_release())

    report = one(bundle_of(built(job)), "DiagnosticReport")

    assert uid(report) == f"urn:oid:{job.result.identifiers['json']}"
