"""The ledger's contract, the same on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, select

from hilum.domain import (
    Advance,
    DeliveryJob,
    DeliveryState,
    Document,
    NewDocument,
    Priority,
    ReadingJob,
    ReadingState,
    ReportJob,
    ResultState,
    StudyState,
)
from hilum.store.intake.received import Compared
from hilum.store.ledger import ImageChanged, Ledger, RecordOutcome
from hilum.store.migrations.migrate import migrate
from hilum.store.queue import requeue
from hilum.store.schema import tables
from tests.support.ledger.database import engine_of, rows, transaction
from tests.support.ledger.ledger_steps import analyse_all, arrival, close_study, result_for
from tests.support.ledger.street import Clock

RELEASE = "densenet121_untrained@1"


def report(ledger: Ledger, destinations: tuple[str, ...] = ("pacs",)) -> ReportJob:
    (job,) = ledger.claim("report", 1, "d", 60)
    assert isinstance(job, ReportJob)
    document = Document(
        "sr",
        "application/dicom",
        b"bytes",
        "1.2.840.10008.5.1.4.1.1.88.34",
        job.result.identifiers["sr"],
        "2.25.1",
    )
    assert ledger.advance(
        "report",
        [
            (
                job.lease,
                Advance(ResultState.REPORTED, documents=[NewDocument(document, destinations)]),
            )
        ],
    ) == [True]
    return job


def test_the_whole_street(ledger: Ledger, clock: Clock) -> None:
    assert ledger.record([arrival(1), arrival(2)]) == [RecordOutcome.NEW, RecordOutcome.NEW]
    jobs = ledger.claim("analyse", 10, "analyser", 60)
    assert [
        (job.instance.sop_instance_uid, job.release) for job in jobs if isinstance(job, ReadingJob)
    ] == [
        ("1.2.3.1", RELEASE),
        ("1.2.3.2", RELEASE),
    ]
    clock.now += 11  # the quiet period is over, but readings are still open
    assert ledger.claim("assemble", 10, "d", 60) == []
    ledger.advance(
        "analyse",
        [(jobs[0].lease, Advance(ReadingState.ANALYSED, {"logits": [1.5, -2.0], "view": "PA"}))],
    )
    assert ledger.claim("assemble", 10, "d", 60) == []
    ledger.advance(
        "analyse",
        [(jobs[1].lease, Advance(ReadingState.NOT_ANALYSED, {"reason": "lateral_not_supported"}))],
    )
    job = close_study(ledger, "digest", clock.now)
    assert [(r.state, r.logits, r.reason) for r in job.readings] == [
        (ReadingState.ANALYSED, (1.5, -2.0), None),
        (ReadingState.NOT_ANALYSED, None, "lateral_not_supported"),
    ]
    reported = report(ledger)
    assert reported.result.source_digest == "digest"
    assert reported.predecessors == {}
    assert ledger.acquire_destination("pacs", "d", 30)
    (delivery,) = ledger.claim("deliver", 10, "d", 60, destination_name="pacs")
    assert isinstance(delivery, DeliveryJob)
    assert (delivery.document.content, delivery.is_trained, delivery.study_instance_uid) == (
        b"bytes",
        False,
        "1.2.3",
    )
    assert ledger.advance("deliver", [(delivery.lease, Advance(DeliveryState.DELIVERED))]) == [True]
    for stage in ("analyse", "assemble", "report", "deliver"):
        assert ledger.claim(stage, 10, "x", 60) == []


def test_study_waits_for_its_quiet_period_and_no_longer_than_the_maximum(
    ledger: Ledger, clock: Clock
) -> None:
    for number in range(1, 8):  # an image each 9 s: never quiet for 10 s
        ledger.record([arrival(number)])
        analyse_all(ledger)
        assert ledger.claim("assemble", 1, "d", 60) == []
        clock.now += 9 if number < 7 else 6
    assert len(ledger.claim("assemble", 1, "d", 60)) == 1


def test_duplicate_header_revision_and_conflict(ledger: Ledger, clock: Clock) -> None:
    first = arrival(1)
    other_header = arrival(1, digest="other", path="new/path.dcm", header=b"merged")
    other_pixels = arrival(1, digest="third", pixel_digest="other", path="x.dcm")
    sent_again = arrival(1)
    outcomes = [
        ledger.record([item])[0] for item in (first, first, sent_again, other_header, other_pixels)
    ]
    assert outcomes == [
        RecordOutcome.NEW,
        RecordOutcome.NEW,  # the row's own file, recorded again after a crash
        RecordOutcome.DUPLICATE,
        RecordOutcome.HEADER_REVISION,
        RecordOutcome.CONFLICT,
    ]
    (row,) = rows(ledger, tables.instance)
    assert (row.header, row.header_revision, row.path, row.pixel_digest) == (
        b"merged",
        2,
        "new/path.dcm",
        first.instance.pixel_digest,
    )
    assert [(c.path, c.state) for c in rows(ledger, tables.conflict)] == [
        ("quarantine/x.dcm", "held")
    ]
    assert len(rows(ledger, tables.reading)) == 1


def test_a_corrected_header_is_read_again(ledger: Ledger, clock: Clock) -> None:
    ledger.record([arrival(1), arrival(2)])
    done, in_progress = ledger.claim("analyse", 2, "a", 60)
    ledger.advance(
        "analyse",
        [(done.lease, Advance(ReadingState.NOT_ANALYSED, {"reason": "lateral_not_supported"}))],
    )
    revised = [
        arrival(number, digest=f"revised{number}", header=b"PA after all") for number in (1, 2)
    ]
    assert ledger.record(revised) == [RecordOutcome.HEADER_REVISION] * 2
    assert rows(ledger, tables.study)[0].open_readings == 2
    assert ledger.advance(
        "analyse", [(in_progress.lease, Advance(ReadingState.ANALYSED, {"logits": [9.0]}))]
    ) == [False]
    analyse_all(ledger)
    assert [(row.state, row.reason, row.logits) for row in rows(ledger, tables.reading)] == [
        ("analysed", None, [0.5])
    ] * 2
    assert rows(ledger, tables.study)[0].open_readings == 0


def test_same_uid_in_another_study_is_a_conflict(ledger: Ledger) -> None:
    ledger.record([arrival(1)])
    assert ledger.record([arrival(1, study="9.9", digest="other")]) == [RecordOutcome.CONFLICT]


def test_most_urgent_priority_first(ledger: Ledger) -> None:
    for number, priority in enumerate((Priority.REANALYSIS, Priority.LIVE, Priority.URGENT)):
        ledger.record(
            [dataclasses.replace(arrival(number, study=f"1.{number}"), priority=priority)]
        )
    assert [job.priority for job in ledger.claim("analyse", 2, "a", 60)] == [
        Priority.URGENT,
        Priority.LIVE,
    ]


def test_lost_lease_writes_nothing(ledger: Ledger, clock: Clock) -> None:
    ledger.record([arrival(1)])
    (slow,) = ledger.claim("analyse", 1, "slow", 60)
    clock.now += 61
    (quick,) = ledger.claim("analyse", 1, "quick", 60)
    assert (quick.lease.attempts, quick.lease.lapses) == (2, 1)
    assert ledger.advance(
        "analyse", [(slow.lease, Advance(ReadingState.NOT_ANALYSED, {"reason": "undecodable"}))]
    ) == [False]
    assert ledger.retry("analyse", slow.lease, "late", 1) is False
    assert ledger.advance(
        "analyse", [(quick.lease, Advance(ReadingState.ANALYSED, {"logits": [1.0]}))]
    ) == [True]
    (row,) = rows(ledger, tables.reading)
    assert (row.state, row.reason, row.logits) == ("analysed", None, [1.0])
    assert rows(ledger, tables.study)[0].open_readings == 0


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_lost_lease_among_others(ledger: Ledger, lost: int) -> None:
    """Several are written at once, whatever each of them says.

    Which of them is lost is found all the same.
    """
    ledger.record([arrival(number) for number in range(4)])
    leases = [job.lease for job in ledger.claim("analyse", 4, "slow", 60)]
    assert ledger.lapse("analyse", leases[lost])
    (quick,) = ledger.claim("analyse", 1, "quick", 60)
    analysed, unread = (
        Advance(ReadingState.ANALYSED, {"logits": [1.0]}),
        Advance(ReadingState.NOT_ANALYSED, {"reason": "undecodable"}),
    )
    decided = [
        (leases[3], analysed),
        (leases[1], unread),
        (leases[0], analysed),
        (leases[2], analysed),
    ]
    assert ledger.advance("analyse", decided) == [lease is not leases[lost] for lease, _ in decided]
    said = {lease.row_id: item.state.value for lease, item in decided} | {
        quick.lease.row_id: "leased"
    }
    assert {row.id: row.state for row in rows(ledger, tables.reading)} == said
    assert rows(ledger, tables.study)[0].open_readings == 1
    assert ledger.advance("analyse", [(quick.lease, analysed)]) == [True]
    assert rows(ledger, tables.study)[0].open_readings == 0


def test_two_workers_race_for_a_lapsed_lease(ledger_url: str, clock: Clock) -> None:
    ledger = Ledger(ledger_url, clock)
    ledger.record([arrival(number, study=f"1.{number}") for number in range(20)])
    ledger.claim("analyse", 20, "dead", 60)
    clock.now += 61
    claimed: list[list[int]] = [[], []]
    start = threading.Barrier(2)

    def work(index: int) -> None:
        own = Ledger(ledger_url, clock)
        start.wait()
        misses = 0
        while misses < 3:
            jobs = own.claim("analyse", 5, f"worker{index}", 60)
            claimed[index] += [job.lease.row_id for job in jobs]
            misses += not jobs
        own.close()

    threads = [threading.Thread(target=work, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed[0] + claimed[1]) == sorted(row.id for row in rows(ledger, tables.reading))
    ledger.close()


def test_lapsed_item_comes_alone_and_only_to_an_idle_worker(ledger: Ledger, clock: Clock) -> None:
    ledger.record([arrival(number) for number in range(5)])
    ledger.claim("analyse", 2, "dead", 60)
    clock.now += 61
    assert ledger.claim("analyse", 5, "busy", 60, is_idle=False) == []
    assert [job.lease.lapses for job in ledger.claim("analyse", 5, "idle", 60)] == [1]


def test_crash_loop_is_bounded_and_ends_with_a_reason(ledger: Ledger, clock: Clock) -> None:
    ledger.record([arrival(1)])
    claims = 0
    while ledger.claim("analyse", 1, "crasher", 60):
        claims += 1
        clock.now += 61
        assert claims < 10
    assert claims == 3
    (row,) = rows(ledger, tables.reading)
    assert (row.state, row.reason, row.lapses) == ("failed", "worker_crashed", 3)
    assert len(ledger.claim("assemble", 1, "d", 60)) == 1, "the study must not wait for ever"


def test_retry_waits_and_an_outage_does_not_count(ledger: Ledger, clock: Clock) -> None:
    ledger.record([arrival(1)])
    (job,) = ledger.claim("analyse", 1, "a", 60)
    assert ledger.retry("analyse", job.lease, "triton is loading", 5, counts=False)
    assert ledger.claim("analyse", 1, "a", 60) == []
    clock.now += 6
    (job,) = ledger.claim("analyse", 1, "a", 60)
    assert job.lease.attempts == 1
    ledger.retry("analyse", job.lease, "deadline", 0)
    assert ledger.claim("analyse", 1, "a", 60)[0].lease.attempts == 2


def test_end_of_a_process(ledger: Ledger) -> None:
    ledger.record([arrival(1), arrival(2)])
    (first,) = ledger.claim("analyse", 1, "stopped", 60)
    ledger.claim("analyse", 1, "killed", 60)
    assert ledger.end_leases("stopped", is_clean=True) == 1
    assert ledger.end_leases("killed", is_clean=False) == 1
    (lapsed,) = ledger.claim("analyse", 5, "next", 60)
    assert (lapsed.lease.lapses, lapsed.lease.attempts) == (1, 2)
    (clean,) = ledger.claim("analyse", 5, "next", 60)
    assert (clean.lease.row_id, clean.lease.lapses, clean.lease.attempts) == (
        first.lease.row_id,
        0,
        1,
    )


def test_lapse_of_one_lease(ledger: Ledger) -> None:
    ledger.record([arrival(1)])
    (job,) = ledger.claim("analyse", 1, "a", 60)
    assert ledger.lapse("analyse", job.lease)
    assert ledger.claim("analyse", 1, "a", 60)[0].lease.lapses == 1


def test_image_that_arrives_while_the_study_is_assembled_fences_the_assembler(
    ledger: Ledger, clock: Clock
) -> None:
    ledger.record([arrival(1)])
    analyse_all(ledger)
    clock.now += 11
    (job,) = ledger.claim("assemble", 1, "d", 60)
    ledger.record([arrival(2)])
    assert ledger.advance(
        "assemble",
        [(job.lease, Advance(StudyState.CLOSED, results=[result_for("1.2.3", "old", clock.now)]))],
    ) == [False]
    assert rows(ledger, tables.result) == []


def test_late_image_supersedes_and_cancels_what_was_not_sent(ledger: Ledger, clock: Clock) -> None:
    ledger.record([arrival(1)])
    analyse_all(ledger)
    clock.now += 11
    close_study(ledger, "one", clock.now)
    report(ledger, ("sent", "unsent"))
    (sent,) = ledger.claim("deliver", 1, "d", 60, destination_name="sent")
    ledger.advance("deliver", [(sent.lease, Advance(DeliveryState.DELIVERED))])
    clock.now += 100
    ledger.record([arrival(2)])
    analyse_all(ledger)
    clock.now += 11
    job = close_study(ledger, "two", clock.now, supersedes_id=1)
    assert [item.source_digest for item in job.current_results] == ["one"]
    second = report(ledger, ("sent", "unsent"))
    assert (
        second.predecessors["sr"].sop_instance_uid
        == rows(ledger, tables.document)[0].sop_instance_uid
    )
    assert [row.is_current for row in rows(ledger, tables.result)] == [False, True]
    assert [(row.destination, row.state) for row in rows(ledger, tables.delivery)] == [
        ("sent", "delivered"),
        ("unsent", "cancelled"),
        ("sent", "due"),
        ("unsent", "due"),
    ]


def test_result_superseded_before_its_report(ledger: Ledger, clock: Clock) -> None:
    ledger.record([arrival(1)])
    analyse_all(ledger)
    clock.now += 11
    close_study(ledger, "one", clock.now)
    (old,) = ledger.claim("report", 1, "d", 60)
    ledger.record([arrival(2)])
    analyse_all(ledger)
    clock.now += 11
    close_study(ledger, "two", clock.now, supersedes_id=1)
    document = NewDocument(
        Document("sr", "application/dicom", b"old", sop_instance_uid="2.25.9"), ("pacs",)
    )
    assert ledger.advance(
        "report", [(old.lease, Advance(ResultState.REPORTED, documents=[document]))]
    ) == [False]
    assert report(ledger).predecessors == {}, "nobody ever saw the first one"


def test_same_sources_give_no_second_result(ledger: Ledger, clock: Clock) -> None:
    ledger.record([arrival(1)])
    analyse_all(ledger)
    clock.now += 11
    close_study(ledger, "one", clock.now)
    ledger.record([arrival(1, digest="revised", header=b"merged")])
    analyse_all(ledger)
    clock.now += 11
    close_study(ledger, "one", clock.now)
    assert [row.source_digest for row in rows(ledger, tables.result)] == ["one"]


def test_requeue_by_reason_and_study(ledger: Ledger, clock: Clock) -> None:
    ledger.record([arrival(1), arrival(2, study="9.9")])
    for job in ledger.claim("analyse", 10, "a", 60):
        ledger.advance(
            "analyse", [(job.lease, Advance(ReadingState.FAILED, {"reason": "attempts_exhausted"}))]
        )
    assert ledger.requeue("analyse", reason="undecodable") == 0
    assert ledger.requeue("analyse", reason="attempts_exhausted", study_uid="9.9") == 1
    assert [row.open_readings for row in rows(ledger, tables.study)] == [0, 1]
    analyse_all(ledger)
    assert [row.open_readings for row in rows(ledger, tables.study)] == [0, 0]
    clock.now += 11
    assert len(ledger.claim("assemble", 10, "d", 60)) == 2


def test_requeue_of_many_goes_in_parts_and_looks_before_it_writes(
    ledger: Ledger, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study's readings go together, however far apart their rows are."""
    monkeypatch.setattr(requeue, "_TOGETHER", 2)
    studies = ("9.1", "9.2", "9.3", "9.4", "9.5", "9.1")
    ledger.record([arrival(number, study=study) for number, study in enumerate(studies, 1)])
    for job in ledger.claim("analyse", 10, "a", 60):
        ledger.advance(
            "analyse", [(job.lease, Advance(ReadingState.FAILED, {"reason": "attempts_exhausted"}))]
        )
    changed: list[list[str]] = []

    def note(*call: Any) -> None:
        if call[2].startswith("UPDATE reading"):
            changed.append([])
        elif call[2].startswith("UPDATE study"):
            changed[-1] += [
                row.study_instance_uid
                for row in call[0].execute(select(tables.study))
                if row.open_readings
            ]

    event.listen(engine_of(ledger), "after_cursor_execute", note)
    assert ledger.requeue("analyse", reason="undecodable") == 0
    assert changed == []
    assert ledger.requeue("analyse", reason="attempts_exhausted") == 6
    assert [len(names) for names in changed] == [2, 4, 5]
    assert [row.open_readings for row in rows(ledger, tables.study)] == [2, 1, 1, 1, 1]
    assert ledger.requeue("analyse") == 0, "a second time finds nothing"


