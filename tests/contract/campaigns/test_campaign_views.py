"""How far a campaign is, as the ledger says it on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import Connection, event

from hilum.domain import PlanDoubt, RowOutcome, SeriesState
from hilum.store.campaigns.campaigns import Campaigns
from hilum.store.queries import campaigns as queries
from hilum.store.queries.views import LedgerViews
from hilum.store.schema.cursor import BadCursor
from tests.support.campaigns.seeded import SeededSeries, seed
from tests.support.ledger.database import engine_of, statements, transaction
from tests.support.ledger.street import Clock

READ = SeriesState.READ
DEAD = SeriesState.DEAD
HALF = (
    SeededSeries("20190101", READ, 3, age=60.0),
    SeededSeries("20190101", READ, 1, image_reason="view_not_supported", age=1800.0),
    SeededSeries("20190102", DEAD, 2, reason="not_received", detail="2 images missing", age=90.0),
    SeededSeries("20190102", SeriesState.NOTHING_TO_READ, age=5000.0),
    SeededSeries("20190203", SeriesState.RECEIVED),
    SeededSeries("20190203", SeriesState.FOUND, 4),
)


def counted(views: LedgerViews, name: str = "old") -> queries.CampaignProgress:
    found = views.campaign(name)
    assert found is not None
    return found


def test_counts_say_how_far_a_campaign_is(
    ledger_url: str, views: LedgerViews, clock: Clock
) -> None:
    seed(ledger_url, clock, "old", HALF)

    counts = counted(views).counts
    assert (counts.studies, counts.all_series, counts.ended_series) == (12, 12, 7)
    assert counts.series == {
        "read": 4,
        "dead": 2,
        "nothing_to_read": 1,
        "received": 1,
        "found": 4,
    }
    assert (counts.images_expected, counts.images_received) == (22, 10)
    assert (counts.images_analysed, counts.images_not_analysed) == (6, 2)


def test_the_list_counts_each_campaign_by_itself_newest_first(
    ledger_url: str, views: LedgerViews, clock: Clock
) -> None:
    seed(ledger_url, clock, "old", HALF)
    seed(ledger_url, clock, "next", [SeededSeries("20200101", number=2)], began_before=None)

    found, cursor = views.campaigns()
    assert [(item.campaign.name, item.counts.all_series) for item in found] == [
        ("next", 2),
        ("old", 12),
    ]
    assert found[1].counts == counted(views).counts
    assert (found[1].images_missing, cursor) == (4, None)


def test_pages_of_campaigns_neither_repeat_nor_miss_one(
    ledger_url: str, views: LedgerViews, clock: Clock
) -> None:
    for number in range(3):
        seed(ledger_url, clock, f"c{number}", [SeededSeries("20200101")], began_before=None)

    first, cursor = views.campaigns(limit=2)
    second, end = views.campaigns(limit=2, cursor=cursor)
    assert [item.campaign.name for item in (*first, *second)] == ["c2", "c1", "c0"]
    assert end is None


def test_days_are_in_order_and_months_are_their_sums(
    ledger_url: str, views: LedgerViews, clock: Clock
) -> None:
    seed(ledger_url, clock, "old", (SeededSeries("20190203"), SeededSeries(""), *HALF))

    days = views.campaign_days("old")
    assert days is not None
    assert list(days) == ["", "20190101", "20190102", "20190203"]
    assert days["20190102"] == {DEAD: 2, SeriesState.NOTHING_TO_READ: 1}
    assert queries.by_month(days)["201901"] == {READ: 4, DEAD: 2, SeriesState.NOTHING_TO_READ: 1}


def test_dead_series_come_with_their_reason_the_last_first(
    ledger_url: str, views: LedgerViews, clock: Clock
) -> None:
    early = SeededSeries("20190101", DEAD, 2, reason="not_received", detail="2 missing", age=9.0)
    last = SeededSeries("20190102", DEAD, reason="offline", age=1.0, origin="row 7")
    seed(ledger_url, clock, "old", (early, last, SeededSeries("20190103", READ)))

    page = views.dead_series("old", limit=2)
    assert page is not None
    first, cursor = page
    rest = views.dead_series("old", limit=2, cursor=cursor)
    assert rest is not None
    assert [(item["reason"], item["origin"], item["detail"]) for item in (*first, *rest[0])] == [
        ("offline", "row 7", None),
        ("not_received", "", "2 missing"),
        ("not_received", "", "2 missing"),
    ]
    assert len({item["series_instance_uid"] for item in (*first, *rest[0])}) == 3
    assert rest[1] is None


def test_a_cursor_of_another_campaign_is_refused(
    ledger_url: str, views: LedgerViews, clock: Clock
) -> None:
    for name in ("old", "next"):
        seed(ledger_url, clock, name, [SeededSeries("20190101", DEAD, 2, reason="offline")])
    page = views.dead_series("old", limit=1)
    assert page is not None

    with pytest.raises(BadCursor):
        views.dead_series("next", limit=1, cursor=page[1])


def test_images_without_numbers_are_counted_by_reason(
    ledger_url: str, views: LedgerViews, clock: Clock
) -> None:
    seed(ledger_url, clock, "old", HALF)

    found = counted(views)
    assert found.not_read == {"view_not_supported": 2}
    assert found.missing == {"not_received": 4}
    assert found.dead == {"not_received": 2}


def test_rows_of_a_list_are_counted_by_outcome(
    ledger_url: str, views: LedgerViews, clock: Clock
) -> None:
    outcomes = {RowOutcome.FOUND: 3, RowOutcome.NONE: 1}
    doubts = (PlanDoubt("500 answers, a limit?", "20190101"),)
    seed(ledger_url, clock, "old", HALF, list_rows=outcomes, doubts=doubts)

    assert counted(views).rows == outcomes
    assert counted(views).campaign.doubts == doubts


def test_the_rate_is_what_ended_in_the_last_hour(
    ledger_url: str, views: LedgerViews, clock: Clock
) -> None:
    seed(ledger_url, clock, "old", HALF)

    recent = counted(views).recent
    assert (recent.series_in_ten_minutes, recent.series_in_hour) == (5, 6)
    assert (recent.images_in_ten_minutes, recent.images_in_hour) == (10, 12)
    assert recent.series_a_minute == pytest.approx(0.1)
    assert counted(views).seconds_left == pytest.approx(5 / 6 * 3600)


def test_a_campaign_that_began_a_minute_ago_has_its_rate_at_once(
    ledger_url: str, views: LedgerViews, clock: Clock
) -> None:
    series = [SeededSeries("20190101", READ, 6, age=10.0), SeededSeries("20190102", number=3)]
    seed(ledger_url, clock, "old", series, began_before=120.0)

    assert counted(views).recent.series_a_minute == pytest.approx(3.0)
    assert counted(views).recent.series_a_minute_now == pytest.approx(3.0)
    assert counted(views).seconds_left == pytest.approx(60.0)


def test_a_campaign_that_does_not_move_has_no_end(
    ledger_url: str, views: LedgerViews, clock: Clock
) -> None:
    seed(ledger_url, clock, "old", [SeededSeries("20190101", READ, age=4000.0), SeededSeries("")])
    seed(ledger_url, clock, "next", [SeededSeries("20190101")], began_before=None)

    assert counted(views).seconds_left is None
    assert counted(views, "next").seconds_left is None


def test_an_unknown_campaign_has_no_answer(views: LedgerViews) -> None:
    assert views.campaign("none") is None
    assert views.campaign_days("none") is None
    assert views.dead_series("none") is None


def test_a_monitor_follows_those_that_run_and_forgets_ended_ones_after_a_day(
    ledger_url: str, views: LedgerViews, clock: Clock
) -> None:
    seed(ledger_url, clock, "runs", HALF)
    for number in range(3):
        seed(ledger_url, clock, f"plan{number}", [SeededSeries("")], began_before=None)
    with closing(Campaigns(ledger_url, clock)) as campaigns:
        campaigns.change("plan2", "cancel")

    names = [item.campaign.name for item in views.watched_campaigns(3, 86400.0)]
    assert names == ["runs", "plan2", "plan1"]
    clock.now += 86401.0
    names = [item.campaign.name for item in views.watched_campaigns(20, 86400.0)]
    assert names == ["runs", "plan1", "plan0"]


def test_a_page_of_progress_takes_a_fixed_number_of_statements(
    ledger_url: str, views: LedgerViews, clock: Clock
) -> None:
    seed(ledger_url, clock, "old", [*HALF, SeededSeries("20190204", number=30)])

    with statements(views) as asked:
        counted(views)
    assert len(asked) <= 9
    for number in range(3):
        seed(ledger_url, clock, f"c{number}", HALF)
    with statements(views) as asked:
        views.campaigns()
    assert len(asked) <= 4


Ask = Callable[[Connection], object]
# By query: the index on SQLite, with its use, and on PostgreSQL.
INDEXES: dict[str, tuple[Ask, str, str]] = {
    "days": (
        lambda connection: queries.days(connection, 1),
        "COVERING INDEX ix_campaign_series_day",
        "ix_campaign_series_day",
    ),
    "series": (
        lambda connection: queries._series_of(connection, [1]),
        "COVERING INDEX ix_campaign_series_state",
        "ix_campaign_series_",
    ),
    "studies": (
        lambda connection: queries._studies_of(connection, [1]),
        "COVERING INDEX sqlite_autoindex_campaign_series_1",
        "uq_campaign_series_campaign_study_series",
    ),
    "images": (
        lambda connection: queries._images_of(connection, [1]),
        "COVERING INDEX ix_campaign_image_state",
        "ix_campaign_image_state",
    ),
    "dead": (
        lambda connection: queries.dead_series(connection, 1, 50, None),
        "INDEX ix_campaign_series_state (campaign_id=? AND state=?)",
        "ix_campaign_series_",
    ),
    "reasons": (
        lambda connection: queries._dead_reasons(connection, 1),
        "INDEX ix_campaign_series_state (campaign_id=? AND state=?)",
        "ix_campaign_series_",
    ),
}


@pytest.mark.parametrize("name", INDEXES)
def test_counts_are_read_from_indexes(
    ledger_url: str, views: LedgerViews, clock: Clock, name: str
) -> None:
    seed(ledger_url, clock, "old", HALF)
    ask, on_sqlite, on_postgresql = INDEXES[name]
    asked: list[tuple[str, Any]] = []
    event.listen(
        engine_of(views),
        "before_cursor_execute",
        lambda *call: asked.append((call[2], call[3])),
    )
    with transaction(views) as connection:
        ask(connection)
        sql, values = asked[-1]
        if ledger_url.startswith("sqlite"):
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values)
            assert on_sqlite in " ".join(row.detail for row in plan)
        else:
            # A small table is read as a whole unless that is forbidden.
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
            found = connection.exec_driver_sql(f"EXPLAIN {sql}", values)
            assert on_postgresql in " ".join(row[0] for row in found)


def test_nothing_of_a_dead_series_names_a_patient(
    ledger_url: str, views: LedgerViews, clock: Clock
) -> None:
    seed(ledger_url, clock, "old", HALF)

    page = views.dead_series("old")
    assert page is not None
    assert set(page[0][0]) == {
        "id",
        "study_instance_uid",
        "series_instance_uid",
        "day",
        "modality",
        "origin",
        "attempts",
        "reason",
        "detail",
        "finished_at",
    }
