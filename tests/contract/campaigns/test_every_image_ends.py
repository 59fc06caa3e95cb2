"""A campaign ends, with a reason for each image that was not read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hilum.domain import (
    Advance,
    CampaignOptions,
    CampaignState,
    ExpectedImage,
    PlannedSeries,
    ReadingJob,
    ReadingState,
    Rejection,
    RemovalReason,
)
from hilum.retrieve.source import FetchReport, FetchRequest, ObjectStore, SourceError
from hilum.store.campaigns.campaigns import PlanPart
from hilum.store.schema.tables import (
    campaign_image,
    campaign_series,
    instance,
    reading,
    result,
    study,
)
from tests.support.campaigns.scripted_source import (
    QUIET_SECONDS,
    ScriptedCampaign,
    scripted_campaign,
)
from tests.support.ledger.arrivals import arrival_of
from tests.support.ledger.database import change
from tests.support.ledger.rolling import Rolling, kept

TWO = {"1.1.7": ["1.1.7.1", "1.1.7.2"]}


@pytest.fixture
def scripted(rolling: Rolling, tmp_path: Path) -> Iterator[ScriptedCampaign]:
    with scripted_campaign(rolling, tmp_path / "archive") as opened:
        yield opened


def images_of(scripted: ScriptedCampaign) -> list[tuple[str, str | None]]:
    return [(row.state, row.reason) for row in scripted.rolling.rows(campaign_image)]


def series_of(scripted: ScriptedCampaign) -> list[tuple[str, str | None]]:
    return [(row.state, row.reason) for row in scripted.rolling.rows(campaign_series)]


def reject(scripted: ScriptedCampaign, uid: str, study_uid: str, sender: str) -> None:
    note = Rejection(uid, study_uid, RemovalReason.QUALITY, "2.25.9", sender)
    scripted.rolling.ledger.reject([note])


def test_an_image_that_was_rejected_before_is_not_waited_for(scripted: ScriptedCampaign) -> None:
    scripted.rolling.receive("1.1", 1)
    scripted.rolling.receive("1.1", 2)
    scripted.rolling.read()
    scripted.rolling.close_studies()
    reject(scripted, "1.1.1", "1.1", "CR1")
    scripted.rolling.close_studies()
    scripted.plan({"1.1.0": ["1.1.1", "1.1.2"]})
    scripted.finish(scripted.run())

    assert images_of(scripted) == [("released", "rejected"), ("released", None)]
    assert not scripted.source.requests


def test_an_image_whose_reading_fails_ends_with_the_reason(scripted: ScriptedCampaign) -> None:
    scripted.plan(TWO)
    runner = scripted.run()
    scripted.turn(runner)
    for job in scripted.rolling.claim("analyse"):
        assert isinstance(job, ReadingJob)
        failed = Advance(ReadingState.FAILED, {"reason": "attempts_exhausted"})
        scripted.rolling.ledger.advance("analyse", [(job.lease, failed)])
    scripted.finish(runner)

    assert {reason for _, reason in images_of(scripted)} == {"attempts_exhausted"}
    assert series_of(scripted) == [("read", None)]


def test_a_study_that_failed_does_not_hold_a_campaign(scripted: ScriptedCampaign) -> None:
    scripted.rolling.receive("1.1", 1)
    scripted.rolling.read()
    change(scripted.rolling.ledger, study.update().values(state="failed"))
    scripted.plan({"1.1.0": ["1.1.1"]})
    scripted.finish(scripted.run())

    assert images_of(scripted) == [("released", "failed")]


def test_images_of_a_dead_series_are_read_to_their_end(scripted: ScriptedCampaign) -> None:
    scripted.plan(TWO)
    scripted.source.withheld = {"1.1.7.2"}
    scripted.source.availability = "OFFLINE"
    scripted.source.report = FetchReport("0000")
    runner = scripted.run()
    scripted.turn(runner, rounds=2)
    scripted.pass_time(QUIET_SECONDS + 1)
    scripted.turn(runner)
    dead = series_of(scripted)
    scripted.pass_time(QUIET_SECONDS + 1)
    is_over = scripted.turn(runner)
    scripted.finish(runner)

    assert dead == [("dead", "offline")]
    assert not is_over, "an image of it is not read yet"
    assert images_of(scripted)[0] in [("read", None), ("released", None)]
    assert images_of(scripted)[1] == ("missing", "offline")


def test_one_late_image_leaves_the_reason_of_the_others(scripted: ScriptedCampaign) -> None:
    scripted.plan({"1.1.7": ["1.1.7.1", "1.1.7.2"], "1.2.7": ["1.2.7.1"]})
    scripted.source.late = {"1.1.7.1"}
    scripted.source.withheld = {"1.1.7.2"}
    scripted.source.availability = "OFFLINE"
    runner = scripted.run()
    for _ in range(4):
        scripted.turn(runner)
        scripted.pass_time(QUIET_SECONDS + 1)
    scripted.source.send_late()
    scripted.finish(runner)

    states = images_of(scripted)
    assert states[0][0] in ("read", "released")
    assert states[1] == ("missing", "offline")


def test_a_series_that_cannot_be_listed_is_dead_after_its_attempts(
    scripted: ScriptedCampaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(study_uid: str, series_uid: str) -> Sequence[ExpectedImage]:
        raise SourceError(f"C000 for {series_uid} of {study_uid}")

    scripted.plan(TWO)
    monkeypatch.setattr(scripted.source, "images", refuse)
    scripted.finish(scripted.run(), rounds=400)

    assert series_of(scripted) == [("dead", "refused_by_source")]


def test_images_that_cannot_come_are_not_asked_for_again(scripted: ScriptedCampaign) -> None:
    scripted.plan(TWO)
    scripted.source.withheld = {"1.1.7.2"}
    scripted.source.report = FetchReport("incomplete", "a file is damaged", may_repeat=False)
    scripted.finish(scripted.run())

    assert series_of(scripted) == [("dead", "refused_by_source")]
    assert len(scripted.source.requests) == 1


def test_two_files_of_one_image_are_one_reading(scripted: ScriptedCampaign) -> None:
    scripted.source.series = {"1.1.7": ["1.1.7.1"]}
    known = scripted.campaigns.create("old", "pacs", {})
    twice = [ExpectedImage("1.1.7.1", origin=path) for path in ("a.dcm", "b.dcm")]
    part = PlanPart("1", [(PlannedSeries("1.1", "1.1.7"), twice)])
    scripted.campaigns.add(known.id, part)
    added_again = scripted.campaigns.add(known.id, part)
    scripted.campaigns.end_plan("old")
    scripted.finish(scripted.run())

    assert added_again == 0
    assert len(images_of(scripted)) == 2
    assert len(scripted.rolling.rows(reading)) == 1
    assert scripted.state is CampaignState.FINISHED


def test_other_pixels_under_a_uid_wait_for_a_person(
    scripted: ScriptedCampaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send_other_study(wanted: FetchRequest, store: ObjectStore, stop: object) -> FetchReport:
        del store, stop
        for image in wanted.images:
            uid = image.sop_instance_uid
            other = arrival_of(uid, "9.9", (), digest="another", pixel_digest="another")
            scripted.rolling.ledger.record([other])
        return FetchReport("0000")

    first = arrival_of("1.1.7.1", "1.1", ())
    scripted.rolling.ledger.record([first])
    scripted.rolling.close_studies()
    change(scripted.rolling.ledger, instance.update().values(pixels_removed_at=1.0))
    scripted.plan({"1.1.7": ["1.1.7.1"]})
    monkeypatch.setattr(scripted.source, "fetch", send_other_study)
    scripted.finish(scripted.run())

    assert images_of(scripted) == [("missing", "conflict")]
    assert series_of(scripted) == [("dead", "conflict")]


def test_retry_leaves_an_erased_series(scripted: ScriptedCampaign) -> None:
    scripted.plan(TWO)
    scripted.run()
    erased = {"state": "dead", "reason": "erased"}
    change(scripted.rolling.ledger, campaign_series.update().values(**erased))

    assert scripted.campaigns.retry("old") == 0


def test_a_cancelled_campaign_wants_no_image_that_another_one_fetches(
    scripted: ScriptedCampaign,
) -> None:
    scripted.plan(TWO)
    runner = scripted.run()
    scripted.source.away = True
    scripted.turn(runner)
    scripted.campaigns.change("old", "cancel")
    scripted.source.away = False

    assert scripted.rolling.ledger.campaigns_of(["1.1.7.1"]) == {}


def test_a_shadow_reading_that_a_campaign_takes_stays_the_campaigns(
    scripted: ScriptedCampaign,
) -> None:
    scripted.rolling.receive("1.1", 1)
    scripted.rolling.read()
    scripted.rolling.close_studies()
    (row,) = scripted.rolling.rows(reading)
    of_shadow = {
        **{name: value for name, value in row._asdict().items() if name != "id"},
        "release": "chest@2",
        "is_shadow": True,
    }
    change(scripted.rolling.ledger, reading.insert().values(of_shadow))
    scripted.plan({"1.1.0": ["1.1.1"]})
    scripted.finish(scripted.run())

    made = {item.release: item.campaign_id for item in scripted.rolling.rows(result)}
    assert made == {"chest@1": None, "chest@2": scripted.found.id}


def test_a_source_that_is_away_is_asked_again_after_a_pause(scripted: ScriptedCampaign) -> None:
    scripted.plan(TWO)
    scripted.campaigns.run("old", "chest@2", CampaignOptions(), kept("chest@2"))
    scripted.source.away = True
    pause = scripted.pause_after_a_turn(scripted.run())

    assert pause is not None
    assert pause > 0


def test_a_campaign_is_not_over_before_its_results_are_there(scripted: ScriptedCampaign) -> None:
    scripted.rolling.receive("1.1", 1)
    scripted.rolling.read()
    scripted.rolling.close_studies()
    scripted.plan({"1.1.0": ["1.1.1"]})
    runner = scripted.run()
    scripted.turn(runner, rounds=3)
    scripted.rolling.read()
    before = scripted.turn(runner, rounds=2)
    scripted.rolling.close_studies()
    after = scripted.turn(runner)

    assert (before, after) == (False, True)
    assert [row.release for row in scripted.rolling.rows(result)] == ["chest@1", "chest@2"]
