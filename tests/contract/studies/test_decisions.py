"""What a person or a rejection note decides about single images, on SQLite and on a real PostgreSQL, with real files."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hilum.domain import (
    Advance,
    Outcome,
    Priority,
    ReadingState,
    Rejection,
    RemovalReason,
    ServerReason,
    StudyJob,
)
from hilum.receive.indexing.describe import describe
from hilum.store import ledger
from hilum.store.admin.decisions import CannotResolve, Decisions
from hilum.store.archive.archive import Archive
from hilum.store.intake.missing_files import Quarantined
from hilum.store.intake.received import Arrival
from hilum.store.intake.record import RecordOutcome
from hilum.store.schema import tables
from tests.support.ledger.deciding import BOUNDARIES, Site, replace_until_killed
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.storing import data_set

A, B = "1.2.3.1", "1.2.3.2"
OTHER = b"\1\2" * 100


@pytest.fixture
def site(ledger_url: str, tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, ledger_url)
    yield made
    made.close()


def conflicted(site: Site, **content: object) -> int:
    """A study that was reported, and a conflict about its only image; the conflict's number."""
    site.receive(A)
    site.walk()
    assert site.receive(A, **(content or {"pixels": OTHER})) is RecordOutcome.CONFLICT
    return int(site.rows(tables.conflict)[-1].id)


def note(
    *uids: str, study: str = "1.2.3", reason: RemovalReason = RemovalReason.QUALITY
) -> list[Rejection]:
    return [Rejection(uid, study, reason, "1.2.9", "PACS", holds_for_all=True) for uid in uids]


def test_kept_out_the_file_stays_in_quarantine_and_the_image_as_it_was(site: Site) -> None:
    number = conflicted(site)
    before = site.rows(tables.instance), site.files()
    for _ in range(2):
        found = site.decisions.keep(number)
        assert found is not None
        assert (found["state"], found["is_settled"]) == ("kept", True)
    assert (site.rows(tables.instance), site.files()) == before
    assert site.content(found["path"]) == data_set(A, pixels=OTHER)
    assert site.receive(A, pixels=OTHER) is RecordOutcome.DUPLICATE, "a person has decided"
    assert site.files() == before[1]
    assert site.rows(tables.study)[0].state == "closed"


@pytest.mark.parametrize("is_decided", [False, True])
def test_a_file_that_quarantine_has_lost_gives_its_place_to_the_same_bytes_alone(
    site: Site, *, is_decided: bool
) -> None:
    number = conflicted(site)
    if is_decided:
        site.decisions.keep(number)
    (before,) = site.rows(tables.conflict)
    came = dataclasses.replace(
        describe(site.archive.locate(before.path)), path="ab/cd/again.dcm", size_bytes=7
    )
    assert (
        site.ledger.quarantined(
            [
                dataclasses.replace(came, digest="other"),
                dataclasses.replace(came, sop_instance_uid="1.9"),
            ]
        )
        == []
    )
    (found,) = site.ledger.quarantined([came, dataclasses.replace(came, path="ab/cd/later.dcm")])
    assert found == Quarantined(number, before.path, came)
    others = dataclasses.replace(found, path="another/by/now.dcm")
    site.ledger.take_place_in_quarantine([others])
    assert site.rows(tables.conflict) == [before]
    site.ledger.take_place_in_quarantine([found, others])
    assert [row._asdict() for row in site.rows(tables.conflict)] == [
        {**before._asdict(), "path": "quarantine/ab/cd/again.dcm", "size_bytes": 7}
    ]
    arrivals = [
        Arrival(dataclasses.replace(came, path=path), Priority.LIVE, (), 10.0, 60.0)
        for path in (came.path, "ab/cd/later.dcm")
    ]
    assert site.ledger.record(arrivals) == [RecordOutcome.CONFLICT, RecordOutcome.DUPLICATE]
    site.decisions.discard(number)
    assert site.ledger.quarantined([came]) == [], "it stays so"


