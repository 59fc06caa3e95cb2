"""Every kind of destination, against a real receiver.

A new kind needs a row in `RECEIVERS` of `tests/support/deliver/receivers.py` beside its rows in the
two tables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hilum.deliver import DESTINATIONS, probe_destination
from hilum.domain import DeliveryJob, DeliveryState, Document
from hilum.errors import Refused, Retry
from hilum.processes.dispatcher import DeliverHandler
from hilum.report import build_documents
from hilum.settings import DESTINATION_KINDS, Settings, describe, restore
from hilum.supervisor.checks.peers import peers
from hilum.withheld_reports import Subject, cause_of
from testing.phantoms.phantom import make_study
from tests.support.deliver.receivers import RECEIVERS, TITLE, Receiver
from tests.support.ledger.dispatching import InThisProcess
from tests.support.reports.results import CONTEXT, LEASE, make_release, report_of
from tests.support.server.api_client import open_rig

every_kind = pytest.mark.parametrize("kind", list(DESTINATION_KINDS))


@pytest.fixture(scope="module")
def reports() -> Mapping[str, Document]:
    """A document of each kind that a row of RECEIVERS sends."""
    release = make_release()
    job = report_of(make_study(1, views=("PA",), rows=32, columns=32), release)
    kinds = dict.fromkeys(kind.sends for kind in RECEIVERS.values())
    return {item.kind: item for item in build_documents(job, release, CONTEXT, kinds)}


@pytest.fixture
def report(kind: str, reports: Mapping[str, Document]) -> Document:
    return reports[RECEIVERS[kind].sends]


def settings_with(receiver: Receiver, **changes: Any) -> Settings:
    return Settings(destinations={"out": {**receiver.section, **changes}})  # type: ignore[dict-item]


def send(settings: Settings, document: Document, sender: str) -> DeliveryState:
    """Deliver it as the dispatcher does."""
    pipeline = settings.pipeline
    handler = DeliverHandler("out", settings.destinations["out"], InThisProcess(), pipeline)
    job = DeliveryJob(
        lease=LEASE,
        destination="out",
        document=document,
        study_instance_uid="1.2.3",
        release="densenet121@2",
        is_trained=True,
        last_received_at=0.0,
        quiet_until=0.0,
        calling_ae_title=sender,
        peer_address="127.0.0.1",
    )
    try:
        state = asyncio.run(handler.handle(job)).state
    finally:
        handler.close()
    assert isinstance(state, DeliveryState)
    return state


def test_each_kind_has_a_row_in_each_table() -> None:
    assert list(DESTINATION_KINDS) == list(DESTINATIONS) == list(RECEIVERS)
    for name, model in DESTINATION_KINDS.items():
        assert model.model_fields["kind"].default == name


@every_kind
def test_a_document_arrives_once_however_often_it_is_sent(
    kind: str, tmp_path: Path, report: Document
) -> None:
    with RECEIVERS[kind].open(tmp_path) as receiver:
        settings = settings_with(receiver)
        states = [send(settings, report, receiver.sender) for _ in range(2)]
        assert states == [DeliveryState.DELIVERED] * 2
        assert receiver.held() == [RECEIVERS[kind].identity(report)]


@every_kind
def test_a_receiver_that_will_never_take_it_is_a_refusal(
    kind: str, tmp_path: Path, report: Document
) -> None:
    with RECEIVERS[kind].refusing(tmp_path, report) as receiver:
        with pytest.raises(Refused) as caught:
            send(settings_with(receiver), report, receiver.sender)
        assert caught.value.reason
        assert caught.value.detail


@every_kind
def test_a_receiver_that_is_away_is_an_outage(kind: str, tmp_path: Path, report: Document) -> None:
    receiver = RECEIVERS[kind].away(tmp_path)
    with pytest.raises(Retry) as caught:
        send(settings_with(receiver), report, receiver.sender)
    assert caught.value.is_outage
    assert receiver.held() == []


@every_kind
def test_a_report_of_untrained_weights_is_withheld(kind: str, tmp_path: Path) -> None:
    receiver = RECEIVERS[kind].away(tmp_path)
    subject = Subject(is_trained=False, calling_ae_title=TITLE, peer_address="127.0.0.1")
    refusing = settings_with(receiver).destinations["out"]
    accepting = settings_with(receiver, accept_untrained=True).destinations["out"]
    cause = cause_of(refusing, subject)
    assert cause is not None
    assert cause.reason == "untrained_weights"
    assert cause_of(accepting, subject) is None


@every_kind
def test_a_probe_leaves_nothing_behind_and_says_what_is_wrong(kind: str, tmp_path: Path) -> None:
    with RECEIVERS[kind].open(tmp_path) as receiver:
        found = probe_destination("out", settings_with(receiver).destinations["out"])
        assert (found.is_ok, found.address) == (True, receiver.address)
        assert receiver.held() == []
    away = RECEIVERS[kind].away(tmp_path)
    found = probe_destination("out", settings_with(away).destinations["out"])
    assert found.is_ok is not RECEIVERS[kind].probe_knows
    assert found.detail


@every_kind
def test_check_says_what_the_probe_says(kind: str, tmp_path: Path) -> None:
    settings = settings_with(RECEIVERS[kind].away(tmp_path))
    found = probe_destination("out", settings.destinations["out"])
    (check,) = peers(settings)
    assert (check.name, check.ok, check.advice) == ("destination out", found.is_ok, found.advice)
    assert found.detail in check.detail


@every_kind
def test_pages_and_rest_show_its_kind_and_its_address(kind: str, tmp_path: Path) -> None:
    receiver = RECEIVERS[kind].away(tmp_path)
    destinations = settings_with(receiver).destinations
    with open_rig(tmp_path, destinations=destinations) as rig:
        (shown,) = [
            item
            for item in rig.get("/api/v1/destinations")["destinations"]
            if item["name"] == "out"
        ]
        page = rig.client.get("/destinations").text
    assert (shown["kind"], shown["address"]) == (kind, receiver.address)
    assert f"{kind} {receiver.address}" in page


@every_kind
def test_its_settings_survive_the_way_to_a_child_process(kind: str, tmp_path: Path) -> None:
    settings = settings_with(RECEIVERS[kind].away(tmp_path), accept_untrained=True)
    again = restore(settings.dump())
    assert again.destinations == settings.destinations
    assert type(again.destinations["out"]) is DESTINATION_KINDS[kind]


@every_kind
def test_a_setting_of_no_kind_and_one_of_another_kind_are_refused(
    kind: str, tmp_path: Path
) -> None:
    receiver = RECEIVERS[kind].away(tmp_path)
    own = DESTINATION_KINDS[kind].model_fields
    others = [name for model in DESTINATION_KINDS.values() for name in model.model_fields]
    foreign = next(name for name in others if name not in own)
    for name in ("hots", foreign):
        with pytest.raises(ValidationError, match=f"destinations.out.{name}"):
            settings_with(receiver, **{name: "1"})


@every_kind
def test_the_documentation_describes_each_of_its_settings(kind: str) -> None:
    described = {name: text for name, _, _, text in describe()}
    for name in DESTINATION_KINDS[kind].model_fields:
        assert described[f"destinations.<name>.{name}"]
