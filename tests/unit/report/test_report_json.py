from __future__ import annotations

import dataclasses
import json
import pickle

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from hilum.domain import ImageReason, ReadingState
from hilum.errors import NotAnalysed, Refused
from hilum.report import REPORTS, build_documents, json_schema, sr_text
from testing.phantoms.phantom import make_study
from tests.support.reports.read_back import items
from tests.support.reports.reporting import template_of
from tests.support.reports.results import (
    CONTEXT,
    instance_of,
    lateral_of,
    make_release,
    parse,
    reading_of,
    report_job,
    report_of,
    results_of,
    study_job,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydicom")
PLATT = {"method": "platt", "a": 1.2, "b": -0.1}
VALIDATOR = Draft202012Validator(json_schema(), format_checker=FormatChecker())


def images(views=("PA", "LATERAL"), **overrides):
    return make_study(5, views=views, rows=16, columns=16, overrides=overrides)


def content_of(job, release):
    (document,) = build_documents(job, release, CONTEXT, ("json",))
    return json.loads(document.content)


def test_the_schema_itself_is_valid():
    Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("aggregation", ["max", "mean", "first_frontal"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"is_trained": False},
        {"calibration": PLATT},
        {"activation": "softmax"},
        {"activation": "none"},
        {"operating_points": {"measured_on": "2000 adults", "criterion": "Youden's J"}},
    ],
    ids=str,
)
def test_every_kind_of_result_is_valid(changes, aggregation):
    release = make_release(aggregation=aggregation, **changes)
    content = content_of(report_of(images(), release, [True, False]), release)
    assert not [error.message for error in VALIDATOR.iter_errors(content)]
    assert len(content["findings"]) == 5


def not_analysed(release):
    instances = [instance_of(dataset, number) for number, dataset in enumerate(images(), 1)]
    readings = [
        reading_of(
            instances[0],
            release,
            state=ReadingState.NOT_ANALYSED,
            logits=None,
            reason=ImageReason.CONSTANT_IMAGE.value,
        )
    ]
    (result,) = results_of(
        study_job(instances, [*readings, lateral_of(instances[1], release)]), release
    )
    return report_job(instances, result)


def test_a_study_without_a_readable_header_has_json_alone():
    release = make_release()
    job = not_analysed(release)
    unreadable = tuple(
        dataclasses.replace(item, header=b"\x40\x00\x75\x02OB\x02\x00\x01\x20")
        for item in job.instances
    )
    bare = dataclasses.replace(job, instances=unreadable)
    documents = build_documents(bare, release, CONTEXT, ("sr", "json"))
    assert [document.kind for document in documents] == ["json"]


def test_a_result_that_was_not_analysed_has_json():
    release = make_release()
    documents = build_documents(not_analysed(release), release, CONTEXT, ("json",))
    content = json.loads(documents[0].content)
    assert not list(VALIDATOR.iter_errors(content))
    assert (content["outcome"], content["reason"], content["structured_report"]) == (
        "not_analysed",
        "no_analysed_image",
        None,
    )
    assert content["source_images"][0]["reason_text"] == "All pixels have one value."
    assert content["study"]["patient_id"] == "PHANTOM-00000005"