def test_requeue_lets_a_quiet_period_run(ledger: Ledger, clock: Clock) -> None:
    """The first image fails at once; more images of its study are on their way."""
    ledger.record([arrival(1)])
    (job,) = ledger.claim("analyse", 10, "a", 60)
    ledger.advance(
        "analyse", [(job.lease, Advance(ReadingState.FAILED, {"reason": "attempts_exhausted"}))]
    )
    (before,) = rows(ledger, tables.study)
    clock.now += 1
    assert ledger.requeue("analyse") == 1
    (after,) = rows(ledger, tables.study)
    assert (after.quiet_until, after.due_at, after.collecting_since) == (
        before.quiet_until,
        before.due_at,
        before.collecting_since,
    )
    analyse_all(ledger)
    assert ledger.claim("assemble", 10, "d", 60) == []
    clock.now += 9
    assert len(ledger.claim("assemble", 10, "d", 60)) == 1


def test_requeue_lets_a_study_without_a_quiet_period_begin_none(
    ledger: Ledger, clock: Clock
) -> None:
    ledger.record([arrival(1)])
    (job,) = ledger.claim("analyse", 10, "a", 60)
    ledger.advance(
        "analyse", [(job.lease, Advance(ReadingState.FAILED, {"reason": "attempts_exhausted"}))]
    )
    clock.now += 500
    assert ledger.requeue("analyse") == 1
    (after,) = rows(ledger, tables.study)
    assert (after.quiet_until, after.due_at, after.collecting_since) == (
        clock.now,
        clock.now,
        clock.now,
    )


