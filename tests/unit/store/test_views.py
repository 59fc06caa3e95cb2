"""The read-only views, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event, insert, text
from sqlalchemy.exc import DBAPIError

from hilum.domain import (
    Advance,
    AssociationRecord,
    DeliveryState,
    Outcome,
    Priority,
    ReadingState,
    StudyState,
)
from hilum.errors import Retry
from hilum.store.database.engines import open_reader
from hilum.store.migrations.migrate import migrate
from hilum.store.queries import studies
from hilum.store.queries.views import LedgerViews, StudyFilter
from hilum.store.queue import requeue
from hilum.store.rollouts.rollouts import Rollouts
from hilum.store.schema import cursor, tables
from tests.support.ledger.database import engine_of, transaction
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.postgres import fresh_database, postgres_server
from tests.support.ledger.street import RELEASE, SR_BYTES, Clock, Street

EVERYTHING = StudyFilter()


@pytest.fixture
def views(ledger_url: str, clock: Clock) -> Iterator[LedgerViews]:
    opened = LedgerViews(ledger_url, clock)
    yield opened
    opened.close()


def uids(views: LedgerViews, chosen: StudyFilter = EVERYTHING, **paging: object) -> list[str]:
    return [item["study_instance_uid"] for item in views.list_studies(chosen, **paging)[0]]  # type: ignore[arg-type] # limit and cursor only


def test_an_empty_ledger_answers_everything(views: LedgerViews) -> None:
    assert views.list_studies(EVERYTHING) == ([], None)
    assert views.study("1.2.3") is None
    assert views.documents("1.2.3") is None
    assert views.document(1) is None
    assert views.associations() == ([], None)
    assert views.conflicts() == ([], None)
    assert (
        views.stuck()
        == views.destinations()
        == views.processes()
        == views.failing(1e12)
        == views.outcomes(0)
        == []
    )
    assert views.totals() == {"studies": 0, "instances": 0}
    assert {
        (item["due"], item["waiting"], item["leased"], item["oldest_age_seconds"])
        for item in views.queues()
    } == {(0, 0, 0, 0.0)}
    assert (
        len(views.queues()) == 11
    )  # three stages of three priorities, compare and commit of one; deliver has a row a destination in use


def test_a_study_is_listed_with_its_images_results_and_deliveries(
    street: Street, views: LedgerViews
) -> None:
    street.walk("1.2.3", 1, 2)
    (item,), following = views.list_studies(EVERYTHING)
    assert following is None
    assert item["images"] == 2
    assert item["state"] == "closed"
    assert item["priority"] == "live"
    assert item["deliveries"] == {"delivered": 1}
    assert [
        (found["release"], found["revision"], found["outcome"]) for found in item["results"]
    ] == [(RELEASE, 1, "analysed")]


def test_filters_hold_together(street: Street, views: LedgerViews, clock: Clock) -> None:
    start = clock.now
    street.walk("1.2.1", 1, calling_ae_title="CR1")
    street.walk("1.2.2", 1, calling_ae_title="CR2", release="vit@1")
    street.receive("1.2.3", 1, calling_ae_title="CR2")
    street.read(ReadingState.NOT_ANALYSED, "lateral_not_supported")
    street.assemble(Outcome.NOT_ANALYSED)
    street.receive("1.2.4", 1, calling_ae_title="CR2")
    second = views.study("1.2.2")
    assert second is not None
    assert uids(views) == ["1.2.4", "1.2.3", "1.2.2", "1.2.1"]
    assert uids(views, StudyFilter(order="oldest")) == ["1.2.1", "1.2.2", "1.2.3", "1.2.4"]
    assert uids(views, StudyFilter(state=StudyState.DUE)) == ["1.2.4"]
    assert uids(views, StudyFilter(calling_ae_title="CR2")) == ["1.2.4", "1.2.3", "1.2.2"]
    assert uids(views, StudyFilter(release=RELEASE)) == ["1.2.3", "1.2.1"]
    assert uids(views, StudyFilter(outcome="not_analysed")) == ["1.2.3"]
    assert uids(views, StudyFilter(release="vit@1", outcome="not_analysed")) == []
    assert uids(views, StudyFilter(received_since=second["received_first"])) == [
        "1.2.4",
        "1.2.3",
        "1.2.2",
    ]
    assert uids(views, StudyFilter(received_until=second["received_first"])) == ["1.2.1"]
    assert uids(
        views, StudyFilter(received_since=start, calling_ae_title="CR1", state=StudyState.CLOSED)
    ) == ["1.2.1"]


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_pages_repeat_and_miss_nothing_while_studies_arrive(
    street: Street, views: LedgerViews, clock: Clock, order: str
) -> None:
    for number in range(7):
        clock.now += number // 2  # some at the same moment: the row id decides
        street.receive(f"1.2.{number}", 1)
    before = {f"1.2.{number}" for number in range(7)}
    chosen, seen, following, round_number = StudyFilter(order=order), [], None, 0  # type: ignore[arg-type] # one of the two
    while round_number == 0 or following:
        page, following = views.list_studies(chosen, limit=2, cursor=following)
        seen += [item["study_instance_uid"] for item in page]
        round_number += 1
        if round_number < 4:
            clock.now += 1
            street.receive(f"1.3.{round_number}", 1)
    assert len(seen) == len(set(seen))
    assert before <= set(seen)


def test_who_follows_the_list_meets_a_revised_study_again(
    street: Street, views: LedgerViews, clock: Clock
) -> None:
    for number in range(3):
        clock.now += 1
        street.receive(f"1.2.{number}", 1)
    oldest = StudyFilter(order="oldest")
    first, following = views.list_studies(oldest, limit=2)
    assert [item["study_instance_uid"] for item in first] == ["1.2.0", "1.2.1"]
    clock.now += 1
    street.receive("1.2.0", 2)
    assert uids(views, oldest, cursor=following) == ["1.2.2", "1.2.0"]


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "x",
        "!!!!",
        "bm90IGpzb24",
        cursor.encode("association", 1.0, 1),
        cursor.encode("studies-oldest", 1.0, 1),
        cursor.encode("studies-newest", float("nan"), 1),
        cursor.encode("studies-newest", 1.0, -1),
        cursor.encode("studies-newest", 1.0, 2**31),
        cursor.encode("studies-newest", 1.0, True),
    ],
)
def test_a_foreign_cursor_is_refused(tmp_path: Path, bad: str) -> None:
    views = LedgerViews(migrated_sqlite(tmp_path))
    with pytest.raises(cursor.BadCursor):
        views.list_studies(EVERYTHING, cursor=bad)
    views.close()


def test_a_page_costs_the_same_wherever_it_is(tmp_path: Path) -> None:
    url = migrated_sqlite(tmp_path)
    engine = open_reader(url)
    for order in ("newest", "oldest"):
        query = studies.page_query(
            StudyFilter(order=order), 50, cursor.encode(f"studies-{order}", 5.0, 7)
        )  # type: ignore[arg-type]
        compiled = query.compile(engine, compile_kwargs={"literal_binds": True})
        with engine.connect() as connection:
            plan = " ".join(
                row.detail for row in connection.execute(text(f"EXPLAIN QUERY PLAN {compiled}"))
            )
        assert "USING INDEX ix_study_last_received_at" in plan
        assert "TEMP B-TREE" not in plan


def test_queues_use_the_partial_indexes(tmp_path: Path) -> None:
    url = migrated_sqlite(tmp_path)
    views, asked = LedgerViews(url), []
    engine = engine_of(views)
    event.listen(engine, "before_cursor_execute", lambda *call: asked.append((call[2], call[3])))
    views.queues(), views.stuck(), views.failing(1.0)
    queries = [(sql, values) for sql, values in asked if sql.startswith("SELECT")]
    assert queries
    with engine.connect() as connection:
        for sql, values in queries:
            plan = " ".join(
                row.detail
                for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values)
            )
            assert "_due" in plan or "_leased" in plan or "_stuck" in plan, (sql, plan)
    views.close()


def test_what_is_asked_again_and_again_walks_no_table(
    street: Street, ledger_url: str, clock: Clock
) -> None:
    """Where few rows are meant, or none, the partial indexes know them.

    On PostgreSQL the planner's statistics decide.
    """
    if not ledger_url.startswith("sqlite"):
        pytest.skip("SQLite")
    street.receive("1.2.3", 1)
    street.read()
    street.assemble()
    street.report()
    with (
        closing(LedgerViews(ledger_url, clock)) as views,
        closing(Rollouts(ledger_url)) as rollouts,
    ):
        asked: list[tuple[str, Any]] = []
        for engine in (
            engine_of(views),
            rollouts._reader,
            engine_of(street.ledger),
            street.ledger._reader,
        ):
            event.listen(
                engine, "before_cursor_execute", lambda *call: asked.append((call[2], call[3]))
            )
        views.failing(clock.now + 1)
        for chosen in (
            StudyFilter(state=StudyState.LEASED),
            StudyFilter(state=StudyState.FAILED),
            StudyFilter(needs_person=True),
        ):
            assert views.list_studies(chosen) == ([], None)
        for state in ("due", "leased", "dead"):
            assert views.commitments(state=state) == ([], None)
        assert not rollouts.has_open_readings("other@1")
        for stage in ("assemble", "compare", "report", "deliver", "commit"):
            assert street.ledger.requeue(stage, reason="undecodable") == 0
        street.ledger._requeue(
            "deliver", requeue.condition("deliver", None, None, None, None), [1, 2]
        )
        with transaction(views) as connection:
            for sql, values in asked:
                if sql.startswith(("SELECT", "UPDATE")):
                    plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values).all()
                    assert not [
                        row.detail for row in plan if re.match(r"SCAN [a-z_]+$", row.detail)
                    ], sql


def test_a_list_takes_as_many_queries_for_fifty_studies_as_for_one(
    street: Street, ledger_url: str
) -> None:
    for number in range(50):
        street.receive(f"1.2.{number}", 1, 2)
    views, asked = LedgerViews(ledger_url), []
    event.listen(engine_of(views), "before_cursor_execute", lambda *call: asked.append(call[2]))
    assert len(views.list_studies(EVERYTHING, limit=50)[0]) == 50
    assert (
        len(
            [
                sql
                for sql in asked
                if sql.startswith("SELECT study") or "FROM result" in sql or "FROM instance" in sql
            ]
        )
        == 4
    )
    views.close()


def test_everything_about_a_study(street: Street, views: LedgerViews, clock: Clock) -> None:
    received = clock.now
    street.walk("1.2.3", 1, 2)
    found = views.study("1.2.3")
    assert found is not None
    assert [image["sop_instance_uid"] for image in found["images"]] == ["1.2.3.1", "1.2.3.2"]
    (reading,) = found["images"][0]["readings"]
    assert (reading["release"], reading["state"], reading["logits"], reading["timings"]) == (
        RELEASE,
        "analysed",
        [0.5],
        {"infer": 0.02},
    )
    (result,) = found["results"]
    assert result["findings"][0]["score"] == 0.62
    assert result["is_trained"] is False
    sr, as_json = result["documents"]
    assert (sr["kind"], sr["size_bytes"], as_json["kind"]) == ("sr", len(SR_BYTES), "json")
    (way,) = sr["deliveries"]
    assert (way["destination"], way["state"], way["attempts"], way["at"], way["next_try_at"]) == (
        "pacs",
        "delivered",
        1,
        clock.now,
        None,
    )
    timing = found["timing"]
    assert timing["received_last"] == received
    assert timing["last_image_to_delivered_seconds"] == pytest.approx(10.5)
    assert timing["quiet_end_to_delivered_seconds"] == pytest.approx(0.5)
    assert "header" not in found["images"][0]
    assert "content" not in sr


def test_a_late_image_supersedes_and_both_results_stay_visible(
    street: Street, views: LedgerViews
) -> None:
    street.walk("1.2.3", 1)
    street.walk("1.2.3", 2)
    found = views.study("1.2.3")
    assert found is not None
    newer, older = found["results"]
    assert (newer["is_current"], older["is_current"]) == (True, False)
    assert newer["supersedes_id"] == older["id"]
    assert [item["revision"] for item in views.list_studies(EVERYTHING)[0][0]["results"]] == [2]
    assert [item["result_id"] for item in views.documents("1.2.3") or ()] == [
        older["id"],
        older["id"],
        newer["id"],
        newer["id"],
    ]


def test_an_image_without_a_number_says_why(street: Street, views: LedgerViews) -> None:
    street.receive("1.2.3", 1)
    street.read(ReadingState.NOT_ANALYSED, "multi_frame")
    found = views.study("1.2.3")
    assert found is not None
    (reading,) = found["images"][0]["readings"]
    assert (reading["state"], reading["reason"], reading["detail"], reading["logits"]) == (
        "not_analysed",
        "multi_frame",
        "as the test says",
        None,
    )
    assert found["timing"]["first_delivered"] is None
    assert found["timing"]["last_image_to_delivered_seconds"] is None


def test_a_late_image_makes_no_negative_time(
    street: Street, views: LedgerViews, clock: Clock
) -> None:
    street.walk("1.2.3", 1)
    clock.now += 100
    street.receive("1.2.3", 2)
    found = views.study("1.2.3")
    assert found is not None
    assert found["timing"]["first_delivered"] is not None
    assert found["timing"]["last_image_to_delivered_seconds"] is None


def test_documents_are_found_by_row_and_by_uid(street: Street, views: LedgerViews) -> None:
    street.walk("1.2.3", 1)
    sr, as_json = views.documents("1.2.3") or ()
    by_uid, by_row = views.document(sr["sop_instance_uid"]), views.document(as_json["id"])
    assert by_uid is not None
    assert by_row is not None
    assert (by_uid["content"], by_uid["media_type"]) == (SR_BYTES, "application/dicom")
    assert (by_row["content"], by_row["media_type"]) == (
        b'{"outcome":"analysed"}',
        "application/json",
    )
    assert [
        views.study_of(uid) for uid in (sr["sop_instance_uid"], "1.2.3.1", "1.2.3", "1.2.3.4.5")
    ] == ["1.2.3", "1.2.3", None, None]
    assert views.document("1.2.3.4.5") is None
    assert views.document(10**30) is None


def test_queue_depth_and_age(street: Street, views: LedgerViews, clock: Clock) -> None:
    def queue(
        stage: str, priority: str = "live", destination: str | None = None
    ) -> tuple[int, int, int, float]:
        found = [
            item
            for item in views.queues()
            if (item["stage"], item["priority"], item["destination"])
            == (stage, priority, destination)
        ]
        return tuple(found[0][name] for name in ("due", "waiting", "leased", "oldest_age_seconds"))  # type: ignore[return-value]

    street.receive("1.2.3", 1, 2)
    street.receive("1.2.4", 1, priority=Priority.REANALYSIS)
    clock.now += 4
    assert queue("analyse") == (2, 0, 0, 4.0)
    assert queue("analyse", "reanalysis") == (1, 0, 0, 4.0)
    assert queue("assemble") == (0, 0, 0, 0.0), "a study is nobody's work until its images are read"
    street.jobs_of("analyse")
    assert queue("analyse") == (0, 0, 2, 0.0)
    street.ledger.end_leases("worker-1", is_clean=True)
    street.read()
    assert queue("assemble") == (0, 1, 0, 0.0), "its quiet period still runs"
    street.assemble()
    street.report()
    clock.now += 3
    assert queue("deliver", "live", "pacs") == (1, 0, 0, 3.0)
    (job,) = street.ledger.claim("deliver", 1, "worker-1", 60.0)
    street.ledger.retry("deliver", job.lease, "refused the connection", 30.0, counts=False)
    assert queue("deliver", "live", "pacs") == (0, 1, 0, 3.0)
    clock.now += 31
    street.ledger.claim("deliver", 1, "worker-1", 60.0)
    assert queue("deliver", "live", "pacs") == (
        0,
        0,
        1,
        34.0,
    ), "while it is tried it does not grow younger"


def test_a_receiver_that_takes_nothing_is_seen(
    street: Street, views: LedgerViews, clock: Clock
) -> None:
    street.receive("1.2.3", 1)
    street.read()
    street.assemble()
    street.report()
    written = clock.now
    (job,) = street.claim("deliver")
    assert views.failing(written + 1) == [], "being tried is not failing"
    street.ledger.retry("deliver", job.lease, "refused the connection", 30.0, counts=False)
    assert views.failing(written) == []
    assert views.failing(written + 1) == [
        {"destination": "pacs", "items": 1, "detail": "refused the connection"}
    ]
    clock.now += 31
    assert street.claim("deliver")
    assert views.failing(written + 1) == [
        {"destination": "pacs", "items": 1, "detail": "refused the connection"}
    ], "tried again"


def test_what_needs_a_person_is_counted_by_reason(
    street: Street, views: LedgerViews, clock: Clock
) -> None:
    street.receive("1.2.3", 1)
    street.read(ReadingState.FAILED, "worker_crashed")
    street.walk("1.2.4", 1)
    street.receive("1.2.5", 1)
    street.read()
    street.assemble()
    street.report()
    (job,) = street.claim("deliver")
    street.ledger.advance(
        "deliver", [(job.lease, Advance(DeliveryState.DEAD, {"reason": "refused_0122"}))]
    )
    found = {
        (item["stage"], item["reason"], item["destination"]): item["items"]
        for item in views.stuck()
    }
    assert found == {("analyse", "worker_crashed", None): 1, ("deliver", "refused_0122", "pacs"): 1}
    assert {item["release"]: item["results"] for item in views.outcomes(0)} == {RELEASE: 3}
    assert views.outcomes(clock.now + 1) == []


def test_associations_page_and_filter(street: Street, views: LedgerViews, clock: Clock) -> None:
    for number in range(5):
        outcome = "rejected" if number % 2 else "released"
        street.ledger.record_associations(
            [
                AssociationRecord(
                    clock.now,
                    clock.now + 1,
                    "10.0.0.7",
                    f"CR{number}",
                    "HILUM",
                    outcome,
                    None,
                    1,
                    0,
                    None,
                )
            ]
        )
    first, following = views.associations(limit=3)
    street.ledger.record_associations(
        [
            AssociationRecord(
                clock.now, clock.now + 1, "10.0.0.7", "CR9", "HILUM", "released", None, 1, 0, None
            )
        ]
    )
    second, end = views.associations(limit=3, cursor=following)
    assert [item["calling_ae_title"] for item in (*first, *second)] == [
        "CR4",
        "CR3",
        "CR2",
        "CR1",
        "CR0",
    ]
    assert end is None
    assert [item["calling_ae_title"] for item in views.associations(outcome="rejected")[0]] == [
        "CR3",
        "CR1",
    ]


def test_conflicts_destinations_and_heartbeats(
    street: Street, views: LedgerViews, clock: Clock, ledger_url: str
) -> None:
    engine = create_engine(ledger_url)
    held = {
        "sop_instance_uid": "1.2.3",
        "path": "quarantine/x",
        "size_bytes": 1,
        "digest": "d",
        "calling_ae_title": "CR1",
        "state": "held",
    }
    with engine.begin() as connection:
        connection.execute(insert(tables.conflict).values(received_at=clock.now, **held))
    engine.dispose()
    (found,), _ = views.conflicts()
    assert {name: found[name] for name in (*held, "study_instance_uid")} == {
        **held,
        "study_instance_uid": None,
    }
    street.receive("1.2", 3)
    assert views.conflicts()[0][0]["study_instance_uid"] == "1.2"
    street.ledger.acquire_destination("pacs", "dispatcher-1", 30)
    street.ledger.pause("pacs", is_paused=True)
    assert [(item["name"], item["is_paused"], item["owner"]) for item in views.destinations()] == [
        ("pacs", True, "dispatcher-1")
    ]
    street.beat("listener-1", "listener")
    clock.now += 20
    street.beat(
        "analyser-1", "analyser", is_ready=False, detail="canary of densenet121_untrained@1 failed"
    )
    assert [
        (item["name"], item["age_seconds"], item["is_ready"]) for item in views.processes()
    ] == [
        ("analyser-1", 0.0, False),
        ("listener-1", 20.0, True),
    ]


def test_views_cannot_write(ledger_url: str) -> None:
    engine = open_reader(ledger_url)
    with pytest.raises(DBAPIError, match=r"read-?only"), engine.begin() as connection:
        connection.execute(insert(tables.installation).values(key="x", value="y"))
    engine.dispose()


def test_an_answer_is_one_state_of_the_ledger(street: Street, views: LedgerViews) -> None:
    street.receive("1.2.3", 1)
    with views._snapshot() as connection:
        before = studies.page(connection, EVERYTHING, 10, None)
        street.receive(
            "1.2.4", 1
        )  # commits while the reader reads: a reader never blocks the writer
        assert studies.page(connection, EVERYTHING, 10, None) == before
    assert len(views.list_studies(EVERYTHING)[0]) == 2


def test_an_answer_begins_its_state_before_its_first_statement(views: LedgerViews) -> None:
    """A prepared statement begins no transaction: SQLite would give each a state of its own."""
    begun: list[bool] = []
    event.listen(
        engine_of(views),
        "before_cursor_execute",
        lambda connection, *_: begun.append(connection.in_transaction()),
    )

    views.queues()

    assert set(begun) == {True}


@pytest.mark.parametrize("ask", [LedgerViews.queues, LedgerViews.stuck], ids=["queues", "stuck"])
def test_what_is_asked_at_each_scrape_is_not_built_anew(
    views: LedgerViews, ask: Callable[[LedgerViews], object]
) -> None:
    """SQLAlchemy takes longer for such a statement than the ledger: they are prepared."""
    built: list[object] = []
    event.listen(engine_of(views), "before_execute", lambda *call: built.append(call[1]))

    ask(views)

    assert built == []


def test_a_front_page_builds_no_more_than_its_own_statements(
    street: Street, views: LedgerViews
) -> None:
    """Those of lists and queues, three quarters of all, are prepared."""
    street.walk("1.2.3", 1)
    built: list[object] = []
    event.listen(engine_of(views), "before_execute", lambda *call: built.append(call[1]))

    views.front(EVERYTHING, limit=50, cursor=None, failing_before=0.0, configured={})

    assert len(built) <= 7


def test_readers_and_a_writer_at_once(street: Street, views: LedgerViews) -> None:
    def read_on() -> None:
        for _ in range(20):
            assert all(item["images"] == 1 for item in views.list_studies(EVERYTHING)[0])

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read_on) for _ in range(4)]
        for number in range(20):
            street.receive(f"1.2.{number}", 1)
    assert [reader.exception() for reader in readers] == [None] * 4
    assert views.totals() == {"studies": 20, "instances": 20}


def test_a_ledger_that_is_not_there_is_told_from_a_bug(tmp_path: Path) -> None:
    missing = LedgerViews(f"sqlite:///{tmp_path / 'none.sqlite'}")
    with pytest.raises(Retry, match="does not exist yet"):
        missing.ping()
    assert not (tmp_path / "none.sqlite").exists(), "a reader must not create a ledger"


def test_a_database_without_tables_is_not_ready(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    file = tmp_path / "empty.sqlite"
    file.touch()
    for empty in (f"sqlite:///{file}", fresh_database(request.getfixturevalue("postgres_url"))):
        views = LedgerViews(empty)
        with pytest.raises(Retry, match="ledger"):
            views.ping()
        views.close()


def test_a_postgresql_that_went_away_comes_back(clock: Clock) -> None:
    with postgres_server() as url:
        migrate(url)
        views = LedgerViews(url, clock)
        views.ping()
    with pytest.raises(Retry, match="does not answer"):
        views.ping()
    views.close()
