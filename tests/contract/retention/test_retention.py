"""Retention on SQLite and on a real PostgreSQL.

What may leave the archive, what must not, and what a crash in the middle leaves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event, insert, update

from hilum.domain import (
    Advance,
    AssociationRecord,
    CommitmentRequest,
    CommitmentState,
    DeliveryState,
    Outcome,
    Priority,
    ReadingState,
    SopReference,
    StudyState,
)
from hilum.store.archive.archive import Archive
from hilum.store.ledger import RecordOutcome
from hilum.store.retention import deletions
from hilum.store.retention.deletions import Removed
from hilum.store.retention.policy import RetentionPolicy, RetentionScan, Rule
from hilum.store.schema import tables
from tests.support.ledger.database import change, engine_of, transaction
from tests.support.ledger.street import HEADER, RELEASE, Clock, Street
from tests.support.machine.descriptors import deleted_and_open

HOUR = 3600.0
EVERY_PRIORITY = frozenset(Priority)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    (tmp_path / "archive" / "locks").mkdir(parents=True)
    return Archive(tmp_path / "archive")


@pytest.fixture
def retention(ledger_url: str, archive: Archive, clock: Clock) -> Iterator[RetentionPolicy]:
    opened = RetentionPolicy(ledger_url, archive, clock)
    yield opened
    opened.close()


def store(archive: Archive, study: str, *numbers: int) -> list[Path]:
    files = [archive.root / "studies" / f"{study}.{number}.dcm" for number in numbers]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"x" * 1000)
    return files


def older_than(clock: Clock, hours: float, cause: str = "age") -> Rule:
    return Rule(EVERY_PRIORITY, clock.now - hours * HOUR, cause)


def test_pixels_leave_after_their_time_and_rows_stay(
    street: Street, clock: Clock, archive: Archive, retention: RetentionPolicy
) -> None:
    files = store(archive, "1.2.3", 1, 2)
    street.walk("1.2.3", 1, 2)
    clock.now += HOUR - 1
    assert retention.release(older_than(clock, 1)) == 0
    clock.now += 2
    assert retention.release(older_than(clock, 1)) == 2000
    assert all(file.exists() for file in files), "the row first, then the file"
    removed = retention.remove_files()
    assert [(item.cause, item.size_bytes, item.problem) for item in removed] == [
        ("age", 1000, None)
    ] * 2
    assert not any(file.exists() for file in files)
    assert [
        (row.pixels_removed_at, row.is_removed, row.header) for row in street.rows(tables.instance)
    ] == [(clock.now, False, HEADER)] * 2
    assert len(street.rows(tables.document)) == 2
    assert street.rows(tables.expired_file) == []
    assert (retention.release(older_than(clock, 1)), retention.remove_files()) == (0, [])


def test_rows_are_durable_before_files_go_and_space_comes_back_after_the_commit(
    street: Street, clock: Clock, archive: Archive, retention: RetentionPolicy
) -> None:
    files = store(archive, "1.2.3", 1, 2)
    street.walk("1.2.3", 1, 2)
    clock.now += HOUR + 1
    retention.release(older_than(clock, 1))
    there: list[bool] = []
    kept: list[int] = []
    listener = event.listens_for(engine_of(retention), "commit")(
        lambda _connection: kept.append(len(deleted_and_open(archive.root)))
    )
    removed = deletions.remove_due(
        engine_of(retention),
        archive,
        clock.now,
        lambda: there.extend(file.exists() for file in files),
    )
    event.remove(engine_of(retention), "commit", listener)
    assert len(removed) == 2
    assert there == [True, True]
    assert kept == [2, 0], "one commit while the space is held, one that forgets the files"
    assert not deleted_and_open(archive.root)


def test_a_power_cut_does_not_bring_back_what_was_said_to_be_deleted(
    street: Street,
    clock: Clock,
    archive: Archive,
    retention: RetentionPolicy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Names are durable with their folder, which is synced when the file is gone and nobody waits for the ledger any more."""
    files = store(archive, "1.2.3", 1, 2)
    street.walk("1.2.3", 1, 2)
    clock.now += HOUR + 1
    retention.release(older_than(clock, 1))
    synced: dict[Path, list[bool]] = {}

    def sync(folder: Path) -> None:
        synced[folder] = [file.exists() for file in files]
        assert len(street.rows(tables.expired_file)) == 2, "written down until it is durable"
        with transaction(retention) as connection:  # the transaction is over: nobody waits for it
            connection.execute(update(tables.instance).values(header_revision=0))

    monkeypatch.setattr("hilum.store.archive.archive.sync_folder", sync)
    retention.remove_files()
    assert {file.parent for file in files} <= set(synced)
    assert all(there == [False, False] for there in synced.values())
    assert street.rows(tables.expired_file) == []