def test_discarded_the_file_is_gone_and_stays_gone(site: Site) -> None:
    number = conflicted(site)
    (image,) = site.rows(tables.instance)
    for _ in range(2):
        found = site.decisions.discard(number)
        assert found is not None
        assert found["state"] == "discarded"
        assert site.files() == {image.path}
    assert site.receive(A, pixels=OTHER) is RecordOutcome.DUPLICATE
    assert site.files() == {image.path}
    for verb in (site.decisions.keep, site.decisions.replace):
        with pytest.raises(CannotResolve):
            verb(number)


def test_replaced_the_other_bytes_are_read_and_reported_and_the_former_kept(site: Site) -> None:
    number = conflicted(site)
    (former,), (document,) = site.rows(tables.instance), site.rows(tables.document)
    found = site.decisions.replace(number)
    assert found is not None
    assert (found["state"], found["is_settled"]) == ("replaced", True)
    (image,) = site.rows(tables.instance)
    assert (image.id, image.header_revision, image.path) == (
        former.id,
        2,
        found["path"].removeprefix("quarantine/"),
    )
    assert image.digest == found["digest"]
    assert image.pixel_digest != former.pixel_digest
    assert (site.archive.root / image.path).is_file()
    assert site.content(image.path) == data_set(A, pixels=OTHER)
    counterpart = site.rows(tables.conflict)[-1]
    assert (counterpart.state, counterpart.digest, counterpart.path) == (
        "kept",
        former.digest,
        f"quarantine/{former.path}",
    )
    assert site.content(counterpart.path) == data_set(A)
    assert site.files() == {image.path, counterpart.path}
    (reading,) = site.rows(tables.reading)
    assert (reading.state, reading.logits, reading.view, reading.attempts) == ("due", None, None, 0)
    (study,) = site.rows(tables.study)
    assert (study.state, study.open_readings, study.revision) == ("due", 1, 2)
    (job,) = site.walk()
    assert job.predecessors["sr"].sop_instance_uid == document.sop_instance_uid
    assert job.result.revision == 2
    assert [row.is_current for row in site.rows(tables.result)] == [False, True]


def test_replaced_in_a_study_that_a_rule_keeps_from_releases_no_release_reads_it(
    site: Site,
) -> None:
    site.receive(A, not_analysed="no consent for AI")
    assert site.receive(A, pixels=OTHER) is RecordOutcome.CONFLICT
    (before,) = site.rows(tables.reading)

    site.decisions.replace(int(site.rows(tables.conflict)[-1].id))

    (after,) = site.rows(tables.reading)
    assert before.reason == ServerReason.NOT_ANALYSED_BY_RULE
    assert (after.state, after.reason, after.detail) == (before.state, before.reason, before.detail)
    assert site.rows(tables.study)[0].open_readings == 0


def test_replaced_twice_is_replaced_once(site: Site) -> None:
    number = conflicted(site)
    first = site.decisions.replace(number)
    rows, files = site.rows(tables.instance), site.files()
    assert site.decisions.replace(number) == first
    assert (site.rows(tables.instance), site.files()) == (rows, files)
    assert len(site.rows(tables.conflict)) == 2
    with pytest.raises(CannotResolve, match="replaced already"):
        site.decisions.discard(number)


def test_the_former_bytes_can_be_taken_back(site: Site) -> None:
    site.decisions.replace(conflicted(site))
    site.walk()
    back = site.decisions.replace(int(site.rows(tables.conflict)[-1].id))
    assert back is not None
    (image,) = site.rows(tables.instance)
    assert site.content(image.path) == data_set(A)
    assert image.header_revision == 3
    assert [row.state for row in site.rows(tables.conflict)] == ["kept", "replaced"]
    assert site.files() == {image.path, site.rows(tables.conflict)[0].path}
    site.walk()
    assert [row.is_current for row in site.rows(tables.result)] == [False, False, True]


def test_what_was_not_sent_yet_never_will_be(site: Site) -> None:
    site.receive(A)
    site.read()
    site.assemble()
    site.report()
    site.receive(A, pixels=OTHER)
    site.decisions.replace(1)
    site.walk()
    assert [(row.state, row.reason) for row in site.rows(tables.delivery)] == [
        ("cancelled", "superseded"),
        ("delivered", None),
    ]


