"""What the guard doubts about an image stands in every document, and names the image."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from jsonschema import Draft202012Validator

from hilum.domain import (
    SR_CLASS_PREFERENCE,
    ImageReason,
    Reading,
    ReadingState,
    ReportJob,
    ServerReason,
)
from hilum.report import build_documents, derive, json_schema, sr_text
from hilum_preprocessing import Flag
from testing.phantoms.phantom import make_study
from tests.support.reports.read_back import items
from tests.support.reports.reporting import sent
from tests.support.reports.results import (
    CONTEXT,
    instance_of,
    lateral_of,
    make_release,
    parse,
    reading_of,
    report_job,
    results_of,
    study_job,
)

RELEASE = make_release()
VALIDATOR = Draft202012Validator(json_schema())


def job_of(*details: str | None) -> ReportJob:
    """A result of an analysed image for each of these details of readings."""
    datasets = make_study(5, views=("PA", "AP", "LATERAL")[: len(details)], rows=16, columns=16)
    instances = [instance_of(dataset, number) for number, dataset in enumerate(datasets, 1)]
    return job_with(
        [
            reading_of(item, RELEASE, detail=detail)
            for item, detail in zip(instances, details, strict=True)
        ],
        instances,
    )


def job_with(readings, instances) -> ReportJob:
    (result,) = results_of(study_job(instances, readings), RELEASE)
    return report_job(instances, result)


def comments_in(document) -> list[str]:
    return [item.TextValue for item in items(parse(document.content), "121106")]


def refused(instance, detail: str | None) -> Reading:
    reason = ImageReason.IMPLAUSIBLE_PIXELS.value
    return reading_of(
        instance,
        RELEASE,
        state=ReadingState.NOT_ANALYSED,
        logits=None,
        reason=reason,
        detail=detail,
    )


@pytest.mark.parametrize("flag", Flag)
def test_every_flag_has_a_sentence_for_a_radiologist(flag):
    said = flag.meaning
    assert re.fullmatch(r"[A-Z][^_`=]{20,150}\.", said), said
    assert [other for other in Flag if other.meaning == said] == [flag]


@pytest.mark.parametrize("flag", Flag)
def test_every_flag_stands_in_every_document(flag):
    job = job_of(flag.value)
    sr, plain = sent(job, RELEASE)
    text = derive(sr, SR_CLASS_PREFERENCE[3], "2.25.5")
    content = json.loads(plain.content)
    VALIDATOR.validate(content)
    sentence = f"In doubt ({flag}): {flag.meaning}"
    assert sentence in comments_in(sr)
    assert sentence in comments_in(text)
    for document in (sr, text):
        assert sentence in " ".join(sr_text(document.content).replace("│", " ").split())
    assert sentence in content["caveats"]
    assert content["source_images"][0]["flags"] == [{"flag": flag.value, "text": flag.meaning}]


def test_an_image_without_flags_is_not_in_doubt():
    sr, plain = sent(job_of(None, None), RELEASE)
    assert not any("doubt" in comment for comment in comments_in(sr))
    assert [image["flags"] for image in json.loads(plain.content)["source_images"]] == [[], []]


def test_of_two_images_the_one_in_doubt_is_named():
    job = job_of(None, "looks_inverted")
    sr, plain = sent(job, RELEASE)
    (said,) = [comment for comment in comments_in(sr) if "looks_inverted" in comment]
    clean, doubted = (image.sop_instance_uid for image in job.result.source_images)
    assert said.endswith(f" Image 2 of 2: view PA, SOP Instance UID {doubted}.")
    assert clean not in said
    flags = {
        image["sop_instance_uid"]: [item["flag"] for item in image["flags"]]
        for image in json.loads(plain.content)["source_images"]
    }
    assert flags == {clean: [], doubted: ["looks_inverted"]}


def test_what_holds_of_all_images_is_said_once():
    (said,) = [
        comment
        for comment in comments_in(sent(job_of("saturated", "saturated"), RELEASE)[0])
        if "saturated" in comment
    ]
    assert said == f"In doubt (saturated): {Flag.SATURATED.meaning} All 2 images."


def test_images_that_were_all_unused_are_counted_and_not_listed():
    datasets = make_study(5, views=("PA", "AP"), rows=16, columns=16)
    instances = [instance_of(dataset, number) for number, dataset in enumerate(datasets, 1)]
    job = job_with([refused(item, "few_levels") for item in instances], instances)
    (said,) = [
        comment for comment in comments_in(sent(job, RELEASE)[0]) if "images not used" in comment
    ]
    assert (
        said
        == f"2 of 2 images not used (implausible_pixels): {ImageReason.IMPLAUSIBLE_PIXELS.meaning}"
    )


def test_each_of_several_flags_has_its_sentence():
    job = job_of("lossy_compressed, view_unknown", "view_unknown, few_levels")
    said = [
        comment for comment in comments_in(sent(job, RELEASE)[0]) if comment.startswith("In doubt")
    ]
    assert [comment.split(":")[0] for comment in said] == [
        "In doubt (lossy_compressed)",
        "In doubt (view_unknown)",
        "In doubt (few_levels)",
    ]


def test_an_unused_image_is_named_with_its_reason():
    datasets = make_study(5, views=("PA", "LATERAL"), rows=16, columns=16)
    instances = [instance_of(dataset, number) for number, dataset in enumerate(datasets, 1)]
    job = job_with(
        [reading_of(instances[0], RELEASE), lateral_of(instances[1], RELEASE)], instances
    )
    (said,) = [comment for comment in comments_in(sent(job, RELEASE)[0]) if "not used" in comment]
    meaning = ImageReason.LATERAL_NOT_SUPPORTED.meaning
    uid = instances[1].sop_instance_uid
    assert (
        said
        == f"1 of 2 images not used (lateral_not_supported): {meaning} Image 2 of 2: view LATERAL,"
        f" SOP Instance UID {uid}."
    )


@pytest.mark.parametrize("others", [0, 1], ids=["nothing analysed", "one analysed"])
def test_an_image_that_the_guard_refused_says_which_flags_it_was(others):
    datasets = make_study(5, views=("PA", "AP")[: others + 1], rows=16, columns=16)
    instances = [instance_of(dataset, number) for number, dataset in enumerate(datasets, 1)]
    readings = [
        *(reading_of(item, RELEASE) for item in instances[1:]),
        refused(instances[0], "few_levels, saturated"),
    ]
    job = job_with(readings, instances)
    sr, plain = sent(job, RELEASE)
    comments = " ".join(comments_in(sr))
    assert f"not used (implausible_pixels): {ImageReason.IMPLAUSIBLE_PIXELS.meaning}" in comments
    assert f"In doubt (few_levels): {Flag.FEW_LEVELS.meaning}" in comments
    assert f"In doubt (saturated): {Flag.SATURATED.meaning}" in comments
    assert (instances[0].sop_instance_uid in comments) == bool(others)
    assert [item["flag"] for item in json.loads(plain.content)["source_images"][0]["flags"]] == [
        "few_levels",
        "saturated",
    ]


@pytest.mark.parametrize(
    ("state", "reason", "detail", "flags"),
    [
        (ReadingState.ANALYSED, None, None, ()),
        (ReadingState.ANALYSED, None, "", ()),
        (ReadingState.ANALYSED, None, "few_levels", ("few_levels",)),
        (
            ReadingState.NOT_ANALYSED,
            ImageReason.IMPLAUSIBLE_PIXELS,
            "few_levels, saturated",
            ("few_levels", "saturated"),
        ),
        (
            ReadingState.NOT_ANALYSED,
            ImageReason.IMPLAUSIBLE_PIXELS,
            "half of the image is black",
            (),
        ),
        (ReadingState.NOT_ANALYSED, ImageReason.UNDECODABLE, "eof", ()),
        (ReadingState.FAILED, ServerReason.ATTEMPTS_EXHAUSTED, "timeout", ()),
        (ReadingState.DUE, None, "timeout", ()),
    ],
)
def test_flags_are_read_where_a_reading_has_them_and_nowhere_else(state, reason, detail, flags):
    (instance,) = [
        instance_of(dataset) for dataset in make_study(5, views=("PA",), rows=16, columns=16)
    ]
    assert reading_of(instance, RELEASE, state=state, reason=reason, detail=detail).flags == flags


def test_a_flag_of_another_version_stands_for_itself():
    sr, plain = sent(job_of("of_a_later_version"), RELEASE)
    assert "In doubt (of_a_later_version): of_a_later_version" in comments_in(sr)
    assert json.loads(plain.content)["source_images"][0]["flags"] == [
        {"flag": "of_a_later_version", "text": "of_a_later_version"}
    ]


def test_a_result_from_before_flags_were_kept_is_reported():
    job = job_of("few_levels")
    images = tuple(dataclasses.replace(image, flags=()) for image in job.result.source_images)
    before = dataclasses.replace(job, result=dataclasses.replace(job.result, source_images=images))
    content = json.loads(build_documents(before, RELEASE, CONTEXT, ("json",))[0].content)
    del content["source_images"][0]["flags"]
    VALIDATOR.validate(content)
