"""Rows are locked in one order, whatever the order of a batch.

On PostgreSQL two batches that cross would wait for each other.

One transaction has what comes first in that order while a batch, which names it last, waits for it.
If the batch had anything else of what it names already, going on would be a deadlock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest
from sqlalchemy import Connection, select, text, update

from hilum.domain import (
    Advance,
    Lease,
    Priority,
    ReadingJob,
    ReadingState,
    Rejection,
    RemovalReason,
    RolloutMode,
    StudyState,
    WorklistAnswer,
)
from hilum.store.admin import reanalyse
from hilum.store.admin.erase import Erasure
from hilum.store.admin.reanalyse import Reanalysis
from hilum.store.archive.archive import Archive
from hilum.store.intake import record
from hilum.store.intake.received import Arrival
from hilum.store.ledger import Ledger, RecordOutcome
from hilum.store.queue import (
    comparisons,
    complete,
    destination_lease,
    rejections,
    reopen,
    worklist,
)
from hilum.store.retention.policy import RetentionPolicy, Rule
from hilum.store.rollouts.assign import rollout_of
from hilum.store.rollouts.rollouts import RolloutRequest, Rollouts, _store
from hilum.store.rollouts.rules import rolled_back
from hilum.store.schema.tables import instance, reading, rollout, study
from tests.support.ledger.arrivals import arrival_of
from tests.support.ledger.database import change, transaction
from tests.support.ledger.ledgers import migrated_postgres
from tests.support.ledger.rolling import kept
from tests.support.ledger.street import Clock
from tests.support.machine.waiting import wait_for

Step: TypeAlias = Callable[[Connection], object]

_WAITING = text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type ="
    " 'Lock'"
)
_NOW = Clock().now
_ANALYSED = Advance(ReadingState.ANALYSED, {"logits": [0.5]})
# SOP Instance UID and Study Instance UID.
FIRST, SECOND = ("1.2.1", "1.3.1"), ("1.2.2", "1.3.2")


@pytest.fixture
def ledger(postgres_url: str) -> Iterator[Ledger]:
    opened = Ledger(migrated_postgres(postgres_url), Clock())
    yield opened
    opened.close()


def image(uid: str, study: str, header: int = 0) -> Arrival:
    return arrival_of(uid, study, ("a@1",), digest=f"d{uid}.{header}")


def corrected(uid: str, study: str) -> Arrival:
    return image(uid, study, header=1)


def beside(ledger: Ledger, first: Step, batch: Callable[[], object], then: Step) -> None:
    """`batch` comes between two steps of a transaction and waits until it is committed."""
    failed: list[Exception] = []
    thread = threading.Thread(target=lambda: _try(batch, failed))
    with transaction(ledger) as connection:
        first(connection)
        thread.start()
        wait_for(lambda: _are_waiting(ledger), what="a batch that waits")
        then(connection)
    thread.join()
    assert not failed


def _try(batch: Callable[[], object], failed: list[Exception]) -> None:
    try:
        batch()
    except Exception as error:  # noqa: BLE001 - the thread of the test looks at it
        failed.append(error)


def _are_waiting(ledger: Ledger) -> bool:
    with transaction(ledger) as connection:
        return bool(connection.execute(_WAITING).scalar_one())


def leases(ledger: Ledger, *releases: str) -> list[Lease]:
    """Of readings, all or those of these releases, in the order of their rows."""
    jobs = [
        job for job in ledger.claim("analyse", 100, "analyser", 60) if isinstance(job, ReadingJob)
    ]
    return sorted(
        (job.lease for job in jobs if job.release in releases or not releases),
        key=lambda lease: lease.row_id,
    )


def holds(lease: Lease) -> Step:
    """An analyser writes what it has read, first the reading."""
    return lambda connection: connection.execute(
        select(reading.c.id).where(reading.c.id == lease.row_id).with_for_update()
    ).all()


def ends(lease: Lease) -> Step:
    """And then its study."""
    return lambda connection: complete.close_readings(connection, [lease.row_id], _NOW)


@pytest.mark.parametrize(
    "outcome", [RecordOutcome.NEW, RecordOutcome.DUPLICATE, RecordOutcome.HEADER_REVISION]
)
def test_two_listeners_get_the_same_images_in_opposite_order(
    ledger: Ledger, outcome: RecordOutcome
) -> None:
    if outcome is not RecordOutcome.NEW:
        ledger.record([image(*FIRST), image(*SECOND)])
    comes = corrected if outcome is RecordOutcome.HEADER_REVISION else image
    said: list[RecordOutcome] = []
    beside(
        ledger,
        lambda connection: said.extend(record.record(connection, [comes(*FIRST)], _NOW)),
        lambda: said.extend(ledger.record([comes(*SECOND), comes(*FIRST)])),
        lambda connection: said.extend(record.record(connection, [comes(*SECOND)], _NOW)),
    )
    assert said == [outcome] * 2 + [RecordOutcome.DUPLICATE] * 2


def test_a_new_image_of_one_study_and_a_corrected_one_of_another(ledger: Ledger) -> None:
    """Whichever of their images are new.

    A batch has its studies in one order, after all its images.
    """
    ledger.record([image(*FIRST), image(*SECOND)])
    beside(
        ledger,
        lambda connection: record.record(connection, [image("1.2.7", FIRST[1])], _NOW),
        lambda: ledger.record([image("1.2.8", SECOND[1]), corrected(*FIRST)]),
        lambda connection: record.record(connection, [image("1.2.9", SECOND[1])], _NOW),
    )


@pytest.mark.parametrize("order", [1, -1], ids=["as_they_came", "the_other_way_round"])
def test_images_are_corrected_while_they_are_read(ledger: Ledger, order: int) -> None:
    """Who ends readings has them first, by their rows, and then their study.

    So does who corrects several images of the study.
    """
    both = [("1.2.1", "1.3.1"), ("1.2.2", "1.3.1")][::order]
    ledger.record([image(*names) for names in both])
    first, second = leases(ledger)

    def goes_on(connection: Connection) -> None:
        holds(second)(connection)
        ends(second)(connection)

    beside(
        ledger, holds(first), lambda: ledger.record([corrected(*names) for names in both]), goes_on
    )


def test_readings_of_one_image_end_together(ledger: Ledger) -> None:
    """In whatever order an analyser names them."""
    ledger.record([arrival_of(*FIRST, ("a@1", "b@1"))])
    first, second = leases(ledger)
    beside(
        ledger,
        holds(first),
        lambda: ledger.advance("analyse", [(second, _ANALYSED), (first, _ANALYSED)]),
        holds(second),
    )


@pytest.mark.parametrize("release", ["a@1", "a@2"], ids=["reported", "shadow"])
def test_two_analysers_end_readings_of_the_same_studies(ledger: Ledger, release: str) -> None:
    with closing(Rollouts(ledger.url)) as rollouts:
        rollouts.start("a@1", kept("a@2"), RolloutRequest(RolloutMode.SHADOW), "a person")
        rollouts.confirm("a", "a@2", "analyser", kept("a@2").digest)
    ledger.record(
        [image(*FIRST), image(*SECOND), image("1.2.3", FIRST[1]), image("1.2.4", SECOND[1])]
    )
    one, other, third, fourth = leases(ledger, release)
    beside(
        ledger,
        ends(one),
        lambda: ledger.advance("analyse", [(fourth, _ANALYSED), (third, _ANALYSED)]),
        ends(other),
    )


def rolls_back(connection: Connection) -> None:
    """What the verb does, in a transaction that goes on."""
    row = connection.execute(select(rollout).with_for_update()).one()
    _store(connection, rolled_back(rollout_of(row)), is_new=False)


@pytest.mark.parametrize("is_verb_first", [True, False], ids=["rollback first", "image first"])
def test_an_image_that_comes_while_its_release_is_rolled_back_is_read_by_the_former_one(
    ledger: Ledger, *, is_verb_first: bool
) -> None:
    with closing(Rollouts(ledger.url)) as rollouts:
        rollouts.start("a@1", kept("a@2"), RolloutRequest(RolloutMode.SWITCH), "a person")
        rollouts.confirm("a", "a@2", "analyser", kept("a@2").digest)
        if is_verb_first:
            beside(ledger, rolls_back, lambda: ledger.record([image(*FIRST)]), lambda _: None)
        else:
            verb = partial(rollouts.roll_back, "a", "a person", is_pending=True)
            beside(
                ledger,
                lambda connection: record.record(connection, [image(*FIRST)], _NOW),
                verb,
                lambda _: None,
            )
    with transaction(ledger) as connection:
        assert connection.execute(select(reading.c.release)).scalars().all() == ["a@1"]


def test_two_notes_reject_the_same_images_in_opposite_order(ledger: Ledger) -> None:
    ledger.record([image(*FIRST), image(*SECOND)])
    first, second = (
        Rejection(*names, RemovalReason.QUALITY, "1.9", "MODALITY") for names in (FIRST, SECOND)
    )
    beside(
        ledger,
        lambda connection: rejections.reject(connection, [first], _NOW),
        lambda: ledger.reject([second, first]),
        lambda connection: rejections.reject(connection, [second], _NOW),
    )


@pytest.mark.parametrize("is_note_first", [True, False], ids=["note first", "image first"])
def test_an_image_that_is_rejected_in_the_moment_in_which_it_comes_is_not_reported(
    ledger: Ledger, *, is_note_first: bool
) -> None:
    note, arrival = Rejection(*FIRST, RemovalReason.QUALITY, "1.9", "MODALITY"), image(*FIRST)
    steps: list[Step] = [
        lambda connection: rejections.reject(connection, [note], _NOW),
        lambda connection: record.record(connection, [arrival], _NOW),
    ]
    verbs: list[Callable[[], object]] = [
        lambda: ledger.reject([note]),
        lambda: ledger.record([arrival]),
    ]
    beside(
        ledger, steps[0 if is_note_first else 1], verbs[1 if is_note_first else 0], lambda _: None
    )
    with transaction(ledger) as connection:
        assert connection.execute(select(instance.c.is_removed)).scalars().all() == [True]
        assert connection.execute(select(reading.c.state)).scalars().all() == [
            ReadingState.NOT_ANALYSED
        ]


def erases(ledger: Ledger, study: str) -> None:
    with closing(Erasure(ledger.url, Archive(Path("nowhere")))) as erasure:
        erasure.erase_study(study)


def test_a_study_is_erased_while_its_images_come_again(ledger: Ledger) -> None:
    one, other = ("1.2.1", "1.3.1"), ("1.2.2", "1.3.1")
    ledger.record([image(*other)])
    ledger.record([image(*one)])
    beside(
        ledger,
        lambda connection: record.record(connection, [image(*one)], _NOW),
        lambda: erases(ledger, "1.3.1"),
        lambda connection: record.record(connection, [image(*other)], _NOW),
    )


def test_a_study_is_erased_while_it_is_read(ledger: Ledger) -> None:
    ledger.record([image(*FIRST)])
    (lease,) = leases(ledger)
    beside(ledger, holds(lease), lambda: erases(ledger, FIRST[1]), ends(lease))


STAT = WorklistAnswer(("STAT",), "RIS@ris:104", _NOW, is_urgent=True)


def answers(study_uid: str) -> Step:
    """A worklist says that a study is urgent."""
    return lambda connection: worklist.take_answer(connection, study_uid, STAT)


def test_a_study_is_read_while_it_becomes_urgent(ledger: Ledger) -> None:
    ledger.record([image(*FIRST), image("1.2.7", FIRST[1])])
    first, second = leases(ledger)
    beside(
        ledger,
        answers(FIRST[1]),
        lambda: ledger.advance("analyse", [(first, _ANALYSED), (second, _ANALYSED)]),
        answers(FIRST[1]),
    )


def test_a_study_becomes_urgent_while_it_is_read(ledger: Ledger) -> None:
    ledger.record([image(*FIRST), image("1.2.7", FIRST[1])])
    first, second = leases(ledger)
    beside(
        ledger,
        ends(first),
        lambda: ledger.take_worklist_answer(FIRST[1], STAT),
        holds(second),
    )
    with transaction(ledger) as connection:
        assert connection.execute(select(study.c.priority)).scalar_one() == Priority.URGENT


def test_a_study_gets_images_while_it_becomes_urgent(ledger: Ledger) -> None:
    ledger.record([image(*FIRST)])
    beside(
        ledger,
        answers(FIRST[1]),
        lambda: ledger.record([image("1.2.7", FIRST[1])]),
        answers(FIRST[1]),
    )
    with transaction(ledger) as connection:
        found = connection.execute(select(reading.c.priority)).scalars().all()
    assert found == [Priority.URGENT] * 2


def test_studies_are_closed_while_they_get_images(ledger: Ledger) -> None:
    """A worker that closes several has them in the order of their UIDs, which is not that of their rows."""
    for names in (SECOND, FIRST):
        ledger.record([image(*names)])
    ledger.advance("analyse", [(lease, _ANALYSED) for lease in leases(ledger)])
    with closing(Ledger(ledger.url, Clock(_NOW + 60))) as later:
        jobs = [
            (job, Advance(StudyState.CLOSED))
            for job in later.claim("assemble", 8, "dispatcher", 60)
        ]
        assert len(jobs) == 2
        beside(
            ledger,
            lambda connection: record.record(connection, [image("1.2.7", FIRST[1])], _NOW),
            lambda: later.advance_and_hand_off("assemble", jobs, {}),
            lambda connection: record.record(connection, [image("1.2.8", SECOND[1])], _NOW),
        )


def test_a_person_ends_readings_of_an_image_that_is_corrected(ledger: Ledger) -> None:
    ledger.record([image(*FIRST)])
    with transaction(ledger) as connection:
        row = connection.execute(select(reading.c.id)).scalar_one()
    beside(
        ledger,
        lambda connection: connection.execute(
            select(reading.c.id).where(reading.c.id == row).with_for_update()
        ).all(),
        lambda: ledger.complete(FIRST[1], is_waiting=False),
        lambda connection: record.record(connection, [image("1.2.7", FIRST[1])], _NOW),
    )


@pytest.mark.parametrize("header", [0, 1], ids=["new", "corrected"])
def test_an_image_comes_while_two_shadows_end(ledger: Ledger, header: int) -> None:
    """Whatever the order in which the route names releases."""
    route = ("b@1", "a@1")
    with closing(Rollouts(ledger.url)) as rollouts:
        for alias in ("b", "a"):
            rollouts.start(
                f"{alias}@1", kept(f"{alias}@2"), RolloutRequest(RolloutMode.SHADOW), "a person"
            )
            rollouts.confirm(alias, f"{alias}@2", "analyser", kept(f"{alias}@2").digest)
    ledger.record([arrival_of(*FIRST, route)])
    read = ledger.claim("analyse", 100, "analyser", 60)
    ledger.advance("analyse", [(job.lease, _ANALYSED) for job in read])
    of_b, of_a = (
        job.lease
        for name in ("b@2", "a@2")
        for job in read
        if isinstance(job, ReadingJob) and job.release == name
    )
    comes = arrival_of(FIRST[0] if header else "1.2.8", FIRST[1], route, digest="another")
    beside(
        ledger,
        lambda connection: comparisons.hasten(connection, [of_a.row_id], _NOW),
        lambda: ledger.record([comes]),
        lambda connection: comparisons.hasten(connection, [of_b.row_id], _NOW),
    )


def read_archive(ledger: Ledger, order: reanalyse.ReanalysisRequest) -> None:
    with closing(Reanalysis(ledger.url, Clock())) as reanalysis:
        for looked in reanalysis.look(order, reanalysis.last_row()):
            list(reanalysis.begin(order, looked.ids))


def close_all(ledger: Ledger) -> None:
    """As a dispatcher would after all is read, but that nothing is said."""
    ledger.advance("analyse", [(lease, _ANALYSED) for lease in leases(ledger)])
    change(ledger, update(study).values(state=StudyState.CLOSED))


@pytest.mark.parametrize("is_reanalysed", [True, False], ids=["reanalysed", "corrected"])
def test_pixels_leave_while_their_study_is_opened_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, *, is_reanalysed: bool
) -> None:
    ledger.record([image(*SECOND), image(*FIRST)])
    close_all(ledger)
    monkeypatch.setattr(
        "hilum.store.retention.policy._may_go", lambda _: [study.c.state == StudyState.CLOSED]
    )
    monkeypatch.setattr(
        "hilum.store.retention.policy.finished_at", lambda: study.c.last_received_at
    )
    uids = [FIRST[1], SECOND[1]]

    def begins(connection: Connection) -> None:
        if is_reanalysed:
            reanalyse._hold_images(connection, uids)
        else:
            connection.execute(
                select(instance.c.id)
                .where(instance.c.sop_instance_uid == SECOND[0])
                .with_for_update()
            ).all()

    def goes_on(connection: Connection) -> None:
        reopen.reopen(connection, uids if is_reanalysed else [SECOND[1]], _NOW)

    freed: list[int] = []
    with closing(RetentionPolicy(ledger.url, Archive(Path("nowhere")), Clock())) as retention:
        beside(
            ledger,
            begins,
            lambda: freed.append(retention.release(Rule(frozenset(Priority), _NOW + 60, "age"))),
            goes_on,
        )
    assert freed == [0 if is_reanalysed else 10]


def test_a_shadow_is_to_be_reported_over_an_archive_while_it_reads_a_late_image(
    ledger: Ledger,
) -> None:
    """Comparisons come after their studies."""
    with closing(Rollouts(ledger.url)) as rollouts:
        rollouts.start("a@1", kept("a@2"), RolloutRequest(RolloutMode.SHADOW), "a person")
        rollouts.confirm("a", "a@2", "analyser", kept("a@2").digest)
    ledger.record([image(*FIRST)])
    close_all(ledger)
    beside(
        ledger,
        lambda connection: connection.execute(select(study.c.id).with_for_update()).all(),
        lambda: read_archive(ledger, reanalyse.ReanalysisRequest("a@2")),
        lambda connection: comparisons.follow(connection, FIRST[1], {"a@2": "a@1"}, _NOW),
    )


def test_a_shadow_is_to_be_reported_over_an_archive_while_it_reads_it(ledger: Ledger) -> None:
    """Readings by their rows, in whatever order the database finds them."""
    with closing(Rollouts(ledger.url)) as rollouts:
        rollouts.start("a@1", kept("a@2"), RolloutRequest(RolloutMode.SHADOW), "a person")
        rollouts.confirm("a", "a@2", "analyser", kept("a@2").digest)
    ledger.record([image(*FIRST), image("1.2.7", FIRST[1])])
    first, second = leases(ledger, "a@2")
    change(
        ledger,
        update(study).values(state=StudyState.CLOSED),
        update(reading)
        .where(reading.c.id == first.row_id)
        .values(claimed_by="another", leased_until=_NOW + 3600),
    )

    def goes_on(connection: Connection) -> None:
        holds(second)(connection)
        ends(second)(connection)

    beside(
        ledger,
        holds(first),
        lambda: read_archive(ledger, reanalyse.ReanalysisRequest("a@2")),
        goes_on,
    )


def test_two_dispatchers_meet_a_new_destination(ledger: Ledger) -> None:
    """The one that waits for the other finds the destination taken."""
    held: list[bool] = []
    beside(
        ledger,
        lambda connection: held.append(destination_lease.take(connection, "pacs", "one", _NOW, 60)),
        lambda: held.append(ledger.acquire_destination("pacs", "two", 60)),
        lambda _: None,
    )
    assert held == [True, False]


def test_a_person_pauses_a_destination_that_a_dispatcher_meets(ledger: Ledger) -> None:
    beside(
        ledger,
        lambda connection: destination_lease.take(connection, "pacs", "one", _NOW, 60),
        lambda: ledger.pause("pacs", is_paused=True),
        lambda _: None,
    )
    assert not ledger.acquire_destination("pacs", "one", 60)


def test_many_dispatchers_meet_new_destinations(ledger: Ledger) -> None:
    owners, names = (
        [f"dispatcher-{number}" for number in range(4)],
        [f"pacs-{number}" for number in range(20)],
    )
    together = threading.Barrier(len(owners))

    def take_all(owner: str) -> list[bool]:
        together.wait(60)
        return [ledger.acquire_destination(name, owner, 60) for name in names]

    with ThreadPoolExecutor(len(owners)) as threads:
        taken = list(threads.map(take_all, owners))
    assert [sum(of_priority) for of_priority in zip(*taken, strict=True)] == [1] * len(names)