def test_rules_that_are_taken_back_are_reported_again(site: Site) -> None:
    """The PACS holds what the rules between decided.

    Equal numbers under an earlier digest are still another report.
    """
    first = site.release
    for release in (first, dataclasses.replace(first, aggregation="mean"), first, first):
        site.release = release
        if not site.rows(tables.study):
            site.receive(A)
            site.receive(B)
            site.read(state=ReadingState.NOT_ANALYSED, reason="undecodable")
        assert site.ledger.requeue("analyse") == 2
        site.read(state=ReadingState.NOT_ANALYSED, reason="undecodable")
        site.assemble()
        site.report()
        site.deliver()
    results = site.rows(tables.result)
    assert [(row.revision, row.is_current, row.supersedes_id) for row in results] == [
        (1, False, None),
        (2, False, 1),
        (3, True, 2),
    ]
    assert [row.state for row in site.rows(tables.delivery)] == ["delivered"] * 3
    assert len({row.sop_instance_uid for row in site.rows(tables.document)}) == 3


def test_an_analyser_that_reads_the_former_bytes_is_fenced_out(site: Site) -> None:
    site.receive(A)
    site.receive(A, pixels=OTHER)
    (job,) = site.claim("analyse")
    site.decisions.replace(1)
    assert site.ledger.advance(
        "analyse", [(job.lease, Advance(ReadingState.ANALYSED, {"logits": [9.0]}))]
    ) == [False]
    assert [row.state for row in site.rows(tables.reading)] == ["due"]


def test_a_quiet_period_that_runs_goes_on(site: Site) -> None:
    site.receive(A)
    site.receive(A, pixels=OTHER)
    site.decisions.replace(1)
    site.read()
    assert site.claim("assemble") == []
    site.assemble()
    assert len(site.rows(tables.result)) == 1


def test_a_conflict_of_another_study_moves_the_image_there(site: Site) -> None:
    number = conflicted(site, study="9.9")
    site.decisions.replace(number)
    assert site.rows(tables.instance)[0].study_instance_uid == "9.9"
    jobs = {job.result.study_instance_uid: job for job in site.walk()}
    assert (jobs["1.2.3"].result.outcome, jobs["1.2.3"].result.reason) == (
        Outcome.NOT_ANALYSED,
        "rejected",
    )
    assert jobs["9.9"].result.outcome is Outcome.ANALYSED
    assert [row.state for row in site.rows(tables.study)] == ["closed", "closed"]


def test_what_is_not_there_any_more_is_said(site: Site) -> None:
    number = conflicted(site)
    path = site.archive.root / site.rows(tables.conflict)[0].path
    content = path.read_bytes()
    path.write_bytes(content[:-2] + b"\7\7")
    with pytest.raises(CannotResolve, match="not the one that was put there"):
        site.decisions.replace(number)
    path.unlink()
    with pytest.raises(CannotResolve, match="not in quarantine"):
        site.decisions.replace(number)
    assert site.rows(tables.study)[0].state == "closed"
    for verb in (site.decisions.keep, site.decisions.replace, site.decisions.discard):
        assert verb(99) is None


