"""`hilum check`: rules that are never reached, that match nothing, and the former way to say it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hilum.receive.indexing.arrivals import arrivals_of
from hilum.settings import Settings
from hilum.store.ledger import Ledger
from hilum.supervisor.checks.check import Check
from hilum.supervisor.checks.rules import rules
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.rules.studies import image, settings_with

DX = {"name": "dx", "when": {"Modality": ["CR", "DX"]}}
SHADOWED = {"name": "urgent dx", "when": {"Modality": "DX", "calling": "ER"}}
RARE = {"name": "rare", "when": {"Modality": "XA"}}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    (tmp_path / "state").mkdir()
    with closing(Ledger(migrated_sqlite(tmp_path / "state"))) as opened:
        yield opened


def checks(settings: Settings, *, has_ledger: bool = False) -> dict[str, Check]:
    return {item.name: item for item in rules(settings, has_ledger=has_ledger)}


def of_ledger(folder: Path, *given: Any) -> Settings:
    return settings_with(*given, site={"state_dir": folder / "state"})


def test_a_rule_that_an_earlier_one_shadows_is_a_problem() -> None:
    found = checks(settings_with(DX, SHADOWED))

    assert not found["rule urgent dx"].ok
    assert "dx before it matches all" in found["rule urgent dx"].detail
    assert found["rule urgent dx"].advice == "Put urgent dx before dx, or take it out."
    assert set(checks(settings_with(SHADOWED, DX))) == {"rules"}


@pytest.mark.parametrize(("days", "is_named"), [(31, True), (29, False)])
def test_a_rule_without_a_match_in_30_days_is_named(
    ledger: Ledger, tmp_path: Path, days: int, is_named: bool
) -> None:
    settings = of_ledger(tmp_path, DX, RARE)
    for uid, age in (("1.1", days), ("1.2", 1)):
        came = time.time() - age * 86400.0
        attributes = {"Modality": "DX"}
        found = image(f"{uid}.1", uid, attributes, received_at=came)
        ledger.record(arrivals_of([found], settings, ledger.known_studies))

    detail = checks(settings, has_ledger=True)["rules"].detail
    assert ("in 30 days no study matched rare, default" in detail) is is_named


def test_the_former_way_is_written_out_as_rules() -> None:
    settings = Settings.model_validate({"senders": {"CR1": {"priority": "urgent"}}})
    details = [item.detail for item in rules(settings, has_ledger=False)]

    assert 'when = { calling = "CR1" }' in details[0]


def test_without_rules_there_is_nothing_to_check() -> None:
    assert checks(Settings()) == {}
