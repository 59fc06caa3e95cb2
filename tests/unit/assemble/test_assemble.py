from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hilum.assemble import Close, WaitingStudy, assemble
from hilum.domain import (
    SR_KINDS,
    Code,
    Decision,
    ImageReason,
    Instance,
    Label,
    Outcome,
    Reading,
    ReadingState,
    ServerReason,
)
from hilum.receive.headers.patient import identity_of
from tests.support.ledger.storing import element
from tests.support.reports.results import (
    CREATED_AT,
    NAMESPACE,
    lateral_of,
    make_release,
    reading_of,
    results_of,
    study_job,
)

RELEASE = make_release()


def instance(number: int, **changes) -> Instance:
    plain = Instance(
        sop_instance_uid=f"1.2.{number}",
        sop_class_uid="1.2.840.10008.5.1.4.1.1.1.1",
        study_instance_uid="1.2",
        series_instance_uid="1.3",
        transfer_syntax_uid="1.2.840.10008.1.2.1",
        path=f"{number}.dcm",
        size_bytes=1,
        digest=f"d{number}",
        pixel_digest=f"p{number}",
        received_at=CREATED_AT - 20,
        calling_ae_title="MOD1",
        called_ae_title="HILUM",
        id=number,
    )
    return dataclasses.replace(plain, **changes)


PA, SIDE = instance(1), instance(2)


def failed(
    item: Instance, reason: ServerReason, state: ReadingState = ReadingState.NOT_ANALYSED
) -> Reading:
    return reading_of(item, RELEASE, state=state, logits=None, reason=reason.value)


def one(job, *releases, **kwargs):
    (result,) = results_of(job, *(releases or (RELEASE,)), **kwargs)
    return result


def test_nothing_closes_while_the_quiet_period_runs():
    job = study_job([PA], [reading_of(PA, RELEASE)])
    decided = assemble(job, {RELEASE.id: RELEASE}, NAMESPACE, CREATED_AT - 0.5, identity_of)
    assert decided == WaitingStudy(CREATED_AT, "the quiet period runs")


@pytest.mark.parametrize("state", [ReadingState.DUE, ReadingState.LEASED])
def test_nothing_closes_while_a_reading_is_open(state):
    job = study_job(
        [PA, SIDE], [reading_of(PA, RELEASE), reading_of(SIDE, RELEASE, state=state, logits=None)]
    )
    decided = assemble(job, {RELEASE.id: RELEASE}, NAMESPACE, CREATED_AT, identity_of)
    assert isinstance(decided, WaitingStudy)
    assert decided.until is None


def test_a_study_of_one_image():
    result = one(study_job([PA], [reading_of(PA, RELEASE)]))
    assert (result.outcome, result.reason, result.revision, result.supersedes_id) == (
        Outcome.ANALYSED,
        None,
        1,
        None,
    )
    assert {finding.key: finding.decision for finding in result.findings} == {
        "effusion": Decision.PRESENT,
        "pneumothorax": Decision.ABSENT,
        "infiltration": Decision.PRESENT,
        "thickening": Decision.PRESENT,
        "nodule": Decision.UNDECIDED,
    }
    assert result.created_at == CREATED_AT
    assert result.preprocessing_version == "hp1-0123abcd"
    assert set(result.timings) == {
        "decode_seconds",
        "infer_seconds",
        "first_received_at",
        "last_received_at",
        "quiet_until",
    }
    assert result.timings["decode_seconds"] == 0.01
    assert {"sr", "sr_series", "json", *SR_KINDS} <= set(result.identifiers)
    assert all(len(uid) <= 64 and uid.startswith("2.25.") for uid in result.identifiers.values())


def test_a_lateral_view_is_out_of_a_frontal_releases_scope():
    result = one(study_job([PA, SIDE], [reading_of(PA, RELEASE), lateral_of(SIDE, RELEASE)]))
    assert result.outcome is Outcome.ANALYSED
    assert [(image.is_used, image.reason, image.view) for image in result.source_images] == [
        (True, None, "PA"),
        (False, "lateral_not_supported", "LATERAL"),
    ]
    assert result.source_images[1].scores == {}
    assert all(
        finding.source_sop_instance_uids == (PA.sop_instance_uid,) for finding in result.findings
    )


def test_an_image_that_should_have_been_read_makes_the_result_partial():
    result = one(
        study_job([PA, SIDE], [reading_of(PA, RELEASE), failed(SIDE, ImageReason.UNDECODABLE)])
    )
    assert (result.outcome, result.reason) == (Outcome.PARTIAL, "undecodable")


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        ((ImageReason.NOT_CHEST, ImageReason.NOT_CHEST), "not_chest"),
        ((ImageReason.NOT_CHEST, ImageReason.LATERAL_NOT_SUPPORTED), "no_analysed_image"),
    ],
)
def test_no_analysed_image_still_gives_a_result_with_a_reason(reasons, expected):
    readings = [failed(item, reason) for item, reason in zip((PA, SIDE), reasons, strict=True)]
    result = one(study_job([PA, SIDE], readings))
    assert (result.outcome, result.reason, result.findings) == (Outcome.NOT_ANALYSED, expected, ())


