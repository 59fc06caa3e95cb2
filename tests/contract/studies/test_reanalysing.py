"""A release reads what was read before it was there, the same on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from sqlalchemy import update

from hilum.domain import Priority, Rejection, RemovalReason, RolloutMode
from hilum.store.admin import reanalyse
from hilum.store.admin.reanalyse import Count, Reanalysis, ReanalysisRequest
from hilum.store.queries.queues import queues
from hilum.store.queries.views import LedgerViews
from hilum.store.rollouts.rollouts import RolloutRequest as RollOut
from hilum.store.schema.tables import (
    comparison,
    delivery,
    document,
    instance,
    reading,
    result,
    study,
)
from tests.support.ledger.arrivals import QUIET_SECONDS
from tests.support.ledger.database import change, transaction
from tests.support.ledger.rolling import CONFIGURED, Rolling, kept

AGAIN, ALONG = ReanalysisRequest("chest@2"), ReanalysisRequest("chest@2", is_shadow=True)


@pytest.fixture
def reanalysis(rolling: Rolling) -> Iterator[Reanalysis]:
    with closing(Reanalysis(rolling.ledger.url, rolling.clock)) as opened:
        yield opened


def walk(rolling: Rolling, *names: str) -> None:
    """Studies of one image that chest@1 has read and reported."""
    for name in names:
        rolling.receive(name, 1)
    rolling.read()
    rolling.close_studies()
    rolling.report()


def counted(reanalysis: Reanalysis, order: ReanalysisRequest) -> Count:
    """What there is."""
    return sum((looked.count for looked in reanalysis.look(order, reanalysis.last_row())), Count())


def begin(reanalysis: Reanalysis, order: ReanalysisRequest) -> int:
    """Have all of it read; how many studies."""
    found = [looked.ids for looked in reanalysis.look(order, reanalysis.last_row())]
    return sum(done.studies for ids in found for done in reanalysis.begin(order, ids))


def test_an_archive_is_read_and_reported_by_a_further_release_and_by_it_alone(
    rolling: Rolling, reanalysis: Reanalysis
) -> None:
    walk(rolling, "1.1", "1.2")
    assert counted(reanalysis, AGAIN) == Count(studies=2, images=2)
    assert begin(reanalysis, AGAIN) == 2
    assert [(row.state, row.open_readings) for row in rolling.rows(study)] == [("due", 1)] * 2
    assert begin(reanalysis, AGAIN) == 0, "what was begun is not begun again"
    rolling.receive("1.3", 1)
    assert rolling.read(limit=1) == ["chest@1"], "live images go first"
    assert rolling.read() == ["chest@2"] * 2
    rolling.close_studies()
    assert sorted(rolling.report()) == [("1.1", "chest@2"), ("1.2", "chest@2"), ("1.3", "chest@1")]
    assert len(rolling.rows(delivery)) == len(rolling.rows(document)) == 5, (
        "no report goes out twice"
    )
    assert all(row.is_current for row in rolling.rows(result))
    assert {(row.release, row.priority) for row in rolling.rows(result)} == {
        ("chest@1", Priority.LIVE),
        ("chest@2", Priority.REANALYSIS),
    }
    assert {row.priority for row in rolling.rows(study)} == {Priority.LIVE}, (
        "retention and late images know it as what it was"
    )
    assert begin(reanalysis, ReanalysisRequest("chest@2", study_uids=("1.1",))) == 0


def test_a_late_image_is_read_by_its_repetition(rolling: Rolling, reanalysis: Reanalysis) -> None:
    walk(rolling, "1.1")
    begin(reanalysis, AGAIN)
    rolling.read()
    rolling.close_studies()
    rolling.receive("1.1", 2)
    rolling.read()
    rolling.close_studies()
    assert rolling.rows(result, release="chest@2")[-1].outcome == "partial"
    assert begin(reanalysis, AGAIN) == 1
    assert rolling.read() == ["chest@2"]
    rolling.close_studies()
    assert rolling.rows(result, release="chest@2", is_current=True)[0].outcome == "analysed"
    assert len(rolling.rows(result, release="chest@1")) == 2, (
        "as many as without it: the late image's and the one before"
    )


@pytest.mark.parametrize("comes", ["late", "corrected"])
def test_what_a_live_image_waits_for_is_read_with_it(
    rolling: Rolling, reanalysis: Reanalysis, comes: str
) -> None:
    walk(rolling, "1.1", "1.2", "1.3")
    begin(reanalysis, AGAIN)
    if comes == "corrected":
        rolling.read()
        rolling.close_studies()
        begin(reanalysis, ReanalysisRequest("chest@3"))
    rolling.receive("1.2", 2 if comes == "late" else 1, header_revision=2)
    while rolling.read(limit=1):
        if not (
            left := [
                row for row in rolling.rows(reading, study_instance_uid="1.2") if row.state == "due"
            ]
        ):
            break
    assert not left
    assert {row.study_instance_uid for row in rolling.rows(reading, state="due")} == {
        "1.1",
        "1.3",
    }, "live studies go first"
    assert {row.priority for row in rolling.rows(reading, state="due")} == {Priority.REANALYSIS}


def test_late_images_of_what_waits_for_its_reanalysis_are_waited_for_together(
    rolling: Rolling, reanalysis: Reanalysis
) -> None:
    walk(rolling, "1.1")
    begin(reanalysis, AGAIN)
    rolling.clock.now += 3600
    for number in (2, 3):
        rolling.receive("1.1", number)
        rolling.read()
        assert rolling.rows(study)[0].quiet_until == rolling.clock.now + QUIET_SECONDS
        assert rolling.claim("assemble") == []
        rolling.clock.now += 1
    rolling.close_studies()
    assert sorted(rolling.report()) == [("1.1", "chest@1"), ("1.1", "chest@2")], "once each"


def test_a_study_has_waited_since_its_last_image_was_read(
    rolling: Rolling, reanalysis: Reanalysis
) -> None:
    walk(rolling, "1.1")
    begin(reanalysis, AGAIN)
    rolling.clock.now += 3 * 3600
    rolling.read()
    with transaction(rolling.ledger) as connection:
        (found,) = [
            item
            for item in queues(connection, rolling.clock.now)
            if item["stage"] == "assemble" and item["due"]
        ]
    assert found["oldest_age_seconds"] == 0, "it pages after 300"
    assert [job.lease.waited_seconds for job in rolling.claim("assemble")] == [0]


def test_who_reads_an_archive_does_not_get_its_late_images(
    rolling: Rolling, reanalysis: Reanalysis
) -> None:
    walk(rolling, "1.1")
    begin(reanalysis, ReanalysisRequest("chest@0"))
    rolling.rollouts.start(CONFIGURED, kept("chest@2"), RollOut(RolloutMode.SWITCH), "a person")
    rolling.receive("1.1", 2)
    assert [row.release for row in rolling.rows(reading)] == ["chest@1", "chest@0", "chest@1"]


def test_along_an_archive_nothing_leaves_and_what_was_read_so_can_be_reported_later(
    rolling: Rolling, reanalysis: Reanalysis
) -> None:
    walk(rolling, "1.1")
    (before,) = rolling.rows(study)
    assert begin(reanalysis, ALONG) == 1
    assert rolling.rows(study) == [before]
    assert rolling.read() == ["chest@2"]
    rolling.close_studies()
    assert rolling.compare() == 1
    assert rolling.report() == []
    with closing(LedgerViews(rolling.ledger.url)) as views:
        assert views.last_compared({"chest@2"}) is None
        assert views.last_read_along({"chest@2"}) == ("chest@1", "chest@2")
        assert len(views.compared("chest@1", "chest@2", 10).said) == 1
    assert begin(reanalysis, ALONG) == 0
    assert begin(reanalysis, AGAIN) == 1
    assert rolling.read() == [], "it has read them"
    rolling.close_studies()
    assert rolling.report() == [("1.1", "chest@2")]
    assert [row.state for row in rolling.rows(comparison)] == ["compared"]
    assert begin(reanalysis, AGAIN) == 0


def test_comparisons_of_an_archive_that_takes_days_are_not_tried_each_minute(
    rolling: Rolling, reanalysis: Reanalysis
) -> None:
    walk(rolling, "1.1", "1.2", "1.3")
    begin(reanalysis, ALONG)
    rolling.clock.now += 3600
    assert [row.due_at <= rolling.clock.now for row in rolling.rows(comparison)] == [True] * 3
    assert rolling.compare() == 0
    assert {row.due_at - rolling.clock.now for row in rolling.rows(comparison)} == {3600.0}
    assert rolling.read() == ["chest@2"] * 3
    assert rolling.compare() == 3, "the last reading hastens it all the same"


def test_comparisons_of_studies_that_wait_for_another_release_are_looked_at_ever_more_rarely(
    rolling: Rolling, reanalysis: Reanalysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hilum.processes.comparison_handler.time.time", lambda: rolling.clock.now)
    walk(rolling, "1.1")
    begin(reanalysis, ALONG)
    begin(reanalysis, ReanalysisRequest("chest@3"))
    rolling.read("chest@2")
    pauses = []
    for _ in range(14):
        rolling.compare()
        (row,) = rolling.rows(comparison)
        pauses.append(row.due_at - rolling.clock.now)
        rolling.clock.now = row.due_at
    assert (pauses[:3], pauses[-1], pauses == sorted(pauses)) == ([5, 5, 10], 3600, True)
    rolling.read()
    rolling.close_studies()
    rolling.clock.now += 3600
    assert rolling.compare() == 1


def test_what_is_left_out_is_counted(rolling: Rolling, reanalysis: Reanalysis) -> None:
    walk(rolling, "1.1", "1.2", "1.3")
    rolling.ledger.reject([Rejection("1.1.1", "1.1", RemovalReason.QUALITY, None, "CR1")])
    rolling.close_studies()
    with transaction(rolling.ledger) as connection:
        gone = update(instance).where(instance.c.sop_instance_uid == "1.2.1")
        connection.execute(gone.values(pixels_removed_at=rolling.clock.now))
    rolling.receive("1.4", 1)
    assert counted(reanalysis, AGAIN) == Count(
        studies=1, images=1, open_studies=1, without_pixels=1
    )
    assert begin(reanalysis, AGAIN) == 1
    assert {row.study_instance_uid for row in rolling.rows(reading, release="chest@2")} == {"1.3"}
    assert counted(reanalysis, ReanalysisRequest("chest@1", is_shadow=True)).incomparable == 0


def test_only_what_was_asked_for(rolling: Rolling, reanalysis: Reanalysis) -> None:
    walk(rolling, "1.1")
    rolling.clock.now += 3600
    since = rolling.clock.now
    walk(rolling, "1.2", "1.3")
    assert counted(reanalysis, ReanalysisRequest("chest@2", since=since)).studies == 2
    assert counted(reanalysis, ReanalysisRequest("chest@2", until=since)).studies == 1
    assert (
        counted(reanalysis, ReanalysisRequest("chest@2", study_uids=("1.1", "1.3", "9.9"))).studies
        == 2
    )
    change(
        rolling.ledger,
        update(study)
        .where(study.c.study_instance_uid == "1.1")
        .values(calling_ae_title="DX7", called_ae_title="CHEST"),
    )
    assert counted(reanalysis, ReanalysisRequest("chest@2", calling_ae_title="DX7")).studies == 1
    assert counted(reanalysis, ReanalysisRequest("chest@2", called_ae_title="HILUM")).studies == 2
    assert (
        counted(
            reanalysis,
            ReanalysisRequest("chest@2", calling_ae_title="DX7", called_ae_title="HILUM"),
        ).studies
        == 0
    )


def test_it_goes_in_parts_and_one_that_was_stopped_goes_on(
    rolling: Rolling, reanalysis: Reanalysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reanalyse, "_TOGETHER", 1)
    monkeypatch.setattr(reanalyse, "_RANGE", 2)
    walk(rolling, "1.1", "1.2", "1.3")
    looked = list(reanalysis.look(AGAIN, reanalysis.last_row()))
    assert [(item.until, len(item.ids)) for item in looked] == [(2, 2), (3, 1)]
    assert next(iter(reanalysis.begin(AGAIN, looked[0].ids))) == Count(studies=1, images=1)
    assert counted(reanalysis, AGAIN).studies == 2
    ids = [number for item in looked for number in item.ids]
    assert [done.studies for done in reanalysis.begin(AGAIN, ids)] == [
        0,
        1,
        1,
    ], "somebody else may be at it, too"


def test_a_shadow_is_compared_with_the_nearest_release(
    rolling: Rolling, reanalysis: Reanalysis
) -> None:
    rolling.receive("1.1", 1)
    rolling.receive("1.1", 2, configured="other@1")
    rolling.read()
    rolling.releases["other@1"] = rolling.releases["chest@3"]
    rolling.close_studies()
    begin(reanalysis, ALONG)
    begin(
        reanalysis,
        ReanalysisRequest("chest@3", is_shadow=True, peers=frozenset({"other@1", "chest@3"})),
    )
    assert {(row.release, row.shadow) for row in rolling.rows(comparison)} == {
        ("chest@1", "chest@2"),
        ("other@1", "chest@3"),
    }
