"""A campaign's rounds on a real ledger: what counts is what was stored, whatever a status says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hilum.domain import Advance, CampaignState, Priority, ResultState
from hilum.retrieve.source import FetchReport, SourceError
from hilum.services.campaigns.gate import OpenGate
from hilum.services.campaigns.progress import MAXIMUM_INTERRUPTIONS
from hilum.settings import CampaignLimits
from hilum.store.schema.tables import (
    campaign,
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
from tests.support.ledger.rolling import Rolling

REPORTED = Advance(ResultState.REPORTED)
TWO = {"1.1.7": ["1.1.7.1", "1.1.7.2"]}


@pytest.fixture
def scripted(rolling: Rolling, tmp_path: Path) -> Iterator[ScriptedCampaign]:
    with scripted_campaign(rolling, tmp_path / "archive") as opened:
        yield opened


def states(scripted: ScriptedCampaign) -> list[str]:
    return [row.state for row in scripted.rolling.rows(campaign_series)]


def image_states(scripted: ScriptedCampaign) -> list[str]:
    return [row.state for row in scripted.rolling.rows(campaign_image)]


def test_images_of_a_campaign_are_read_by_its_release_alone_and_last(
    scripted: ScriptedCampaign,
) -> None:
    scripted.plan(TWO)
    runner = scripted.run()
    scripted.turn(runner)

    rows = scripted.rolling.rows(reading)
    assert [(row.release, row.priority) for row in rows] == [("chest@2", Priority.REANALYSIS)] * 2
    assert {row.campaign_id for row in rows} == {scripted.found.id}


def test_a_campaign_ends_when_each_series_is_read(scripted: ScriptedCampaign) -> None:
    scripted.plan({**TWO, "1.2.7": ["1.2.7.1"]})
    scripted.finish(scripted.run())

    assert scripted.state is CampaignState.FINISHED
    assert states(scripted) == ["read", "read"]
    assert max(scripted.source.fetched.values()) == 1


def test_its_result_names_the_campaign(scripted: ScriptedCampaign) -> None:
    scripted.plan(TWO)
    scripted.finish(scripted.run())

    (made,) = scripted.rolling.rows(result)
    assert made.campaign_id == scripted.found.id


def test_pixels_that_came_for_a_campaign_leave_when_it_has_read_them(
    scripted: ScriptedCampaign,
) -> None:
    scripted.plan(TWO)
    runner = scripted.run()
    scripted.turn(runner)
    scripted.rolling.read()
    scripted.rolling.close_studies()
    for row in scripted.rolling.claim("report"):
        scripted.rolling.ledger.advance("report", [(row.lease, REPORTED)])
    scripted.pass_time(1.0)
    scripted.turn(runner)

    assert all(row.pixels_removed_at for row in scripted.rolling.rows(instance))
    assert image_states(scripted) == ["released", "released"]


def test_success_without_an_image_is_tried_again_and_then_dead(
    scripted: ScriptedCampaign,
) -> None:
    scripted.plan(TWO)
    scripted.source.withheld = {"1.1.7.2"}
    scripted.finish(scripted.run(), rounds=400)

    (series,) = scripted.rolling.rows(campaign_series)
    assert (series.state, series.reason) == ("dead", "not_received")
    assert scripted.source.requests == [("1.1.7.1", "1.1.7.2"), *[("1.1.7.2",)] * 3], (
        "what is here is not asked for again"
    )


def test_images_that_come_after_success_are_waited_for(scripted: ScriptedCampaign) -> None:
    scripted.plan(TWO)
    scripted.source.late = {"1.1.7.1", "1.1.7.2"}
    runner = scripted.run()
    scripted.turn(runner)
    scripted.pass_time(QUIET_SECONDS - 1)
    scripted.turn(runner)
    scripted.source.send_late()
    scripted.finish(runner)

    assert states(scripted) == ["read"]
    assert len(scripted.source.requests) == 1


def test_a_failure_with_all_images_here_is_no_failure(scripted: ScriptedCampaign) -> None:
    scripted.plan(TWO)
    scripted.source.report = FetchReport("C000", "unable to process", may_follow=True)
    scripted.finish(scripted.run())

    assert states(scripted) == ["read"]


def test_an_image_that_comes_after_its_series_was_dead_makes_it_whole(
    scripted: ScriptedCampaign,
) -> None:
    scripted.plan({**TWO, "1.2.7": ["1.2.7.1"]})
    scripted.source.late = {"1.1.7.2"}
    scripted.source.withheld = set()
    runner = scripted.run()
    scripted.limits = CampaignLimits()
    for _ in range(400):
        scripted.turn(runner)
        scripted.pass_time(100.0)
        if "dead" in states(scripted):
            break
    scripted.source.send_late()
    scripted.rolling.read()
    scripted.pass_time(100.0)
    scripted.turn(runner)

    assert states(scripted)[0] == "read"


def test_an_outage_counts_no_attempt_and_kills_no_series(scripted: ScriptedCampaign) -> None:
    scripted.plan({f"1.{number}.7": [f"1.{number}.7.1"] for number in range(5)})
    scripted.source.away = True
    runner = scripted.run()
    scripted.turn(runner, rounds=30)
    away = [(row.state, row.attempts) for row in scripted.rolling.rows(campaign_series)]
    scripted.source.away = False
    scripted.finish(runner)

    assert away == [("found", 0)] * 5
    assert states(scripted) == ["read"] * 5


class RecordingGate(OpenGate):
    """Open, and remembers how requests ended."""

    def __init__(self) -> None:
        self.outages: list[bool] = []

    def ended(self, images: int, seconds: float, *, is_outage: bool) -> None:
        """Remember it."""
        del images, seconds
        self.outages.append(is_outage)


def test_a_refusal_that_a_person_must_mend_lets_the_source_rest_as_an_outage_does(
    scripted: ScriptedCampaign,
) -> None:
    scripted.plan(TWO)
    scripted.source.refusal = SourceError("called AE Title not recognized", is_final=True)
    scripted.gate = gate = RecordingGate()
    scripted.turn(scripted.run())

    assert gate.outages == [True]
    assert states(scripted) == ["found"]
    assert scripted.found.detail == "called AE Title not recognized"


def test_a_lease_is_renewed_when_half_of_it_is_over(scripted: ScriptedCampaign) -> None:
    scripted.plan(TWO)
    scripted.run()

    def leased_until() -> float:
        (held,) = scripted.campaigns.own("retriever:a", 30.0)
        assert held.name == "old"
        (row,) = scripted.rolling.rows(campaign)
        return float(row.owned_until)

    first = leased_until()
    scripted.pass_time(14.0)
    assert leased_until() == first
    scripted.pass_time(2.0)
    assert leased_until() == first + 16.0


def test_a_lease_goes_to_another_process_when_it_has_lapsed(scripted: ScriptedCampaign) -> None:
    scripted.plan(TWO)
    scripted.run()
    assert scripted.campaigns.own("retriever:a", 30.0)

    scripted.pass_time(29.0)
    assert not scripted.campaigns.own("retriever:b", 30.0)
    scripted.pass_time(2.0)
    assert scripted.campaigns.own("retriever:b", 30.0)
    assert not scripted.campaigns.own("retriever:a", 30.0)


def test_a_series_without_images_ends_as_nothing_to_read(scripted: ScriptedCampaign) -> None:
    scripted.plan({"1.1.7": []})
    scripted.finish(scripted.run())

    assert states(scripted) == ["nothing_to_read"]


def test_offline_images_are_dead_at_once(scripted: ScriptedCampaign) -> None:
    scripted.plan(TWO)
    scripted.source.withheld = {"1.1.7.1", "1.1.7.2"}
    scripted.source.availability = "OFFLINE"
    scripted.finish(scripted.run())

    (series,) = scripted.rolling.rows(campaign_series)
    assert (series.state, series.reason, series.attempts) == ("dead", "offline", 1)


def test_a_new_process_asks_for_nothing_that_is_here(scripted: ScriptedCampaign) -> None:
    scripted.plan({**TWO, "1.2.7": ["1.2.7.1"]})
    scripted.turn(scripted.run(), rounds=1)
    scripted.finish(scripted.run())

    assert dict(scripted.source.fetched) == {"1.1.7.1": 1, "1.1.7.2": 1, "1.2.7.1": 1}


def test_a_request_that_a_kill_interrupted_is_no_attempt_and_is_made_again(
    scripted: ScriptedCampaign,
) -> None:
    scripted.plan(TWO)
    scripted.source.withheld = {"1.1.7.2"}
    for _ in range(6):
        follower = scripted.run()
        scripted.turn(follower)
        scripted.pass_time(QUIET_SECONDS)
        scripted.turn(follower)  # asks again, and ends
    (series,) = scripted.rolling.rows(campaign_series)
    scripted.source.withheld = set()
    scripted.finish(scripted.run())

    assert (series.state, series.attempts, series.interruptions) == ("requested", 1, 5)
    assert scripted.source.requests[1:] == [("1.1.7.2",)] * (len(scripted.source.requests) - 1)
    assert states(scripted) == ["read"]


def test_a_source_that_sends_only_in_its_answers_is_asked_again_at_once(
    scripted: ScriptedCampaign,
) -> None:
    scripted.plan(TWO)
    scripted.source.report = FetchReport("200", may_follow=False)
    scripted.source.withheld = {"1.1.7.2"}
    scripted.turn(scripted.run())
    follower = scripted.run()
    scripted.turn(follower)
    scripted.source.withheld = set()
    scripted.pass_time(1.0)
    scripted.turn(follower)

    assert scripted.source.requests == [("1.1.7.1", "1.1.7.2"), ("1.1.7.2",)]


def test_a_series_whose_request_ends_the_process_each_time_is_dead_in_the_end(
    scripted: ScriptedCampaign,
) -> None:
    scripted.plan(TWO)
    scripted.source.withheld = {"1.1.7.2"}
    for _ in range(60):
        follower = scripted.run()
        scripted.turn(follower)
        scripted.pass_time(QUIET_SECONDS)
        scripted.turn(follower)  # asks again, and ends the process
        scripted.pass_time(1800.0)
        if states(scripted) == ["dead"]:
            break

    (series,) = scripted.rolling.rows(campaign_series)
    assert (series.state, series.reason) == ("dead", "not_received")
    assert series.interruptions == MAXIMUM_INTERRUPTIONS


def test_a_study_that_is_here_is_read_without_being_fetched(scripted: ScriptedCampaign) -> None:
    scripted.rolling.receive("1.1", 1)
    scripted.rolling.read()
    scripted.rolling.close_studies()
    scripted.rolling.report()
    scripted.plan({"1.1.0": ["1.1.1"]})
    scripted.finish(scripted.run())

    assert states(scripted) == ["read"]
    assert not scripted.source.requests
    assert [row.release for row in scripted.rolling.rows(reading)] == ["chest@1", "chest@2"]


def test_nothing_is_asked_for_while_too_many_images_are_unread(
    scripted: ScriptedCampaign,
) -> None:
    scripted.limits = CampaignLimits(maximum_unread_images=2)
    scripted.plan({f"1.{number}.7": [f"1.{number}.7.1"] for number in range(6)})
    scripted.turn(scripted.run(), rounds=10)

    assert len(scripted.source.requests) == 2


def test_nothing_is_asked_for_while_there_is_an_obstacle(scripted: ScriptedCampaign) -> None:
    scripted.plan(TWO)
    scripted.obstacle = "live images wait"
    scripted.turn(scripted.run(), rounds=3)

    assert not scripted.source.requests
    assert scripted.found.detail == "live images wait"


def test_a_cancelled_campaign_reads_what_it_has_and_asks_for_no_more(
    scripted: ScriptedCampaign,
) -> None:
    scripted.limits = CampaignLimits(maximum_unread_images=1)
    scripted.plan({"1.1.7": ["1.1.7.1"], "1.2.7": ["1.2.7.1"]})
    runner = scripted.run()
    scripted.turn(runner)
    scripted.campaigns.change("old", "cancel")
    scripted.finish(runner)

    assert states(scripted) == ["read", "found"]
    assert scripted.state is CampaignState.CANCELLED


def test_dead_series_begin_again_by_retry(scripted: ScriptedCampaign) -> None:
    scripted.plan(TWO)
    scripted.source.withheld = {"1.1.7.2"}
    scripted.finish(scripted.run(), rounds=400)
    scripted.source.withheld = set()
    count = scripted.campaigns.retry("old")
    scripted.finish(scripted.run())

    assert count == 1
    assert states(scripted) == ["read"]
    assert scripted.source.fetched["1.1.7.1"] == 1


def test_a_live_image_of_a_fetched_study_makes_the_study_live(
    scripted: ScriptedCampaign,
) -> None:
    scripted.plan(TWO)
    scripted.finish(scripted.run())
    scripted.rolling.receive("1.1", 9)

    (row,) = scripted.rolling.rows(study)
    assert row.priority == Priority.LIVE