def test_an_image_without_a_reading_is_named_with_a_reason():
    result = one(study_job([PA, SIDE], [reading_of(PA, RELEASE)]))
    assert result.source_images[1].reason == ServerReason.RELEASE_NOT_AVAILABLE.value
    assert result.outcome is Outcome.PARTIAL


def test_a_failed_reading_has_the_ledgers_reason():
    readings = [
        reading_of(PA, RELEASE),
        failed(SIDE, ServerReason.WORKER_CRASHED, ReadingState.FAILED),
    ]
    result = one(study_job([PA, SIDE], readings))
    assert result.source_images[1].reason == "worker_crashed"


def test_untrained_weights_decide_nothing():
    untrained = make_release(
        is_trained=False, calibration={"method": "temperature", "temperature": 1.0}
    )
    result = one(study_job([PA], [reading_of(PA, untrained)]), untrained)
    assert {finding.decision for finding in result.findings} == {Decision.UNDECIDED}
    assert {finding.probability for finding in result.findings} == {None}
    assert (result.is_trained, result.is_calibrated) == (False, False)


def test_a_calibrated_release_has_probabilities():
    calibrated = make_release(calibration={"method": "temperature", "temperature": 2.0})
    result = one(study_job([PA], [reading_of(PA, calibrated)]), calibrated)
    assert result.is_calibrated
    assert result.findings[0].probability == pytest.approx(0.5557, abs=1e-4)
    assert result.findings[0].score == pytest.approx(0.60997, abs=1e-4)


def test_the_same_study_twice_gives_no_second_result():
    job = study_job([PA], [reading_of(PA, RELEASE)])
    again = study_job([PA], job.readings, [dataclasses.replace(one(job), id=7)])
    assert assemble(
        again, {RELEASE.id: RELEASE}, NAMESPACE, CREATED_AT + 100, identity_of
    ) == Close(())


def test_a_late_image_supersedes_in_the_same_series():
    first = dataclasses.replace(one(study_job([PA], [reading_of(PA, RELEASE)])), id=7)
    job = study_job(
        [PA, SIDE], [reading_of(PA, RELEASE), reading_of(SIDE, RELEASE, view="LATERAL")], [first]
    )
    second = one(job)
    assert (second.revision, second.supersedes_id) == (2, 7)
    assert second.identifiers["sr_series"] == first.identifiers["sr_series"]
    assert second.identifiers["sr"] != first.identifiers["sr"]


@pytest.mark.parametrize(
    "change",
    [
        {"header_revision": 2},
        {"pixel_digest": "other"},
    ],
)
def test_another_header_or_other_pixels_supersede(change):
    first = one(study_job([PA], [reading_of(PA, RELEASE)]))
    changed = dataclasses.replace(PA, **change)
    assert one(study_job([changed], [reading_of(changed, RELEASE)], [first])).revision == 2


@pytest.mark.parametrize(
    "change",
    [
        {
            "labels": (
                Label(
                    "effusion", "Effusion", Code("60046008", "SCT", "Pleural effusion"), "A", 0.7
                ),
                *RELEASE.labels[1:],
            )
        },
        {"aggregation": "mean"},
        {"calibration": {"method": "temperature", "temperature": 2.0}},
        {"is_trained": False},
        {"weights_sha256": "cd" * 32},
    ],
)
def test_other_rules_under_the_same_name_supersede(change):
    first = one(study_job([PA], [reading_of(PA, RELEASE)]))
    changed = dataclasses.replace(RELEASE, **change)
    assert one(study_job([PA], [reading_of(PA, RELEASE)], [first]), changed).revision == 2


def test_a_new_doubt_supersedes_and_without_doubts_the_digest_is_what_it_was():
    images = [instance(1)]
    (plain,) = results_of(study_job(images, [reading_of(images[0], RELEASE)]), RELEASE)
    assert plain.source_digest == "8e98067b099eaca7493deb246f8728f7"
    (doubted,) = results_of(
        study_job(images, [reading_of(images[0], RELEASE, detail="few_levels")], [plain]), RELEASE
    )
    assert (doubted.revision, doubted.source_images[0].flags) == (2, ("few_levels",))
    assert (
        results_of(
            study_job(images, [reading_of(images[0], RELEASE, detail="few_levels")], [doubted]),
            RELEASE,
        )
        == ()
    )


