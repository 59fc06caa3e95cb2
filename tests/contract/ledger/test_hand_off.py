"""What an advance hands on is what a claim would have given, and as safe as that, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import OperationalError

from hilum.domain import (
    Advance,
    Code,
    Decision,
    DeliveryJob,
    DeliveryState,
    Document,
    Finding,
    Job,
    Lease,
    NewDocument,
    ReportJob,
    Result,
    ResultState,
    SourceImage,
    StudyJob,
    StudyState,
)
from hilum.store.ledger import Ledger
from hilum.store.queue.hand_off import Reservation
from hilum.store.schema import tables
from tests.support.ledger.database import change, rows
from tests.support.ledger.ledger_steps import analyse_all, arrival, result_for
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.street import Clock

Reservations = Mapping[str | None, Reservation]
ONE: Reservations = {None: Reservation("d", 1, 120)}
TO_PACS: Reservations = {"pacs": Reservation("d", 1, 180)}


def full_result(job: StudyJob, digest: str, supersedes_id: int | None = None) -> Result:
    """With everything that is written as JSON and read again."""
    finding = Finding(
        "effusion", "Pleural effusion", Code("60046008", "SCT", "Pleural effusion"), 0.1 + 0.2, 0.574442516811659, None, 0.5,
        Decision.UNDECIDED, ("1.2.3.1",), {"a": 1 / 3},
    )  # fmt: skip
    numbers = {"effusion": 1 / 7}, {"effusion": -0.3}, {"a": {"effusion": 2 / 3}}
    image = SourceImage(
        "1.2.3.1", "1.2", "1.2.3.9", "PA", True, None, *numbers, ("few_levels", "saturated")
    )
    plain = result_for(job.study.study_instance_uid, digest, 7.25, supersedes_id)
    return dataclasses.replace(
        plain, findings=(finding,), source_images=(image,), timings={"infer_seconds": 0.02}
    )


def closed(
    ledger: Ledger, digest: str, reservations: Reservations, supersedes_id: int | None = None
) -> list[Job]:
    """A study of two images, read and closed."""
    analyse_all(ledger)
    (job,) = ledger.claim("assemble", 1, "d", 60)
    assert isinstance(job, StudyJob)
    decided = Advance(StudyState.CLOSED, results=[full_result(job, digest, supersedes_id)])
    written, jobs = ledger.advance_and_hand_off("assemble", [(job, decided)], reservations)
    assert written == [True]
    return jobs


def first_report(ledger: Ledger, clock: Clock) -> ReportJob:
    """A result that was handed on."""
    ledger.record([arrival(1), arrival(2)])
    clock.now += 11
    (job,) = closed(ledger, "first", ONE)
    assert isinstance(job, ReportJob)
    return job


def reported(
    ledger: Ledger, job: ReportJob, reservations: Reservations, *destinations: str
) -> list[Job]:
    """Its report is stored, on its way to these."""
    sr = Document(
        "sr",
        "application/dicom",
        b"bytes",
        "1.2.840.10008.5.1.4.1.1.88.34",
        job.result.identifiers["sr"],
        "2.25.1",
    )
    documents = [
        NewDocument(sr, destinations),
        NewDocument(Document("json", "application/json", b"{}"), ()),
    ]
    written, jobs = ledger.advance_and_hand_off(
        "report", [(job, Advance(ResultState.REPORTED, documents=documents))], reservations
    )
    assert written == [True]
    return jobs


def alike(job: Job) -> Job:
    """Without the lease, of which each has its own, and without what a study's row says of its own lease."""
    job = dataclasses.replace(job, lease=Lease(0, "", 0, 0))
    return (
        dataclasses.replace(job, study=dataclasses.replace(job.study, state=StudyState.DUE))
        if isinstance(job, ReportJob)
        else job
    )


def taken_away(ledger: Ledger, stage: str, lease: Lease) -> None:
    """By another worker, since it has lapsed."""
    assert ledger.lapse(stage, lease)
    (job,) = ledger.claim(stage, 1, "another", 60)
    assert job.lease.row_id == lease.row_id