def test_what_could_not_be_made_durable_is_not_forgotten(
    street: Street,
    clock: Clock,
    archive: Archive,
    retention: RetentionPolicy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store(archive, "1.2.3", 1, 2)
    street.walk("1.2.3", 1, 2)
    clock.now += HOUR + 1
    retention.release(older_than(clock, 1))
    synced: list[Path] = []

    def fail_once(folder: Path) -> None:
        synced.append(folder)
        if len(synced) == 1:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("hilum.store.archive.archive.sync_folder", fail_once)
    with pytest.raises(OSError, match="Input/output"):
        retention.remove_files()
    assert len(street.rows(tables.expired_file)) == 2
    assert len(retention.remove_files()) == 2
    assert synced[0] in synced[1:]
    assert (street.rows(tables.expired_file), retention.remove_files()) == ([], [])


def test_a_walk_ends_behind_some_that_stay_and_without_one_all_are_gone_through(
    street: Street, clock: Clock, retention: RetentionPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_LOOKED_AT", "_PASSED_BY"):
        monkeypatch.setattr(f"hilum.store.retention.policy.{name}", 1)
    for study in ("1.2.1", "1.2.2"):
        street.receive(study, 1, priority=Priority.REANALYSIS)
    street.walk("1.2.3", 1, 2)
    clock.now += HOUR + 1
    rule, walk = (
        dataclasses.replace(older_than(clock, 1), priorities={Priority.LIVE}),
        RetentionScan(),
    )
    assert [retention.release(rule, walk=walk) for _ in range(2)] == [0, 0]
    clock.now += 1
    assert retention.release(rule) == 2000
    assert [retention.release(older_than(clock, 1), walk=walk) for _ in range(3)] == [
        0,
        1000,
        1000,
    ], "at its end it begins anew"


def undelivered(street: Street) -> None:
    street.receive("1.2.3", 1)
    street.read()
    street.assemble()
    street.report()


def dead(street: Street) -> None:
    undelivered(street)
    (job,) = street.claim("deliver")
    street.ledger.advance(
        "deliver", [(job.lease, Advance(DeliveryState.DEAD, {"reason": "sop_class_refused"}))]
    )


def unread(street: Street) -> None:
    street.receive("1.2.3", 1)


def in_work(street: Street) -> None:
    street.receive("1.2.3", 1)
    street.jobs_of("analyse")


def unreported(street: Street) -> None:
    street.receive("1.2.3", 1)
    street.read()
    street.assemble()


def collecting_again(street: Street) -> None:
    street.walk("1.2.3", 1)
    street.receive("1.2.3", 2)


def requeued(street: Street) -> None:
    street.receive("1.2.3", 1)
    street.read(ReadingState.NOT_ANALYSED, "undecodable")
    street.assemble()
    street.report()
    street.deliver()
    street.ledger.requeue("analyse", reason="undecodable")


def failed_study(street: Street) -> None:
    street.walk("1.2.3", 1)
    change(street.ledger, update(tables.study).values(state=StudyState.FAILED))


@pytest.mark.parametrize(
    "open_end",
    [undelivered, dead, unread, in_work, unreported, collecting_again, requeued, failed_study],
)
def test_what_is_open_keeps_its_pixels_however_old(
    open_end, street: Street, clock: Clock, archive: Archive, retention: RetentionPolicy
) -> None:
    open_end(street)
    clock.now += 1000 * HOUR
    for rule in (older_than(clock, 1), older_than(clock, 0, "pressure")):
        assert retention.release(rule) == 0
    assert all(row.pixels_removed_at is None for row in street.rows(tables.instance))


def test_a_study_that_nobody_receives_counts_from_its_report(
    street: Street, clock: Clock, archive: Archive, retention: RetentionPolicy
) -> None:
    street.destinations = ()
    store(archive, "1.2.3", 1)
    street.walk("1.2.3", 1)
    clock.now += HOUR + 1
    assert retention.release(older_than(clock, 1)) == 1000


@pytest.mark.parametrize("state", ["cancelled", "withheld"])
def test_what_is_not_sent_holds_nothing_up(
    state: str, street: Street, clock: Clock, archive: Archive, retention: RetentionPolicy
) -> None:
    undelivered(street)
    change(
        street.ledger,
        update(tables.delivery).values(
            state=state, reason="untrained_weights", finished_at=clock.now
        ),
    )
    clock.now += HOUR + 1
    assert retention.release(older_than(clock, 1)) == 1000


def test_a_priority_has_its_own_time(
    street: Street, clock: Clock, archive: Archive, retention: RetentionPolicy
) -> None:
    for study, priority in (("1.2.3", Priority.LIVE), ("1.2.4", Priority.REANALYSIS)):
        store(archive, study, 1)
        street.receive(study, 1, priority=priority)
    street.read()
    street.assemble()
    street.report()
    street.deliver()
    clock.now += HOUR + 1
    assert retention.release(Rule({Priority.REANALYSIS}, clock.now - HOUR, "age")) == 1000
    assert [row.pixels_removed_at is None for row in street.rows(tables.instance)] == [True, False]


def test_under_pressure_the_oldest_delivered_goes_first_and_no_more_than_is_missing(
    street: Street, clock: Clock, archive: Archive, retention: RetentionPolicy
) -> None:
    street.receive("1.2.3", 1)
    street.read()
    street.assemble()
    street.report()
    late = street.claim("deliver")
    street.walk("1.2.4", 1)
    street.walk("1.2.5", 1)
    clock.now += 1
    street.ledger.advance(
        "deliver", [(job.lease, Advance(DeliveryState.DELIVERED)) for job in late]
    )
    clock.now += 1
    order = []
    while retention.release(older_than(clock, 0, "pressure"), bytes_wanted=1):
        order.append(
            [
                row.study_instance_uid
                for row in street.rows(tables.instance)
                if row.pixels_removed_at is not None
            ]
        )
        clock.now += 1
    assert order[0] == ["1.2.4"], "received last, delivered first"
    assert [len(found) for found in order] == [1, 2, 3]
    assert set(order[1]) == {"1.2.4", "1.2.5"}


def test_a_late_image_still_aggregates_the_earlier_reading(
    street: Street, clock: Clock, archive: Archive, retention: RetentionPolicy
) -> None:
    street.walk("1.2.3", 1)
    clock.now += HOUR
    assert retention.release(older_than(clock, 0)) == 1000
    street.receive("1.2.3", 2)
    street.read()
    clock.now += 20
    (job,) = street.claim("assemble")
    assert [(item.sop_instance_uid, item.pixels_removed_at is None) for item in job.instances] == [
        ("1.2.3.1", False),
        ("1.2.3.2", True),
    ]
    assert [item.logits for item in job.readings] == [(0.5,), (0.5,)]


def test_a_crash_after_the_row_leaves_the_file_to_the_next(
    ledger_url: str, street: Street, clock: Clock, archive: Archive, retention: RetentionPolicy
) -> None:
    (file,) = store(archive, "1.2.3", 1)
    street.walk("1.2.3", 1)
    clock.now += HOUR
    assert retention.release(older_than(clock, 0)) == 1000
    assert file.exists()
    second = RetentionPolicy(ledger_url, archive, clock)
    assert [item.path for item in second.remove_files()] == ["studies/1.2.3.1.dcm"]
    assert not file.exists()
    second.close()


def test_a_crash_after_the_file_is_forgiven(
    street: Street, clock: Clock, archive: Archive, retention: RetentionPolicy
) -> None:
    (file,) = store(archive, "1.2.3", 1)
    street.walk("1.2.3", 1)
    clock.now += HOUR
    retention.release(older_than(clock, 0))
    file.unlink()
    assert retention.remove_files() == [Removed("studies/1.2.3.1.dcm", "age", 0)]
    assert street.rows(tables.expired_file) == []


def test_a_file_that_cannot_be_deleted_is_said_and_tried_again(
    street: Street, clock: Clock, archive: Archive, retention: RetentionPolicy
) -> None:
    (file,) = store(archive, "1.2.3", 1)
    file.unlink()
    file.mkdir()
    street.walk("1.2.3", 1)
    clock.now += HOUR
    retention.release(older_than(clock, 0))
    assert [item.problem for item in retention.remove_files()] == ["Is a directory"]
    assert retention.remove_files() == [], "one bad file must not hold up the others"
    file.rmdir()
    clock.now += HOUR
    assert [item.problem for item in retention.remove_files()] == [None]


def same_file_again(street: Street, **changes: object) -> RecordOutcome:
    arrival = street._arrival("1.2.3", 1, Priority.LIVE, "CR1", RELEASE)
    arrival = dataclasses.replace(
        arrival, instance=dataclasses.replace(arrival.instance, **changes)
    )
    return street.ledger.record([arrival])[0]


def test_pixels_that_come_again_are_kept_again(
    street: Street, clock: Clock, archive: Archive, retention: RetentionPolicy
) -> None:
    street.walk("1.2.3", 1)
    clock.now += HOUR
    retention.release(older_than(clock, 0))
    assert (
        same_file_again(street, path="studies/again.dcm", received_at=clock.now)
        is RecordOutcome.RESTORED
    )
    (row,) = street.rows(tables.instance)
    assert (row.path, row.pixels_removed_at) == ("studies/again.dcm", None)
    assert [item.path for item in retention.remove_files()] == ["studies/1.2.3.1.dcm"]
    assert retention.release(older_than(clock, 1)) == 0, "its time begins anew"
    clock.now += HOUR + 1
    assert retention.release(older_than(clock, 1)) == 1000


def wanted_after_retention(
    street: Street, clock: Clock, retention: RetentionPolicy, *numbers: int
) -> None:
    """A study that no release could read.

    Its pixels left, and then a person wants it read once more.
    """
    street.receive("1.2.3", *numbers)
    street.read(ReadingState.NOT_ANALYSED, "too_large")
    street.assemble(Outcome.NOT_ANALYSED)
    street.report()
    street.deliver()
    clock.now += HOUR
    retention.release(older_than(clock, 0))
    street.ledger.requeue("analyse", study_uid="1.2.3")


def test_what_found_no_pixels_is_read_when_they_come_again(
    street: Street, clock: Clock, retention: RetentionPolicy
) -> None:
    wanted_after_retention(street, clock, retention, 1, 2)
    street.read(ReadingState.NOT_ANALYSED, "instance_missing")
    street.assemble()
    (before,) = street.rows(tables.study)
    assert (
        same_file_again(street, path="studies/again.dcm", received_at=clock.now)
        is RecordOutcome.RESTORED
    )
    assert [(row.state, row.reason) for row in street.rows(tables.reading)] == [
        ("due", None),
        ("not_analysed", "instance_missing"),
    ]
    (after,) = street.rows(tables.study)
    assert (before.state, after.state, after.open_readings, after.revision) == (
        "closed",
        "due",
        1,
        before.revision + 1,
    )
    assert same_file_again(street, path="studies/once_more.dcm") is RecordOutcome.DUPLICATE
    assert street.rows(tables.study) == [after]


@pytest.mark.parametrize(
    "state", [None, ReadingState.ANALYSED, ReadingState.FAILED, ReadingState.NOT_ANALYSED]
)
def test_who_was_not_read_may_have_a_damaged_file(
    street: Street, state: ReadingState | None
) -> None:
    street.receive("1.2.3", 1)
    if state is not None:
        street.read(state, "attempts_exhausted")
    is_doubtful = state in (ReadingState.FAILED, ReadingState.NOT_ANALYSED)
    assert street.ledger.not_read(["1.2.3.1", "1.9"]) == ({"1.2.3.1"} if is_doubtful else set())


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_file_that_the_archive_has_lost_is_given_up_for_the_same_bytes_alone(
    street: Street, *, is_damaged: bool
) -> None:
    arrival = street._arrival("1.2.3", 1, Priority.LIVE, "CR1", RELEASE)
    street.ledger.record([arrival])
    path, ours = arrival.instance.path, arrival.instance
    assert (
        street.ledger.paths_of(
            [
                dataclasses.replace(ours, digest="other"),
                dataclasses.replace(ours, sop_instance_uid="1.9"),
            ]
        )
        == {}
    )
    assert street.ledger.paths_of([ours]) == {ours.sop_instance_uid: path}
    assert street.ledger.paths_of([ours, dataclasses.replace(ours, digest="other")]) == {
        ours.sop_instance_uid: path
    }
    street.ledger.give_up_files(
        {ours.sop_instance_uid: "another/by/now.dcm"}, {ours.sop_instance_uid}
    )
    assert street.rows(tables.expired_file) == []
    assert same_file_again(street, path="studies/again.dcm") is RecordOutcome.DUPLICATE
    street.ledger.give_up_files(
        {ours.sop_instance_uid: path}, {ours.sop_instance_uid} if is_damaged else ()
    )
    assert [(row.path, row.cause) for row in street.rows(tables.expired_file)] == [
        (path, "superseded")
    ] * is_damaged
    assert street.ledger.paths_of([ours]) == {}
    assert same_file_again(street, path="studies/again.dcm") is RecordOutcome.RESTORED
    assert street.ledger.paths_of([ours]) == {ours.sop_instance_uid: "studies/again.dcm"}


def test_who_looks_for_pixels_in_the_moment_in_which_they_come_again_loses_its_lease(
    street: Street, clock: Clock, retention: RetentionPolicy
) -> None:
    wanted_after_retention(street, clock, retention, 1)
    (held,) = street.claim("analyse")
    assert (
        same_file_again(street, path="studies/again.dcm", received_at=clock.now)
        is RecordOutcome.RESTORED
    )
    missing = Advance(ReadingState.NOT_ANALYSED, {"reason": "instance_missing"})
    assert street.ledger.advance("analyse", [(held.lease, missing)]) == [False]
    assert [row.open_readings for row in street.rows(tables.study)] == [1]


def test_a_file_that_a_scan_finds_again_is_not_deleted_under_its_row(
    street: Street, clock: Clock, archive: Archive, retention: RetentionPolicy
) -> None:
    (file,) = store(archive, "1.2.3", 1)
    street.walk("1.2.3", 1)
    clock.now += HOUR
    retention.release(older_than(clock, 0))
    assert same_file_again(street) is RecordOutcome.RESTORED
    assert retention.remove_files() == []
    assert file.exists()


def test_an_older_header_leaves_after_an_hour(
    street: Street, clock: Clock, archive: Archive, retention: RetentionPolicy
) -> None:
    (file,) = store(archive, "1.2.3", 1)
    street.walk("1.2.3", 1)
    outcome = same_file_again(
        street, path="studies/merged.dcm", digest="another", header=b"PatientName=ROE^JANE"
    )
    assert outcome is RecordOutcome.HEADER_REVISION
    clock.now += HOUR - 1
    assert retention.remove_files() == [], "an analyser may be reading it"
    clock.now += 2
    assert [(item.path, item.cause) for item in retention.remove_files()] == [
        ("studies/1.2.3.1.dcm", "superseded")
    ]
    assert not file.exists()
    assert [row.path for row in street.rows(tables.instance)] == ["studies/merged.dcm"]


def test_one_host_keeps_house(
    ledger_url: str, archive: Archive, clock: Clock, retention: RetentionPolicy
) -> None:
    other = RetentionPolicy(ledger_url, archive, clock)
    assert retention.hold("one", 60)
    assert not other.hold("two", 60)
    assert retention.hold("one", 60)
    clock.now += 61
    assert other.hold("two", 60)
    other.close()


def test_a_clock_that_was_set_back_does_not_keep_house_for_who_is_gone(
    clock: Clock, retention: RetentionPolicy
) -> None:
    """The server is started again under another name.

    Else nothing would leave the archive until the time has come again.
    """
    clock.now += 365 * 24 * HOUR
    assert retention.hold("before", 60)
    clock.now -= 365 * 24 * HOUR
    assert retention.hold("after", 60)


def test_associations_are_forgotten_after_their_time(
    street: Street, clock: Clock, retention: RetentionPolicy
) -> None:
    begun = [clock.now - hours * HOUR for hours in (5, 3, 1)]
    street.ledger.record_associations(
        [
            AssociationRecord(
                moment, moment + 1, "10.0.0.7", "CR1", "HILUM", "released", None, 1, 0, None
            )
            for moment in begun
        ]
    )
    assert retention.forget("associations", clock.now - 2 * HOUR) == 2
    assert retention.forget("associations", clock.now - 2 * HOUR) == 0
    assert [clock.now - row.started_at for row in street.rows(tables.association)] == [HOUR]


def test_requests_for_commitment_are_forgotten_when_they_have_ended(
    street: Street, clock: Clock, retention: RetentionPolicy
) -> None:
    image = SopReference("1.2.840.10008.5.1.4.1.1.1.1", "1.2.3.1")
    for number in range(4):
        street.ledger.request_commitment(
            CommitmentRequest(f"1.9.{number}", (image,), "CR1", "HILUM", "10.0.0.7")
        )
    clock.now += 2.0
    reported, dead, held = street.ledger.claim("commit", 3, "worker", 60.0)
    ends = ((reported, CommitmentState.REPORTED), (dead, CommitmentState.DEAD))
    street.ledger.advance("commit", [(job.lease, Advance(state)) for job, state in ends])
    clock.now += HOUR
    assert retention.forget("commitments", clock.now - 2 * HOUR) == 0, "they are young"
    assert retention.forget("commitments", clock.now) == 2
    assert [row.state for row in street.rows(tables.commitment)] == [
        "leased",
        "due",
    ], "an open one stays, however old"
    assert street.ledger.advance("commit", [(held.lease, Advance(CommitmentState.REPORTED))]) == [
        True
    ]


def test_a_thousand_are_forgotten_at_once_and_not_more(
    street: Street, clock: Clock, retention: RetentionPolicy
) -> None:
    with transaction(street.ledger) as connection:
        row = {
            "started_at": 1.0,
            "ended_at": 2.0,
            "peer_address": "",
            "calling_ae_title": "A",
            "called_ae_title": "B",
        }
        connection.execute(
            insert(tables.association),
            [{**row, "outcome": "released", "stored": 0, "refused": 0}] * 1001,
        )
    assert [retention.forget("associations", clock.now) for _ in range(3)] == [1000, 1, 0]