def test_a_rejected_image_is_not_in_doubt():
    images = [instance(1, removal_reason="rejected_for_quality_reasons"), instance(2)]
    readings = [reading_of(item, RELEASE, detail="few_levels") for item in images]
    (result,) = results_of(study_job(images, readings), RELEASE)
    assert [image.flags for image in result.source_images] == [(), ("few_levels",)]


def test_a_study_that_returns_to_what_was_said_before_says_it_anew():
    """An operating point is changed, and changed back: the PACS holds the decisions between."""
    changed = dataclasses.replace(RELEASE, aggregation="mean")
    seen, current, spent = [], [], {}
    for number, release in enumerate((RELEASE, changed, RELEASE, changed, RELEASE), 1):
        job = dataclasses.replace(
            study_job([PA], [reading_of(PA, RELEASE)], current), superseded_digests=spent
        )
        result = dataclasses.replace(one(job, release), id=number)
        again = dataclasses.replace(job, current_results=(result,), superseded_digests=spent)
        assert assemble(
            again, {RELEASE.id: release}, NAMESPACE, CREATED_AT + 100, identity_of
        ) == Close(()), "it is said"
        assert (result.revision, result.supersedes_id) == (number, number - 1 or None)
        seen.append(result)
        current, spent = [result], {RELEASE.id: frozenset(item.source_digest for item in seen[:-1])}
    assert (
        len({item.source_digest for item in seen})
        == len({item.identifiers["sr"] for item in seen})
        == 5
    )
    assert len({item.identifiers["sr_series"] for item in seen}) == 1


def test_a_reading_that_succeeds_after_a_requeue_supersedes():
    before = one(
        study_job(
            [PA, SIDE],
            [
                reading_of(PA, RELEASE),
                failed(SIDE, ServerReason.ATTEMPTS_EXHAUSTED, ReadingState.FAILED),
            ],
        )
    )
    after = one(
        study_job([PA, SIDE], [reading_of(PA, RELEASE), reading_of(SIDE, RELEASE)], [before])
    )
    assert (before.outcome, after.outcome, after.revision) == (Outcome.PARTIAL, Outcome.ANALYSED, 2)


def test_each_release_has_its_own_result_and_revision():
    other = make_release(name="vit")
    first = one(study_job([PA], [reading_of(PA, RELEASE)]))
    results = results_of(
        study_job([PA], [reading_of(PA, RELEASE), reading_of(PA, other)], [first]), RELEASE, other
    )
    assert [(result.release, result.revision) for result in results] == [(other.id, 1)]
    assert results[0].identifiers["sr_series"] != first.identifiers["sr_series"]


def test_a_release_that_is_no_longer_configured_ends_honestly_or_leaves_its_result_alone():
    job = study_job([PA], [reading_of(PA, RELEASE)])
    gone = assemble(job, {}, NAMESPACE, CREATED_AT, identity_of)
    assert isinstance(gone, Close)
    assert (gone.results[0].outcome, gone.results[0].reason) == (
        Outcome.NOT_ANALYSED,
        "release_not_available",
    )
    kept = study_job([PA, SIDE], [reading_of(PA, RELEASE), reading_of(SIDE, RELEASE)], [one(job)])
    assert assemble(kept, {}, NAMESPACE, CREATED_AT, identity_of) == Close(())


def test_a_study_without_readings_closes_without_results():
    assert assemble(study_job([PA], []), {}, NAMESPACE, CREATED_AT, identity_of) == Close(())


states = st.sampled_from(["PA", "LATERAL", "failed", "missing"])


def of(
    number: int, patient_id: bytes = b"", issuer: bytes = b"", accession: bytes = b""
) -> Instance:
    values = (
        (0x00080050, b"SH", accession),
        (0x00100020, b"LO", patient_id),
        (0x00100021, b"LO", issuer),
    )
    return instance(
        number, header=b"".join(element(tag, vr, value) for tag, vr, value in values if value)
    )


@pytest.mark.parametrize(
    ("others", "is_conflict"),
    [
        ([(b"P1 ",)], False),
        ([(b"",)], False),
        ([(b"P2",)], True),
        ([(b"p1",)], True),
        ([(b"P1", b"NORTH")], False),
        ([(b"P1", b"NORTH"), (b"P1", b"NORTH ")], False),
        ([(b"P1", b"NORTH"), (b"P1", b"SOUTH")], True),
        ([(b"", b"NORTH"), (b"", b"SOUTH")], False),
    ],
)
def test_images_of_several_patients_give_no_finding(others, is_conflict):
    instances = [of(1, b"P1"), *(of(number, *said) for number, said in enumerate(others, 2))]
    result = one(study_job(instances, [reading_of(item, RELEASE) for item in instances]))
    assert (result.reason == ServerReason.PATIENT_CONFLICT.value) is is_conflict
    assert bool(result.findings) is not is_conflict
    assert {
        (image.is_used, image.reason, bool(image.scores)) for image in result.source_images
    } == {(False, "patient_conflict", False) if is_conflict else (True, None, True)}