def test_two_patients_in_one_study_are_said_in_words_and_two_orders_are_a_caveat():
    release, (first, second) = make_release(), images(("PA", "AP"))
    second.AccessionNumber = "ANOTHER"
    content = content_of(report_of([first, second], release), release)
    assert (content["outcome"], content["caveats"][-1][:46]) == (
        "analysed",
        "The images name different Accession Numbers; t",
    )
    second.PatientID = "ANOTHER"
    job = report_of([first, second], release)
    content = content_of(job, release)
    assert not list(VALIDATOR.iter_errors(content))
    assert (content["outcome"], content["reason"], content["findings"]) == (
        "not_analysed",
        "patient_conflict",
        [],
    )
    assert "correct the wrong Patient ID" in content["reason_text"]
    assert "ANOTHER" not in json.dumps(content)
    templated, built = (
        build_documents(job, release, CONTEXT, ("sr",), template=item)[0]
        for item in (template_of(release), None)
    )
    assert templated == built
    assert "correct the wrong Patient ID and send" in sr_text(built.content).replace(
        "\n   │    ", " "
    )


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda content: content.update(schema="hilum/result/2.0"), "was expected"),
        (lambda content: content.pop("disclaimer"), "required"),
        (lambda content: content.update(extra=1), "Additional properties"),
        (lambda content: content["findings"][0].update(probability=0.5), "is not of type 'null'"),
        (lambda content: content["release"].update(is_trained=False), "undecided"),
        (
            lambda content: content["source_images"][0].update(is_used=False),
            "is not of type 'string'",
        ),
        (lambda content: content.update(findings=[]), "non-empty|too short"),
        (lambda content: content.update(created_at="yesterday"), "date-time|does not match"),
    ],
)
def test_the_schema_refuses_what_must_not_be(damage, words):
    release = make_release()
    content = content_of(report_of(images(), release), release)
    assert not list(VALIDATOR.iter_errors(content))
    damage(content)
    with pytest.raises(AssertionError, match=words):
        assert not [error.message for error in VALIDATOR.iter_errors(content)]


def test_the_numbers_are_those_of_the_result():
    release = make_release(calibration=PLATT)
    job = report_of(images(), release)
    content = content_of(job, release)
    said = [
        (item["key"], item["logit"], item["score"], item["probability"], item["decision"])
        for item in content["findings"]
    ]
    assert said == [
        (item.key, item.logit, item.score, item.probability, item.decision.value)
        for item in job.result.findings
    ]
    assert (
        content["source_images"][0]["scores"]["effusion"]
        == job.result.source_images[0].scores["effusion"]
    )
    assert "masked" not in content["source_images"][0]["scores"]


def test_identity_is_decoded_and_whole():
    release = make_release()
    job = report_of(
        images(("PA",), AccessionNumber="A" * 20, PatientID="Ä-1", StudyDate="unknown"), release
    )
    study = content_of(job, release)["study"]
    assert (study["accession_number"], study["patient_id"], study["study_date"]) == (
        "A" * 20,
        "Ä-1",
        None,
    )
    assert study["study_instance_uid"] == job.result.study_instance_uid


@pytest.mark.parametrize(
    ("aggregation", "said"),
    [
        (
            "first_frontal",
            (
                "2 of 3 analysed images are not in the findings (first_frontal): they rest on the"
                " others alone."
            ),
        ),
        ("max", "Intended use: Research on chest radiographs."),
        ("mean", "Intended use: Research on chest radiographs."),
    ],
)
def test_analysed_images_on_which_no_finding_rests_are_a_caveat(aggregation, said):
    release = make_release(aggregation=aggregation)
    assert (
        content_of(report_of(images(("PA", "AP", "LATERAL")), release), release)["caveats"][-1]
        == said
    )


def identities(job, release):
    """Patient ID and Accession Number of the report, and of JSON."""
    report, content = build_documents(job, release, CONTEXT, ("sr", "json"))
    said, study = parse(report.content), json.loads(content.content)["study"]
    return (said.PatientID, said.AccessionNumber), (study["patient_id"], study["accession_number"])


def test_patient_and_study_are_those_of_the_first_image_that_names_a_patient():
    release, (first, second) = make_release(), images(("PA", "AP"))
    first.PatientID, first.AccessionNumber = " ", "OF-NOBODY"
    job = report_of([first, second], release)
    assert identities(job, release) == (("PHANTOM-00000005", "A00000005"),) * 2
    report = parse(build_documents(job, release, CONTEXT, ("sr",))[0].content)
    shown = [
        item.ReferencedSOPSequence[0].ReferencedSOPInstanceUID
        for item in items(report, "260753009")
    ]
    assert sorted(shown) == sorted([first.SOPInstanceUID, second.SOPInstanceUID]), "each once"
    second.PatientID = ""
    assert identities(report_of([first, second], release), release)[0][1] == "OF-NOBODY", (
        "of the first where none does"
    )


