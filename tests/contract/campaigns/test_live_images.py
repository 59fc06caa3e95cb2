"""A live image stays live, whatever a campaign has brought before it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hilum.domain import Advance, CampaignState, Priority, ResultState
from hilum.receive.indexing.arrivals import arrivals_of
from hilum.settings import Settings
from hilum.store.ledger import RecordOutcome
from hilum.store.schema.tables import campaign_image, instance, reading, result, study
from tests.support.campaigns.scripted_source import ScriptedCampaign, scripted_campaign
from tests.support.ledger.arrivals import arrival_of
from tests.support.ledger.rolling import Rolling
from tests.support.rules.studies import settings_with

ONE = {"1.1.7": ["1.1.7.1"]}


@pytest.fixture
def scripted(rolling: Rolling, tmp_path: Path) -> Iterator[ScriptedCampaign]:
    with scripted_campaign(rolling, tmp_path / "archive") as opened:
        yield opened


def send_live(
    scripted: ScriptedCampaign, uid: str, release: str = "chest@1", **changes: object
) -> RecordOutcome:
    """A modality sends an image to our usual AE Title; its route names `release`."""
    rolling = scripted.rolling
    came = {"calling_ae_title": "CR1", "received_at": rolling.clock.now, **changes}
    settings = Settings.model_validate({"models": {"releases": [release]}})
    instance_of = arrival_of(uid, "1.1", (), **came).instance  # type: ignore[arg-type]
    arrivals = arrivals_of(
        [instance_of], settings, rolling.ledger.known_studies, rolling.ledger.campaigns_of
    )
    (outcome,) = rolling.ledger.record(arrivals)
    return outcome


def read_and_close(scripted: ScriptedCampaign) -> None:
    scripted.rolling.read()
    scripted.rolling.close_studies()


def test_a_live_image_that_a_campaign_brought_before_is_read_by_its_route(
    scripted: ScriptedCampaign,
) -> None:
    scripted.plan(ONE)
    runner = scripted.run()
    scripted.turn(runner)
    read_and_close(scripted)
    for job in scripted.rolling.claim("report"):
        scripted.rolling.ledger.advance("report", [(job.lease, Advance(ResultState.REPORTED))])
    scripted.pass_time(1.0)
    scripted.turn(runner)
    outcome = send_live(scripted, "1.1.7.1")

    live = [row for row in scripted.rolling.rows(reading) if row.release == "chest@1"]
    assert outcome is RecordOutcome.RESTORED
    assert [(row.priority, row.campaign_id, row.state) for row in live] == [
        (Priority.LIVE, None, "due")
    ]


def test_its_row_and_its_study_become_the_live_senders(scripted: ScriptedCampaign) -> None:
    scripted.plan(ONE)
    scripted.turn(scripted.run())
    outcome = send_live(scripted, "1.1.7.1")

    (image,) = scripted.rolling.rows(instance)
    (grown,) = scripted.rolling.rows(study)
    assert outcome is RecordOutcome.DUPLICATE
    assert (image.calling_ae_title, image.called_ae_title) == ("CR1", "HILUM")
    assert (grown.calling_ae_title, grown.called_ae_title) == ("CR1", "HILUM")
    assert grown.priority == Priority.LIVE
    assert {row.release for row in scripted.rolling.rows(reading)} == {"chest@1", "chest@2"}


def test_the_rules_decide_anew_by_the_live_image(scripted: ScriptedCampaign) -> None:
    of_campaigns = {"name": "fetched", "when": {"campaign": True}, "then": {"destinations": []}}
    scripted.settings = settings_with(of_campaigns)
    scripted.plan(ONE)
    scripted.turn(scripted.run())
    (before,) = scripted.rolling.rows(study)
    live = arrival_of("1.1.7.1", "1.1", (), calling_ae_title="CR1").instance
    ledger = scripted.rolling.ledger
    ledger.record(arrivals_of([live], scripted.settings, ledger.known_studies, ledger.campaigns_of))

    (after,) = scripted.rolling.rows(study)
    assert (before.rule, after.rule) == ("fetched", "default")
    assert (after.calling_ae_title, after.rule_effect) == ("CR1", {})


def test_a_rule_keeps_a_live_image_from_releases_that_a_campaign_had_read(
    scripted: ScriptedCampaign,
) -> None:
    effect = {"not_analysed": True, "reason": "no consent"}
    no_consent = {"name": "no consent", "when": {"calling": "CR1"}, "then": effect}
    scripted.plan(ONE)
    scripted.turn(scripted.run())
    live = arrival_of("1.1.7.1", "1.1", (), calling_ae_title="CR1").instance
    ledger = scripted.rolling.ledger
    settings = settings_with(no_consent)
    ledger.record(arrivals_of([live], settings, ledger.known_studies, ledger.campaigns_of))

    states = {row.release: row.reason for row in scripted.rolling.rows(reading)}
    assert states["chest@1"] == "not_analysed_by_rule"
    (grown,) = scripted.rolling.rows(study)
    assert grown.open_readings == sum(row.state == "due" for row in scripted.rolling.rows(reading))


def test_it_is_read_once_however_often_it_is_sent(scripted: ScriptedCampaign) -> None:
    scripted.plan(ONE)
    scripted.turn(scripted.run())
    for _ in range(3):
        send_live(scripted, "1.1.7.1")
    read_and_close(scripted)

    assert len(scripted.rolling.rows(reading)) == 2
    assert [row.open_readings for row in scripted.rolling.rows(study)] == [0]


def test_a_header_that_differs_is_the_live_senders(scripted: ScriptedCampaign) -> None:
    scripted.plan(ONE)
    scripted.turn(scripted.run())
    outcome = send_live(scripted, "1.1.7.1", digest="another")

    assert outcome is RecordOutcome.HEADER_REVISION
    assert {row.release for row in scripted.rolling.rows(reading)} == {"chest@1", "chest@2"}


def test_a_result_by_the_release_of_the_live_route_is_made_anew_and_reported(
    scripted: ScriptedCampaign,
) -> None:
    scripted.plan(ONE)
    runner = scripted.run()
    scripted.finish(runner)
    send_live(scripted, "1.1.7.1", release="chest@2")
    read_and_close(scripted)

    made = scripted.rolling.rows(result)
    assert [(row.campaign_id is None, row.is_current) for row in made] == [
        (False, False),
        (True, True),
    ]
    assert len(scripted.rolling.rows(reading)) == 1, "the pixels are not read twice"


def test_its_pixels_are_kept_as_those_of_a_live_image(scripted: ScriptedCampaign) -> None:
    scripted.plan(ONE)
    runner = scripted.run()
    scripted.turn(runner)
    send_live(scripted, "1.1.7.1")
    scripted.finish(runner)

    assert scripted.state is CampaignState.FINISHED
    assert [row.pixels_removed_at for row in scripted.rolling.rows(instance)] == [None]
    assert [row.state for row in scripted.rolling.rows(campaign_image)] == ["released"]


def test_an_image_that_a_live_sender_brought_first_stays_its_own(
    scripted: ScriptedCampaign,
) -> None:
    scripted.plan(ONE)
    send_live(scripted, "1.1.7.1")
    scripted.finish(scripted.run())

    assert not scripted.source.requests
    assert [row.calling_ae_title for row in scripted.rolling.rows(study)] == ["CR1"]
    assert [(row.release, row.campaign_id is None) for row in scripted.rolling.rows(result)] == [
        ("chest@1", True),
        ("chest@2", False),
    ]


def test_a_correction_of_a_study_that_a_campaign_has_added_to_is_reported(
    scripted: ScriptedCampaign,
) -> None:
    send_live(scripted, "1.1.7.1", release="chest@2")
    read_and_close(scripted)
    scripted.plan({"1.1.7": ["1.1.7.1", "1.1.7.2"]})
    scripted.finish(scripted.run())
    send_live(scripted, "1.1.7.1", release="chest@2", digest="corrected")
    read_and_close(scripted)

    assert scripted.rolling.rows(result)[-1].campaign_id is None


def test_a_live_image_does_not_wait_behind_a_campaign_for_the_report_of_its_study(
    scripted: ScriptedCampaign,
) -> None:
    send_live(scripted, "1.1.7.9")
    scripted.plan(ONE)
    scripted.turn(scripted.run())

    rows = scripted.rolling.rows(reading)
    assert {row.release: row.priority for row in rows} == {
        "chest@1": Priority.LIVE,
        "chest@2": Priority.LIVE,
    }


def test_an_image_of_a_campaign_stays_last_in_a_study_whose_live_images_were_reported(
    scripted: ScriptedCampaign,
) -> None:
    send_live(scripted, "1.1.7.9")
    read_and_close(scripted)
    scripted.pass_time(100.0)
    scripted.plan({"1.1.7": ["1.1.7.1", "1.1.7.2"]})
    scripted.turn(scripted.run())

    priorities = [row.priority for row in scripted.rolling.rows(reading, release="chest@2")]
    assert priorities == [Priority.REANALYSIS] * 2