def test_of_two_decisions_at_once_one_holds(site: Site) -> None:
    number = conflicted(site)
    outcomes: list[str] = []
    start = threading.Barrier(4)

    def decide(verb: str) -> None:
        own = Decisions(site.url, site.archive, site.decisions._describe, site.decisions._sha256_of)
        start.wait()
        try:
            getattr(own, verb)(number)
            outcomes.append(verb)
        except CannotResolve:
            pass
        own.close()

    threads = [
        threading.Thread(target=decide, args=(verb,))
        for verb in ("replace", "discard", "replace", "discard")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    row = site.rows(tables.conflict)[0]
    assert {"replace": "replaced", "discard": "discarded"}[outcomes[0]] == row.state
    assert len(set(outcomes)) == 1
    (image,) = site.rows(tables.instance)
    assert (
        site.content(image.path) == data_set(A, pixels=OTHER)
        if row.state == "replaced"
        else data_set(A)
    )


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_after_kill_9_inside_a_replacement_no_byte_is_lost_and_the_next_settles_it(
    tmp_path: Path, boundary: str
) -> None:
    url = migrated_sqlite(tmp_path)
    site = Site(tmp_path, url)
    number = conflicted(site)
    replace_until_killed(tmp_path, url, number, boundary)
    (image,), (replaced, former) = site.rows(tables.instance), site.rows(tables.conflict)
    assert (replaced.state, former.state, former.is_settled) == ("replaced", "kept", False)
    assert site.content(image.path) == data_set(A, pixels=OTHER)
    assert site.content(former.path) == data_set(A)
    assert len(site.files()) == 2
    assert site.decisions.settle() >= 1
    assert site.decisions.settle() == 0
    assert site.files() == {image.path, former.path}
    assert site.decisions.replace(number) is not None
    assert len(site.rows(tables.conflict)) == 2
    site.clock.now = time.time()  # the child had no clock of ours
    site.walk()
    assert [row.is_current for row in site.rows(tables.result)] == [False, True]
    site.close()


def test_a_file_that_a_crash_left_unindexed_is_deleted_once_it_is_discarded(tmp_path: Path) -> None:
    """The crash came between the conflict's row and the move to quarantine.

    Then somebody decided; then the scan came.
    """
    from hilum.receive.indexing.indexer import index
    from tests.support.server.listening import make_settings

    settings = make_settings(tmp_path)
    site = Site(tmp_path, settings.ledger_url)
    site.receive(A)
    with site.archive.begin() as incoming:
        from hilum.receive.headers import file_meta
        from tests.support.ledger.storing import meta

        incoming.write(file_meta.encode(meta(A)) + data_set(A, pixels=OTHER))
        file = incoming.commit()
    kept = file.read_bytes()
    index([file], settings, site.ledger, site.archive)
    site.decisions.discard(1)
    file.write_bytes(kept)
    index([file], settings, site.ledger, Archive(site.archive.root))
    assert site.files() == {site.rows(tables.instance)[0].path}
    site.close()


def test_a_rejected_image_leaves_the_result_and_the_old_report_is_superseded(site: Site) -> None:
    site.receive(A)
    site.receive(B, pixels=OTHER)
    (first,) = site.walk()
    assert site.ledger.reject(note(B)) == 1
    assert site.ledger.reject(note(B, reason=RemovalReason.PATIENT_SAFETY)) == 0, (
        "the first word stands"
    )
    image = site.rows(tables.instance)[1]
    assert (image.is_removed, image.removal_reason) == (True, "rejected_for_quality_reasons")
    (second,) = site.walk()
    assert {
        item.sop_instance_uid: (item.is_used, item.reason) for item in second.result.source_images
    } == {
        A: (True, None),
        B: (False, "rejected"),
    }
    assert all(B not in finding.source_sop_instance_uids for finding in second.result.findings)
    assert second.result.outcome is Outcome.ANALYSED, (
        "a rejected image takes nothing away from the result"
    )
    assert second.result.source_digest != first.result.source_digest
    assert second.predecessors["sr"].sop_instance_uid == first.result.identifiers["sr"]


@pytest.mark.parametrize("is_corrected", [True, False])
def test_images_of_two_patients_are_reported_once_one_is_corrected_or_rejected(
    site: Site, is_corrected: bool
) -> None:
    site.receive(A)
    site.receive(B, pixels=OTHER, patient_id=b"P2")
    (first,) = site.walk()
    assert (first.result.outcome, first.result.reason, first.result.findings) == (
        Outcome.NOT_ANALYSED,
        "patient_conflict",
        (),
    )
    if is_corrected:
        assert site.receive(B, pixels=OTHER) is RecordOutcome.HEADER_REVISION
    else:
        assert site.ledger.reject(note(B)) == 1
    (second,) = site.walk()
    assert (second.result.outcome, second.result.reason, second.result.revision) == (
        Outcome.ANALYSED,
        None,
        2,
    )
    assert {
        uid for finding in second.result.findings for uid in finding.source_sop_instance_uids
    } == ({A, B} if is_corrected else {A})
    assert second.predecessors["sr"].sop_instance_uid == first.result.identifiers["sr"]
    assert [row.is_current for row in site.rows(tables.result)] == [False, True]
    assert [row.state for row in site.rows(tables.delivery)] == ["delivered"] * 2
    assert site.walk() == [], "it is said"


def test_the_ledger_keeps_that_images_name_several_orders(site: Site) -> None:
    site.receive(A, order=b"A1")
    site.receive(B, pixels=OTHER, order=b"A2")
    assert [job.result.has_several_orders for job in site.walk()] == [True]


def test_a_report_is_taken_back_when_an_image_of_somebody_else_comes(site: Site) -> None:
    site.receive(A)
    (first,) = site.walk()
    site.receive(B, pixels=OTHER, patient_id=b"P2")
    (second,) = site.walk()
    assert (second.result.reason, list(second.delivered_reports)) == ("patient_conflict", ["pacs"])
    assert second.predecessors["sr"].sop_instance_uid == first.result.identifiers["sr"]
    site.ledger.reject(note(B))
    (third,) = site.walk()
    assert [finding.score for finding in third.result.findings] == [
        finding.score for finding in first.result.findings
    ]
    assert len({job.result.identifiers["sr"] for job in (first, second, third)}) == 3, (
        "one UID, one content"
    )


def test_a_note_about_more_images_than_a_transaction_takes(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_REJECTED_AT_ONCE", 2)
    site.receive(A)
    site.receive(B, pixels=OTHER)
    unknown = [f"1.2.99.{number}" for number in range(3)]
    assert site.ledger.reject(note(*unknown[:2], B, unknown[2], A)) == 2
    assert [row.is_removed for row in site.rows(tables.instance)] == [True, True]
    assert sorted(row.sop_instance_uid for row in site.rows(tables.rejection)) == sorted(
        [A, B, *unknown]
    )
    assert site.ledger.reject([]) == 0


def test_nothing_left_is_not_analysed_because_rejected(site: Site) -> None:
    site.receive(A)
    site.read()
    site.assemble()
    site.report()
    site.ledger.reject(note(A))
    (job,) = site.walk()
    assert (job.result.outcome, job.result.reason, job.result.findings) == (
        Outcome.NOT_ANALYSED,
        "rejected",
        (),
    )
    assert [item.sop_instance_uid for item in job.instances] == [A], (
        "the JSON document still names patient and order"
    )
    assert next((row.state, row.reason) for row in site.rows(tables.delivery)) == (
        "cancelled",
        "superseded",
    )


def test_the_images_of_an_earlier_result_give_a_new_one_all_the_same(site: Site) -> None:
    """First {A}, then {A, B}, then B is rejected.

    The sources are those of the first result, which must not be current again.
    """
    site.receive(A)
    site.walk()
    site.receive(B, pixels=OTHER)
    site.walk()
    site.ledger.reject(note(B))
    (job,) = site.walk()
    assert job.result.revision == 3
    assert [row.is_current for row in site.rows(tables.result)] == [False, False, True]
    assert len({row.sop_instance_uid for row in site.rows(tables.document)}) == 3


def test_a_note_that_is_faster_than_its_image(site: Site) -> None:
    assert site.ledger.reject(note(A)) == 0
    assert site.receive(A) is RecordOutcome.NEW
    (image,), (reading,), (study,) = (
        site.rows(tables.instance),
        site.rows(tables.reading),
        site.rows(tables.study),
    )
    assert (image.is_removed, reading.state, reading.reason, study.open_readings) == (
        True,
        "not_analysed",
        "rejected",
        0,
    )
    (job,) = site.walk()
    assert job.result.reason == "rejected"


def test_a_note_about_another_study_says_nothing_about_this_one(site: Site) -> None:
    site.receive(A)
    assert site.ledger.reject(note(A, study="9.9")) == 0
    assert not site.rows(tables.instance)[0].is_removed
    assert site.receive(A, study="9.9") is RecordOutcome.CONFLICT


def test_what_is_being_read_or_waits_ends_as_rejected(site: Site) -> None:
    site.receive(A)
    site.receive(B, pixels=OTHER)
    first, _ = site.claim("analyse")
    assert site.ledger.reject(note(A, B)) == 2
    assert site.ledger.advance(
        "analyse", [(first.lease, Advance(ReadingState.ANALYSED, {"logits": [9.0]}))]
    ) == [False]
    assert [(row.state, row.reason) for row in site.rows(tables.reading)] == [
        ("not_analysed", "rejected")
    ] * 2
    assert site.rows(tables.study)[0].open_readings == 0


def test_a_rejected_image_is_not_read_again(site: Site) -> None:
    site.receive(A)
    site.ledger.reject(note(A))
    site.walk()
    assert site.ledger.requeue("analyse", study_uid="1.2.3") == 0
    assert site.ledger.requeue("analyse", reason="rejected") == 0


def test_a_study_that_is_being_assembled_is_assembled_again(site: Site) -> None:
    site.receive(A)
    site.read()
    site.clock.now += 11
    (job,) = site.claim("assemble")
    assert isinstance(job, StudyJob)
    site.ledger.reject(note(A))
    assert site.ledger.advance("assemble", [(job.lease, Advance(ReadingState.NOT_ANALYSED))]) == [
        False
    ]
    (reported,) = site.walk()
    assert reported.result.reason == "rejected"


def test_a_rejected_lateral_that_no_number_rests_on_gives_no_new_report(site: Site) -> None:
    site.receive(A)
    site.read()
    site.receive(B, pixels=OTHER)
    site.read(state=ReadingState.NOT_ANALYSED, reason="lateral_not_supported", view="LATERAL")
    site.walk()
    site.ledger.reject(note(B))
    assert site.walk() == []
    assert [row.is_current for row in site.rows(tables.result)] == [True]
    assert site.rows(tables.study)[0].state == "closed"


def test_a_result_of_a_release_that_is_gone_is_withdrawn_too(site: Site) -> None:
    site.receive(A)
    site.walk()
    site.is_configured = False
    site.ledger.requeue("assemble")
    site.ledger.reject(note(A))
    (job,) = site.walk()
    assert (job.result.outcome, job.result.reason) == (
        Outcome.NOT_ANALYSED,
        "release_not_available",
    )


def test_a_person_rejects_by_uid(site: Site) -> None:
    site.receive(A)
    site.walk()
    for _ in range(2):
        found = site.decisions.reject(A)
        assert found == {
            "sop_instance_uid": A,
            "study_instance_uid": "1.2.3",
            "removal_reason": "rejected_by_hand",
        }
    assert site.decisions.reject("9.9.9") is None
    assert [job.result.reason for job in site.walk()] == ["rejected"]
    assert site.receive(A) is RecordOutcome.DUPLICATE, "sent once more, it stays rejected"
    assert site.receive(A, patient_id=b"MERGED") is RecordOutcome.HEADER_REVISION
    assert site.rows(tables.instance)[0].is_removed


def test_a_rejected_image_may_be_in_conflict_and_stays_rejected(site: Site) -> None:
    number = conflicted(site)
    site.ledger.reject(note(A))
    site.walk()
    site.decisions.replace(number)
    (image,), (reading,) = site.rows(tables.instance), site.rows(tables.reading)
    assert (image.is_removed, image.header_revision, reading.state) == (True, 2, "analysed")
    assert all(job.result.reason == "rejected" for job in site.walk())


def word_of(sender: str, *uids: str, holds_for_all: bool = False) -> list[Rejection]:
    return [
        dataclasses.replace(item, calling_ae_title=sender, holds_for_all=holds_for_all)
        for item in note(*uids)
    ]


def test_a_note_of_somebody_else_has_no_effect_and_is_counted(site: Site) -> None:
    site.receive(A)
    site.walk()
    assert site.ledger.reject(word_of("ANYBODY", A)) == 0
    assert site.ledger.count_of_others(word_of("ANYBODY", A, "9.9.9")) == 1, (
        "what has not come yet may be its own"
    )
    assert not site.rows(tables.instance)[0].is_removed
    assert site.walk() == [], "the report stands"


def test_the_sender_of_an_image_rejects_it_and_so_does_one_that_the_settings_name(
    site: Site,
) -> None:
    site.receive(A)
    site.receive(B, pixels=OTHER)
    assert site.ledger.reject(word_of("MODALITY", A)) == 1
    assert site.ledger.reject(word_of("PACS", B, holds_for_all=True)) == 1
    assert site.ledger.count_of_others(word_of("PACS", A, B, holds_for_all=True)) == 0


def test_a_note_that_comes_first_holds_for_its_own_sender_alone(site: Site) -> None:
    """Else anybody could take an image out before it comes, or keep its sender from doing so."""
    for sender in ("ANYBODY", "MODALITY"):
        assert site.ledger.reject(word_of(sender, A)) == 0
    site.ledger.reject(word_of("ANYBODY", B))
    site.receive(A)
    site.receive(B, pixels=OTHER)
    assert [row.is_removed for row in site.rows(tables.instance)] == [True, False]


def test_a_note_that_is_sent_again_holds_for_all_once_the_settings_say_so(site: Site) -> None:
    site.ledger.reject(word_of("PACS", A))
    site.ledger.reject(word_of("PACS", A, holds_for_all=True))
    site.receive(A)
    assert site.rows(tables.instance)[0].is_removed
    assert len(site.rows(tables.rejection)) == 1


@pytest.mark.parametrize(
    ("sender", "may_correct"), [("ANYBODY", None), ("ANYBODY", False), ("MODALITY", False)]
)
def test_another_header_of_one_that_may_not_correct_waits_for_a_person(
    site: Site, sender: str, may_correct: bool | None
) -> None:
    site.receive(A)
    site.walk()
    before = site.rows(tables.instance)
    assert (
        site.receive(A, sender=sender, may_correct=may_correct, patient_id=b"SWAPPED")
        is RecordOutcome.HEADER_CONFLICT
    )
    assert site.rows(tables.instance) == before
    assert site.walk() == [], "no second report"
    (held,) = site.rows(tables.conflict)
    assert (held.state, held.kind, held.calling_ae_title) == ("held", "header", sender)
    assert (
        site.receive(A, sender=sender, may_correct=may_correct, patient_id=b"SWAPPED")
        is RecordOutcome.DUPLICATE
    )
    assert site.files() == {before[0].path, held.path}


@pytest.mark.parametrize(("sender", "may_correct"), [("MODALITY", None), ("PACS", True)])
def test_a_correction_of_the_own_sender_or_a_named_one_counts_and_the_image_stays_its_senders(
    site: Site, sender: str, may_correct: bool | None
) -> None:
    site.receive(A)
    site.walk()
    assert (
        site.receive(A, sender=sender, may_correct=may_correct, patient_id=b"MERGED")
        is RecordOutcome.HEADER_REVISION
    )
    (image,) = site.rows(tables.instance)
    assert (image.header_revision, image.calling_ae_title) == (2, "MODALITY")
    assert [job.result.revision for job in site.walk()] == [2]
    assert site.ledger.reject(word_of("MODALITY", A)) == 1


def test_a_person_takes_the_header_of_a_conflict_and_its_first_sender_cannot_take_that_back(
    site: Site,
) -> None:
    site.receive(A)
    site.walk()
    site.receive(A, sender="PACS", patient_id=b"MERGED")
    (held,) = site.rows(tables.conflict)
    site.decisions.replace(held.id)
    (image,) = site.rows(tables.instance)
    assert (image.digest, image.header_revision, image.calling_ae_title) == (
        held.digest,
        2,
        "MODALITY",
    )
    assert site.content(image.path) == data_set(A, patient_id=b"MERGED")
    assert [job.result.revision for job in site.walk()] == [2]
    assert site.receive(A) is RecordOutcome.DUPLICATE, "a person has decided"
    assert site.rows(tables.instance)[0].digest == held.digest
    assert [row.kind for row in site.rows(tables.conflict)] == ["header", "header"]


def test_a_header_that_was_in_use_once_is_no_conflict(site: Site) -> None:
    site.receive(A)
    site.receive(A, patient_id=b"MERGED")
    assert site.receive(A, sender="ROUTER") is RecordOutcome.DUPLICATE
    assert site.rows(tables.conflict) == []


def test_a_header_that_waits_for_a_person_counts_once_one_sends_it_that_may_correct(
    site: Site,
) -> None:
    site.receive(A)
    site.receive(A, sender="PACS", patient_id=b"MERGED")
    assert (
        site.receive(A, sender="PACS", may_correct=True, patient_id=b"MERGED")
        is RecordOutcome.HEADER_REVISION
    )
    site.decisions.settle()
    (image,) = site.rows(tables.instance)
    assert site.content(image.path) == data_set(A, patient_id=b"MERGED")
    assert [row.state for row in site.rows(tables.conflict)] == ["discarded"]
    assert not any("quarantine" in path for path in site.files())