@pytest.mark.parametrize("change", ["damaged", "rejected"])
def test_report_and_json_of_a_study_without_findings_name_one_patient(change):
    release, (first, second) = make_release(), images()
    first.PatientID = "ANOTHER"
    instances = [instance_of(first, 1), instance_of(second, 2)]
    if change == "rejected":
        instances[0] = dataclasses.replace(instances[0], removal_reason="rejected_by_hand")
    else:
        instances[0] = dataclasses.replace(
            instances[0],
            header=instances[0].header.replace(b"A00000005", b"A0000\x015 ".ljust(9)[:9]),
        )
    (result,) = results_of(
        study_job(instances, [lateral_of(item, release) for item in instances]), release
    )
    assert (
        identities(report_job(instances, result), release)
        == (("PHANTOM-00000005", "A00000005"),) * 2
    )


def test_several_values_are_joined_as_dicom_writes_them():
    release = make_release()
    study = content_of(report_of(images(("PA",), AccessionNumber=["A1", "A2"]), release), release)[
        "study"
    ]
    assert study["accession_number"] == "A1\\A2"


def test_an_untrained_release_says_so():
    release = make_release(is_trained=False)
    content = content_of(report_of(images(), release), release)
    assert content["release"]["is_trained"] is False
    assert {finding["decision"] for finding in content["findings"]} == {"undecided"}
    assert any(sentence.startswith("Untrained") for sentence in content["caveats"])


def test_a_revision_names_what_it_supersedes():
    release = make_release()
    first = report_of(images(("PA",)), release)
    (before,) = build_documents(first, release, CONTEXT, ("json",))
    job = report_job(first.instances, first.result, {"json": before})
    assert content_of(job, release)["supersedes"] == json.loads(before.content)["result_uid"]
    erased = dataclasses.replace(
        job, predecessors={"json": dataclasses.replace(before, content=b"")}
    )
    assert content_of(erased, release)["supersedes"] is None


def test_an_image_whose_header_cannot_be_read_has_json_without_identity():
    release = make_release()
    job = not_analysed(release)
    broken = tuple(
        instance_of(dataset, n, header=b"\x40\x00\x75\x02OB\x02\x00\x01\x20")
        for n, dataset in enumerate(images(), 1)
    )
    content = content_of(report_job(broken, job.result), release)
    assert not list(VALIDATOR.iter_errors(content))
    assert content["study"]["patient_id"] is None


@pytest.mark.parametrize("kind", list(REPORTS))
def test_built_twice_a_document_is_equal_byte_for_byte(kind):
    release = make_release()
    job = report_of(images(), release)
    assert build_documents(job, release, CONTEXT, (kind,)) == build_documents(
        job, release, CONTEXT, (kind,)
    )


def test_a_release_that_is_gone_is_a_reason():
    release = make_release()
    with pytest.raises(NotAnalysed, match="release_not_available"):
        build_documents(report_of(images(), release), None, CONTEXT)


def test_an_image_that_has_left_the_ledger_is_a_reason():
    release = make_release()
    job = report_of(images(), release)
    with pytest.raises(NotAnalysed, match="instance_missing: 1 of 2"):
        build_documents(report_job(job.instances[:1], job.result), release, CONTEXT)


def test_jobs_and_errors_travel_to_a_process_pool_and_back():
    release = make_release()
    job, travelled = (
        report_of(images(), release),
        pickle.loads(pickle.dumps(report_of(images(), release))),
    )
    assert build_documents(
        travelled, pickle.loads(pickle.dumps(release)), CONTEXT
    ) == build_documents(job, release, CONTEXT)
    error = pickle.loads(pickle.dumps(NotAnalysed(ImageReason.CORRUPT_HEADER, "why")))
    assert (error.reason, error.detail, str(error)) == (
        ImageReason.CORRUPT_HEADER,
        "why",
        "corrupt_header: why",
    )
    refused = pickle.loads(pickle.dumps(Refused("file_exists", "why")))
    assert (refused.reason, refused.detail) == ("file_exists", "why")