def test_only_images_with_numbers_are_compared_and_the_others_keep_their_reasons():
    side, note = of(2, b"P2"), dataclasses.replace(of(3, b"P3"), removal_reason="rejected_by_hand")
    readings = [
        reading_of(of(1, b"P1"), RELEASE),
        lateral_of(side, RELEASE),
        reading_of(note, RELEASE),
    ]
    assert one(study_job([of(1, b"P1"), side, note], readings)).outcome is Outcome.ANALYSED
    late = of(4, b"P4")
    result = one(
        study_job([of(1, b"P1"), side, note, late], [*readings, reading_of(late, RELEASE)])
    )
    assert (result.outcome, result.reason, result.preprocessing_version) == (
        Outcome.NOT_ANALYSED,
        "patient_conflict",
        None,
    )
    assert [image.reason for image in result.source_images] == [
        "patient_conflict",
        "lateral_not_supported",
        "rejected",
        "patient_conflict",
    ]


def test_a_result_over_two_patients_from_before_they_were_compared_is_replaced():
    instances = [of(1, b"P1"), of(2, b"P2")]
    readings = [reading_of(item, RELEASE) for item in instances]
    before = one(study_job([instance(1), instance(2)], readings))
    result = one(study_job(instances, readings, [dataclasses.replace(before, id=1)]))
    assert (before.outcome, result.reason, result.revision, result.supersedes_id) == (
        Outcome.ANALYSED,
        "patient_conflict",
        2,
        1,
    )


@pytest.mark.parametrize(
    ("accession", "has_several"), [(b"A2", True), (b"A1 ", False), (b"", False)]
)
def test_images_of_several_orders_are_said_to_be(accession, has_several):
    instances = [of(1, b"P1", accession=b"A1"), of(2, b"P1", accession=accession)]
    result = one(study_job(instances, [reading_of(item, RELEASE) for item in instances]))
    assert (result.outcome, result.has_several_orders) == (Outcome.ANALYSED, has_several)


@given(st.lists(states, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(kinds, random):
    instances = [instance(number) for number in range(1, len(kinds) + 1)]
    readings = [
        failed(item, ImageReason.UNDECODABLE)
        if kind == "failed"
        else reading_of(item, RELEASE, view=kind)
        for item, kind in zip(instances, kinds, strict=True)
        if kind != "missing"
    ]
    results = results_of(study_job(instances, readings), RELEASE)
    shuffled_instances, shuffled_readings = list(instances), list(readings)
    random.shuffle(shuffled_instances)
    random.shuffle(shuffled_readings)
    assert results_of(study_job(shuffled_instances, shuffled_readings), RELEASE) == results


@given(st.lists(states, min_size=1, max_size=6))
def test_every_image_is_used_or_has_a_reason(kinds):
    instances = [instance(number) for number in range(1, len(kinds) + 1)]
    readings = [
        failed(item, ImageReason.UNDECODABLE)
        if kind == "failed"
        else reading_of(item, RELEASE, view=kind)
        for item, kind in zip(instances, kinds, strict=True)
        if kind != "missing"
    ]
    for result in results_of(study_job(instances, readings), RELEASE):
        assert [image.sop_instance_uid for image in result.source_images] == [
            item.sop_instance_uid for item in instances
        ]
        assert all(image.is_used == (image.reason is None) for image in result.source_images)
        assert (
            bool(result.findings)
            == any(image.is_used for image in result.source_images)
            == (result.outcome is not Outcome.NOT_ANALYSED)
        )


SERIES = {
    "sr_series",
    "heatmap_series",
    "sheet_series",
    "pdf_series",
    "text_sr_series",
    "gsps_series",
}


def test_another_epoch_mints_other_uids_in_the_same_series() -> None:
    job = study_job([PA], [reading_of(PA, RELEASE)])
    first, again, restored = (
        assemble(job, {RELEASE.id: RELEASE}, NAMESPACE, CREATED_AT, identity_of, epoch)
        for epoch in ("one", "one", "two")
    )
    assert isinstance(first, Close)
    assert isinstance(restored, Close)
    assert again == first
    former, since = first.results[0].identifiers, restored.results[0].identifiers
    assert {kind for kind in former if former[kind] == since[kind]} == SERIES


def test_a_study_that_comes_again_after_its_rows_have_left_mints_other_uids() -> None:
    job = study_job([PA], [reading_of(PA, RELEASE)])
    later = dataclasses.replace(job.study, first_received_at=job.study.first_received_at + 1.0)
    (former,) = results_of(job, RELEASE)
    (again,) = results_of(dataclasses.replace(job, study=later), RELEASE)

    assert again.source_digest == former.source_digest
    assert {
        kind for kind in former.identifiers if former.identifiers[kind] == again.identifiers[kind]
    } == SERIES