def test_requeue_of_dead_letters(ledger: Ledger, clock: Clock) -> None:
    ledger.record([arrival(1)])
    analyse_all(ledger)
    clock.now += 11
    close_study(ledger, "one", clock.now)
    report(ledger, ("pacs", "other"))
    for name in ("pacs", "other"):
        (job,) = ledger.claim("deliver", 1, "d", 60, destination_name=name)
        ledger.advance(
            "deliver", [(job.lease, Advance(DeliveryState.DEAD, {"reason": "sop_class_refused"}))]
        )
    assert ledger.requeue("deliver", destination_name="pacs", study_uid="1.2.3") == 1
    assert [row.state for row in rows(ledger, tables.delivery)] == ["due", "dead"]


def test_a_destination_has_one_owner(ledger: Ledger, clock: Clock) -> None:
    assert ledger.acquire_destination("pacs", "one", 30)
    assert not ledger.acquire_destination("pacs", "two", 30)
    assert ledger.acquire_destination("pacs", "one", 30)
    clock.now += 31
    assert ledger.acquire_destination("pacs", "two", 30)
    ledger.pause("pacs", is_paused=True)
    assert not ledger.acquire_destination("pacs", "two", 30)
    ledger.pause("pacs", is_paused=False)
    assert ledger.acquire_destination("pacs", "two", 30)