def test_of_several_results_one_was_lost(ledger: Ledger, clock: Clock) -> None:
    """The others go on; of the lost one there is nothing, and it has nobody's place."""
    ledger.record([arrival(number, f"1.2.{number}") for number in range(3)])
    clock.now += 11
    analyse_all(ledger)
    studies = [job for job in ledger.claim("assemble", 3, "d", 60) if isinstance(job, StudyJob)]
    closing = [
        (job, Advance(StudyState.CLOSED, results=[full_result(job, "digest")])) for job in studies
    ]
    taken_away(ledger, "assemble", studies[1].lease)
    written, handed = ledger.advance_and_hand_off(
        "assemble", closing, {None: Reservation("d", 2, 120)}
    )
    assert written == [True, False, True]
    assert [job.study.study_instance_uid for job in handed if isinstance(job, ReportJob)] == [
        "1.2.0",
        "1.2.2",
    ]
    assert ledger.acquire_destination("pacs", "d", 600)
    taken_away(ledger, "report", handed[0].lease)
    documents = [
        NewDocument(
            Document("sr", "application/dicom", b"bytes", sop_instance_uid=f"2.25.{number}"),
            ("pacs",),
        )
        for number in (1, 2)
    ]
    reports = [
        (job, Advance(ResultState.REPORTED, documents=[new]))
        for job, new in zip(handed, documents, strict=True)
    ]
    written, deliveries = ledger.advance_and_hand_off("report", reports, TO_PACS)
    assert written == [False, True]
    assert [job.study_instance_uid for job in deliveries if isinstance(job, DeliveryJob)] == [
        "1.2.2"
    ]
    assert [row.sop_instance_uid for row in rows(ledger, tables.document)] == ["2.25.2"]


def test_a_result_that_is_handed_on_is_what_a_claim_gives(ledger: Ledger, clock: Clock) -> None:
    handed = first_report(ledger, clock)
    assert (handed.lease.attempts, handed.lease.lapses) == (1, 0)
    assert ledger.claim("report", 8, "another", 60) == [], "it is leased"
    clock.now += 121  # its worker died
    (claimed,) = ledger.claim("report", 8, "another", 60)
    assert (claimed.lease.row_id, claimed.lease.attempts, claimed.lease.lapses) == (
        handed.lease.row_id,
        2,
        1,
    )
    assert alike(claimed) == alike(handed)
    late = Advance(ResultState.REPORTED)
    assert ledger.advance_and_hand_off("report", [(handed, late)], {}) == (
        [False],
        [],
    ), "its lease is lost"
    assert ledger.advance("report", [(claimed.lease, late)]) == [True]


def test_a_delivery_that_is_handed_on_is_what_a_claim_gives(ledger: Ledger, clock: Clock) -> None:
    assert ledger.acquire_destination("pacs", "d", 180)
    (handed,) = reported(ledger, first_report(ledger, clock), TO_PACS, "pacs")
    assert isinstance(handed, DeliveryJob)
    assert ledger.claim("deliver", 8, "d", 60, destination_name="pacs") == [], "it is leased"
    clock.now += 181
    (claimed,) = ledger.claim("deliver", 8, "d", 60, destination_name="pacs")
    assert (claimed.lease.row_id, claimed.lease.attempts, claimed.lease.lapses) == (
        handed.lease.row_id,
        2,
        1,
    )
    assert alike(claimed) == alike(handed)
    assert ledger.advance("deliver", [(claimed.lease, Advance(DeliveryState.DELIVERED))]) == [True]


def test_who_stops_as_asked_gives_back_what_was_handed_on(ledger: Ledger, clock: Clock) -> None:
    handed = first_report(ledger, clock)
    assert ledger.end_leases("d", is_clean=True) == 1
    (again,) = ledger.claim("report", 8, "another", 60)
    assert (again.lease.row_id, again.lease.attempts, again.lease.lapses) == (
        handed.lease.row_id,
        1,
        0,
    )


def test_without_a_place_it_is_left_due_and_rung_for(ledger: Ledger, clock: Clock) -> None:
    ledger.record([arrival(1), arrival(2)])
    clock.now += 11
    subscription = ledger.listen("report")
    assert closed(ledger, "first", {None: Reservation("d", 0, 120)}) == []
    assert subscription.wait(30)
    subscription.close()
    assert len(ledger.claim("report", 8, "another", 60)) == 1


