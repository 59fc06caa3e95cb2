"""The audit on both databases.

Added in the verb's transaction, never changed, read without a gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete, text, update
from sqlalchemy.exc import DatabaseError

from hilum.domain import Actor, Channel, ReadingState
from hilum.store.admin.audit_cursors import AuditCursors
from hilum.store.admin.erase import Erasure
from hilum.store.archive.archive import Archive
from hilum.store.audit.log import AuditFilter, AuditLog, Deed
from hilum.store.database.engines import open_engine
from hilum.store.ledger import Ledger
from hilum.store.retention.policy import RetentionPolicy
from hilum.store.schema.cursor import BadCursor
from hilum.store.schema.tables import audit
from hilum.verbs import Thing, Verb, VerbOutcome
from tests.support.ledger.street import Clock, Street
from tests.support.machine.waiting import wait_for

ALICE = Actor("alice", Channel.PAGE, "10.0.0.7")
EVERYTHING = AuditFilter()
DAY = 86400.0


@pytest.fixture
def log(ledger_url: str, clock: Clock) -> Iterator[AuditLog]:
    opened = AuditLog(ledger_url, clock, look_seconds=300.0)
    yield opened
    opened.close()


def rows(log: AuditLog, chosen: AuditFilter = EVERYTHING) -> list[dict[str, object]]:
    return list(log.all(chosen))


@pytest.mark.parametrize(
    "statement", [update(audit).values(actor="bob"), delete(audit)], ids=["update", "delete"]
)
def test_no_row_is_changed_or_deleted(ledger_url: str, log: AuditLog, statement: object) -> None:
    log.note(Verb.LOGIN, ALICE)
    engine = open_engine(ledger_url)
    with pytest.raises(DatabaseError, match="append-only"), engine.begin() as connection:
        connection.execute(statement)  # type: ignore[call-overload]
    engine.dispose()
    assert [row["actor"] for row in rows(log)] == ["alice"]


def test_the_table_is_not_emptied(ledger_url: str, log: AuditLog) -> None:
    engine = open_engine(ledger_url)
    if engine.dialect.name == "sqlite":
        pytest.skip("SQLite has no TRUNCATE")
    log.note(Verb.LOGIN, ALICE)
    with pytest.raises(DatabaseError, match="append-only"), engine.begin() as connection:
        connection.execute(text("TRUNCATE audit"))
    engine.dispose()
    assert len(rows(log)) == 1


def test_a_verb_and_its_row_are_one_transaction(
    ledger_url: str, ledger: Ledger, street: Street
) -> None:
    street.receive("1.2.3", 1)
    street.read()
    engine = open_engine(ledger_url)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE audit RENAME TO gone"))
    with pytest.raises(DatabaseError):
        ledger.complete("1.2.3", deed=Deed(Verb.COMPLETE, ALICE, "1.2.3"))
    assert street.claim("assemble") == [], "without its row the verb has not happened"
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE gone RENAME TO audit"))
    ledger.complete("1.2.3", deed=Deed(Verb.COMPLETE, ALICE, "1.2.3"))
    assert len(street.claim("assemble")) == 1
    engine.dispose()


def test_a_verb_that_fails_has_a_row_that_says_so(log: AuditLog) -> None:
    log.end(Deed(Verb.COMPLETE, ALICE, "1.2.3"), VerbOutcome.FAILED)
    assert [row["outcome"] for row in rows(log)] == ["failed"]


def test_a_verb_that_is_written_is_not_written_again(
    ledger: Ledger, log: AuditLog, street: Street
) -> None:
    street.receive("1.2.3", 1)
    deed = Deed(Verb.COMPLETE, ALICE, "1.2.3")
    ledger.complete("1.2.3", deed=deed)
    log.end(deed, VerbOutcome.DONE)
    log.end(deed, VerbOutcome.FAILED)  # what came after the commit
    (row,) = rows(log)
    assert (row["outcome"], row["actor"], row["channel"], row["address"]) == (
        "done",
        "alice",
        "page",
        "10.0.0.7",
    )


def test_a_verb_of_several_transactions_leaves_its_beginning(log: AuditLog) -> None:
    deed = Deed(Verb.ERASE, ALICE).about(Thing.PATIENT, log.digest("4711"))
    log.begin(deed)
    assert [(row["outcome"], row["count"]) for row in rows(log)] == [("begun", 0)]
    deed.count = 3
    log.end(deed, VerbOutcome.DONE)
    end, begun = rows(log)
    assert (end["outcome"], end["count"], end["deed"]) == ("done", 3, begun["deed"])


def test_a_requeue_of_many_rows_leaves_its_beginning_and_counts_them_all(
    ledger: Ledger, log: AuditLog, street: Street
) -> None:
    for number in range(251):  # one more than fit into a transaction
        street.receive(f"1.2.{number}", 1)
    for _ in range(3):
        street.read(ReadingState.FAILED, "worker_crashed")
    ledger.requeue(
        "analyse",
        reason="worker_crashed",
        deed=Deed(Verb.REQUEUE, ALICE).about(Thing.STAGE, "analyse"),
    )
    assert [(row["outcome"], row["count"]) for row in rows(log)] == [("done", 251), ("begun", 0)]


def test_looks_of_one_actor_at_one_study_within_minutes_are_two_rows(
    log: AuditLog, clock: Clock
) -> None:
    for _ in range(5):
        log.looks.note(Deed(Verb.READ_STUDY, ALICE, "1.2.3"))
        clock.now += 10
    wait_for(
        lambda: [row["count"] for row in rows(log)] == [1],
        what="the first look, which is there at once",
    )
    clock.now += 300
    log.looks.note(Deed(Verb.READ_STUDY, ALICE, "1.2.3"))
    wait_for(lambda: [row["count"] for row in rows(log)] == [1, 4, 1])


def test_who_looks_does_not_wait_for_who_writes(ledger_url: str, log: AuditLog) -> None:
    engine = open_engine(ledger_url)
    with engine.begin() as connection:  # as a ledger that is rewritten
        if engine.dialect.name == "postgresql":
            connection.execute(text("LOCK TABLE audit IN EXCLUSIVE MODE"))
        log.looks.note(Deed(Verb.READ_STUDY, ALICE, "1.2.3"))
    wait_for(lambda: len(rows(log)) == 1)
    engine.dispose()


def test_looks_of_others_or_at_other_studies_are_rows_of_their_own(log: AuditLog) -> None:
    bob = Actor("bob", Channel.PAGE, "10.0.0.7")
    for deed in (
        Deed(Verb.READ_STUDY, ALICE, "1.2.3"),
        Deed(Verb.READ_STUDY, bob, "1.2.3"),
        Deed(Verb.READ_STUDY, ALICE, "1.2.4"),
    ):
        log.looks.note(deed)
    wait_for(lambda: len(rows(log)) == 3)


def test_looks_that_are_counted_are_written_when_the_server_stops(
    ledger_url: str, clock: Clock, log: AuditLog
) -> None:
    other = AuditLog(ledger_url, clock, look_seconds=300.0)
    other.looks.note(Deed(Verb.READ_STUDY, ALICE, "1.2.3"))
    other.looks.note(Deed(Verb.READ_STUDY, ALICE, "1.2.3"))
    other.close()
    assert sum(int(str(row["count"])) for row in rows(log)) == 2


def test_rows_are_found_by_moment_actor_verb_and_study(log: AuditLog, clock: Clock) -> None:
    log.end(Deed(Verb.READ_STUDY, ALICE, "1.2.3"), VerbOutcome.DONE)
    clock.now += 100
    log.end(
        Deed(Verb.PAUSE, Actor("bob", Channel.CLI)).about(Thing.DESTINATION, "pacs"),
        VerbOutcome.DONE,
    )
    for chosen, verb in (
        (AuditFilter(since=clock.now), "pause"),
        (AuditFilter(until=clock.now), "read_study"),
        (AuditFilter(actor="bob"), "pause"),
        (AuditFilter(verb=Verb.READ_STUDY), "read_study"),
        (AuditFilter(study_instance_uid="1.2.3"), "read_study"),
    ):
        assert [row["verb"] for row in rows(log, chosen)] == [verb], chosen


def test_an_erased_study_is_found_by_its_uid_which_is_in_no_row(log: AuditLog) -> None:
    log.end(Deed(Verb.ERASE, ALICE).about(Thing.STUDY, log.digest("1.2.3")), VerbOutcome.DONE)
    (row,) = rows(log, AuditFilter(study_instance_uid="1.2.3"))
    assert "1.2.3" not in str(row)
    assert rows(log, AuditFilter(study_instance_uid="1.2.4")) == []


def test_looks_at_a_study_that_is_erased_are_found_by_its_uid_which_is_in_no_row(
    ledger_url: str, log: AuditLog, street: Street, clock: Clock, tmp_path: Path
) -> None:
    street.walk("1.2.3", 1)
    log.end(Deed(Verb.READ_STUDY, ALICE, "1.2.3"), VerbOutcome.DONE)
    log.end(Deed(Verb.REJECT_IMAGE, ALICE, "1.2.3").about(Thing.IMAGE, "1.2.3.1"), VerbOutcome.DONE)
    assert [row["name"] for row in rows(log)] == ["1.2.3.1", None]
    erasure = Erasure(ledger_url, Archive(tmp_path / "archive"), clock)
    erasure.erase_study("1.2.3")
    erasure.close()
    log.end(
        Deed(Verb.READ_AUDIT, ALICE, "1.2.3"), VerbOutcome.DONE
    )  # who asks for it writes it down nowhere
    found = rows(log, AuditFilter(study_instance_uid="1.2.3"))
    assert [row["verb"] for row in found] == ["read_audit", "reject_image", "read_study"]
    assert "1.2.3" not in str(found)


def test_pages_follow_each_other_without_a_gap(log: AuditLog) -> None:
    for number in range(5):
        log.note(Verb.PROBE, ALICE, name=str(number), thing=Thing.DESTINATION)
    first, cursor = log.list(EVERYTHING, limit=2)
    log.note(Verb.LOGIN, ALICE)  # comes meanwhile
    second, cursor = log.list(EVERYTHING, limit=2, cursor=cursor)
    third, end = log.list(EVERYTHING, limit=2, cursor=cursor)
    assert [row["name"] for row in (*first, *second, *third)] == ["4", "3", "2", "1", "0"]
    assert end is None
    with pytest.raises(BadCursor):
        log.list(EVERYTHING, cursor="x")


def test_only_retention_deletes_and_only_what_was_handed_on(
    ledger_url: str, log: AuditLog, clock: Clock, tmp_path: Path
) -> None:
    cursors, retention = (
        AuditCursors(ledger_url, clock),
        RetentionPolicy(ledger_url, Archive(tmp_path / "archive"), clock),
    )
    cursors.set_up(["log"])
    log.note(Verb.LOGIN, ALICE)
    clock.now += 10 * DAY
    log.note(Verb.LOGOUT, ALICE)
    assert retention.forget("audit", clock.now - DAY) == 0, "nobody has it yet"
    last = cursors.take("log", "me", 60)
    assert last is not None
    cursors.move("log", "me", cursors.after(last)[-1]["id"])
    assert retention.forget("audit", clock.now - DAY) == 1
    assert [row["verb"] for row in rows(log)] == ["logout"]
    retention.close()
    cursors.close()


def test_one_process_reads_at_a_time_and_goes_on_where_the_last_one_stopped(
    ledger_url: str, log: AuditLog, clock: Clock
) -> None:
    log.note(Verb.START, ALICE)
    cursors = AuditCursors(ledger_url, clock)
    cursors.set_up(["syslog"])
    for verb in (Verb.LOGIN, Verb.LOGOUT):
        log.note(verb, ALICE)
    last = cursors.take("syslog", "one", 60)
    assert last is not None
    assert cursors.take("syslog", "two", 60) is None
    found = cursors.after(last)
    assert [row["verb"] for row in found] == ["login", "logout"], "a new reader begins at the end"
    assert cursors.move("syslog", "one", found[0]["id"])
    clock.now += 61  # `one` has died
    assert [row["verb"] for row in cursors.after(cursors.take("syslog", "two", 60) or 0)] == [
        "logout"
    ]
    assert not cursors.move("syslog", "one", found[1]["id"])
    cursors.set_up([])
    assert cursors.take("syslog", "two", 60) is None
    cursors.close()


def test_a_rejection_by_hand_names_the_person(
    ledger_url: str, street: Street, clock: Clock, tmp_path: Path
) -> None:
    from hilum.receive.indexing.describe import describe
    from hilum.receive.indexing.same_bytes import sha256_of
    from hilum.store.admin.decisions import Decisions

    street.receive("1.2.3", 1)
    engine, decisions = (
        open_engine(ledger_url),
        Decisions(ledger_url, Archive(tmp_path / "archive"), describe, sha256_of, clock),
    )
    with engine.begin() as connection:
        uid = connection.execute(text("SELECT sop_instance_uid FROM instance")).scalar_one()
    decisions.reject(uid, Deed(Verb.REJECT_IMAGE, ALICE))
    with engine.begin() as connection:
        assert connection.execute(text("SELECT rejected_by FROM rejection")).scalar_one() == "alice"
    decisions.close()
    engine.dispose()