def test_a_destination_can_be_paused_before_it_is_used(ledger: Ledger) -> None:
    assert ledger.pause("pacs", is_paused=True)
    assert not ledger.pause("pacs", is_paused=True)
    assert not ledger.acquire_destination("pacs", "one", 30)
    ledger.pause("pacs", is_paused=False)
    assert ledger.acquire_destination("pacs", "one", 30)


@pytest.mark.parametrize(("stage", "releases"), [("analyse", ("r@1",)), ("assemble", ())])
def test_a_record_notifies_its_stage(
    ledger_url: str, ledger: Ledger, stage: str, releases: tuple[str, ...]
) -> None:
    subscription = ledger.listen(stage)
    other = Ledger(ledger_url)
    assert subscription.wait(0.05) is False
    other.record([arrival(1, releases=releases)])
    assert subscription.wait(60) is True
    assert subscription.wait(0.05) is False
    subscription.close()
    other.close()


def test_the_last_reading_notifies_also_when_it_has_lapsed_too_often(ledger: Ledger) -> None:
    subscription = ledger.listen("assemble")
    ledger.record([arrival(1)])
    (job,) = ledger.claim("analyse", 1, "worker", 60)
    ledger.lapse("analyse", job.lease)
    assert subscription.wait(0.05) is False
    assert ledger.claim("analyse", 1, "worker", 60, maximum_lapses=1) == []
    assert subscription.wait(60) is True
    subscription.close()