def test_as_many_as_there_are_places(ledger: Ledger, clock: Clock) -> None:
    for study in ("1.1", "1.2", "1.3"):
        ledger.record([arrival(int(study[-1]), study=study)])
    clock.now += 11
    analyse_all(ledger)
    jobs = [job for job in ledger.claim("assemble", 8, "d", 60) if isinstance(job, StudyJob)]
    decided = [
        (job, Advance(StudyState.CLOSED, results=[full_result(job, "first")])) for job in jobs
    ]
    written, handed = ledger.advance_and_hand_off(
        "assemble", decided, {None: Reservation("d", 2, 120)}
    )
    assert (written, len(handed)) == ([True] * 3, 2)
    left = ledger.claim("report", 8, "another", 60)
    assert len({job.lease.row_id for job in [*handed, *left]}) == 3


def test_a_successor_is_left_to_a_claim_that_looks_for_its_predecessor(
    ledger: Ledger, clock: Clock
) -> None:
    first = first_report(ledger, clock)
    reported(ledger, first, {}, "pacs")
    (sent,) = ledger.claim("deliver", 8, "d", 60)
    ledger.advance("deliver", [(sent.lease, Advance(DeliveryState.DELIVERED))])
    ledger.record([arrival(3)])
    clock.now += 11
    assert closed(ledger, "second", ONE, first.result.id) == []
    (second,) = ledger.claim("report", 8, "d", 60)
    assert isinstance(second, ReportJob)
    assert set(second.delivered_reports) == {"pacs"}


@pytest.mark.parametrize(
    "why", ["paused", "owned by another", "owned too shortly", "no loop of it here"]
)
def test_only_the_owner_of_a_destination_inherits(ledger: Ledger, clock: Clock, why: str) -> None:
    owner, seconds = (
        ("another", 180)
        if why == "owned by another"
        else ("d", 60 if why == "owned too shortly" else 180)
    )
    assert ledger.acquire_destination("pacs", owner, seconds)
    if why == "paused":
        ledger.pause("pacs", is_paused=True)
    reservations = {"elsewhere": TO_PACS["pacs"]} if why == "no loop of it here" else TO_PACS
    assert reported(ledger, first_report(ledger, clock), reservations, "pacs") == []
    assert [row.state for row in rows(ledger, tables.delivery)] == ["due"]


def test_of_a_result_that_was_superseded_nothing_goes_on(ledger: Ledger, clock: Clock) -> None:
    assert ledger.acquire_destination("pacs", "d", 1800)
    first = first_report(ledger, clock)
    change(ledger, tables.result.update().values(is_current=False))
    assert reported(ledger, first, TO_PACS, "pacs") == []
    assert [(row.state, row.reason) for row in rows(ledger, tables.delivery)] == [
        ("cancelled", "superseded")
    ]


def test_nobody_is_rung_for_what_was_handed_on(ledger: Ledger, clock: Clock) -> None:
    subscription = ledger.listen("report")
    first_report(ledger, clock)
    assert not subscription.wait(0)
    subscription.close()


@contextmanager
def unsyncable(log: Path) -> Iterator[None]:
    """The disk cannot be waited for: who has the log open still writes it, and nobody opens it."""
    kept = log.rename(log.with_suffix(".kept"))
    log.symlink_to(log.name)
    yield
    kept.rename(log)


@pytest.mark.parametrize("is_handed_on", [True, False], ids=["handed_on", "claimed"])
def test_what_cannot_be_waited_for_is_given_back(
    tmp_path: Path, clock: Clock, *, is_handed_on: bool
) -> None:
    """The caller hears of no job, so nobody would work on it until its lease lapses, as if a worker had died."""
    with closing(Ledger(migrated_sqlite(tmp_path), clock)) as ledger:
        assert ledger.acquire_destination("pacs", "d", 180)
        job = first_report(ledger, clock)
        if not is_handed_on:
            assert reported(ledger, job, {}, "pacs") == []
        log = Path(f"{make_url(ledger.url).database}-wal")
        with unsyncable(log), pytest.raises(OperationalError):
            (
                reported(ledger, job, TO_PACS, "pacs")
                if is_handed_on
                else ledger.claim("deliver", 8, "d", 180)
            )
        (claimed,) = ledger.claim("deliver", 8, "d", 180)
        assert (claimed.lease.attempts, claimed.lease.lapses) == (1, 0)