def test_the_last_reading_of_a_study_notifies_its_assembly(ledger_url: str, ledger: Ledger) -> None:
    subscription = ledger.listen("assemble")
    other = Ledger(ledger_url)
    other.record([arrival(1), arrival(2)])
    jobs = other.claim("analyse", 2, "worker", 60)
    for job, notifies in zip(jobs, (False, True), strict=True):
        assert subscription.wait(0.05) is False
        other.advance("analyse", [(job.lease, Advance(ReadingState.ANALYSED, {"logits": [0.0]}))])
        assert subscription.wait(60 if notifies else 0.05) is notifies
    subscription.close()
    other.record([arrival(2)])
    other.close()


def test_concurrent_records_of_the_same_image(ledger_url: str, ledger: Ledger) -> None:
    outcomes: list[RecordOutcome] = []
    start = threading.Barrier(4)

    def work() -> None:
        own = Ledger(ledger_url)
        start.wait()
        outcomes.extend(own.record([arrival(7)]))
        own.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [RecordOutcome.DUPLICATE] * 3 + [RecordOutcome.NEW]
    assert rows(ledger, tables.study)[0].open_readings == 1


def test_namespace_is_minted_once(ledger_url: str, ledger: Ledger) -> None:
    before = ledger.namespace
    migrate(ledger_url)
    assert ledger.namespace == before


def plan_of(ledger: Ledger, statement: str) -> str:
    with transaction(ledger) as connection:
        return "\n".join(str(row) for row in connection.exec_driver_sql(statement))


def test_claims_use_the_partial_indexes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'plan.sqlite'}"
    migrate(url)
    ledger = Ledger(url)
    for table, extra in (("reading", ""), ("result", ""), ("study", " AND open_readings = 0")):
        plan = plan_of(
            ledger,
            f"EXPLAIN QUERY PLAN SELECT * FROM {table} WHERE state = 'due' AND due_at <= 5{extra}"
            " ORDER BY priority, due_at, id LIMIT 5",
        )
        late = plan_of(
            ledger,
            f"EXPLAIN QUERY PLAN SELECT * FROM {table} WHERE state = 'due' AND priority = 1"
            f" AND due_at <= 5{extra} ORDER BY due_at, id LIMIT 5",
        )
        for found in (plan, late):
            assert f"ix_{table}_due" in found
            assert "TEMP B-TREE" not in found
    ledger.close()


def test_schema_and_migrations_agree(ledger_url: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    from hilum.store.database.engines import open_engine

    engine = open_engine(ledger_url)
    with engine.connect() as connection:
        difference = compare_metadata(MigrationContext.configure(connection), tables.metadata)
    engine.dispose()
    assert difference == []


def test_wrong_revision_is_refused(tmp_path: Path) -> None:
    from hilum.errors import ConfigurationError
    from hilum.store.migrations.revision import require_revision

    url = f"sqlite:///{tmp_path / 'empty.sqlite'}"
    with pytest.raises(ConfigurationError, match="there is none yet"):
        require_revision(url)
    migrate(url)
    require_revision(url)


def test_what_must_be_compared_decides_nothing_before_it_was(ledger: Ledger) -> None:
    first = arrival(1)
    assert ledger.record([first], is_compared=True) == [RecordOutcome.NEW]
    before = rows(ledger, tables.instance)
    with pytest.raises(ImageChanged):
        ledger.record([arrival(2), arrival(1, digest="other")], is_compared=True)
    assert rows(ledger, tables.instance) == before
    compared = dataclasses.replace(arrival(1), compared=Compared(first.instance.path))
    assert ledger.record([arrival(2), compared], is_compared=True) == [
        RecordOutcome.NEW,
        RecordOutcome.DUPLICATE,
    ]
