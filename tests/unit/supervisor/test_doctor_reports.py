"""`hilum check` on reports: which destinations will not get them, and which withheld ones can go out now."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from hilum.domain import RolloutMode
from hilum.services.releases.releases import keep_releases
from hilum.services.releases.rollouts import RolloutVerbs
from hilum.settings import Settings
from hilum.store.ledger import Ledger
from hilum.store.queries.views import LedgerViews
from hilum.store.rollouts.rollouts import RolloutRequest, Rollouts
from hilum.supervisor.checks.check import Check
from hilum.supervisor.checks.reports import reports, withheld
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.street import Clock, Street
from tests.support.models.releases import make_tiny
from tests.support.models.versions import add_version


@pytest.fixture
def street(tmp_path: Path) -> Street:
    with contextlib.closing(Ledger(migrated_sqlite(tmp_path), clock := Clock())) as ledger:
        made = Street(ledger, clock, destinations=())
        made.withheld = {"pacs": "untrained_weights"}
        made.walk("1.2.1", 1)
        made.walk("1.2.2", 1)
    return made


def settings(folder: Path, **destinations: dict[str, Any]) -> Settings:
    return Settings.model_validate({"site": {"state_dir": folder}, "destinations": destinations})


def the_one(checks: list[Check]) -> Check:
    (check,) = checks
    return check


def test_the_bundled_releases_into_a_usual_destination_are_a_problem_that_says_what_to_set(
    tmp_path: Path,
) -> None:
    check = the_one(list(reports(settings(tmp_path, pacs={}), has_ledger=False)))
    assert (check.name, check.ok) == ("reports to pacs", False)
    assert check.detail.startswith(
        "pacs gets nothing of densenet121_untrained@1: results of untrained weights mean nothing"
    )
    assert "set destinations.pacs.accept_untrained = true" in check.advice


def test_who_takes_untrained_weights_is_no_problem_and_is_told_what_it_is(tmp_path: Path) -> None:
    check = the_one(
        list(reports(settings(tmp_path, pacs={"accept_untrained": True}), has_ledger=False))
    )
    assert check.ok
    assert "ONLY for a test PACS" in check.detail


def chest(folder: Path, **destination: Any) -> Settings:
    """A trained release without activation maps, and a second version of it."""
    made = make_tiny(folder / "tiny", name="chest")
    add_version(made, "2")
    models = {"manifests": made.manifests_dir, "built": made.built_dir, "releases": ["chest@1"]}
    return Settings.model_validate(
        {"site": {"state_dir": folder}, "models": models, "destinations": {"pacs": destination}}
    )


def test_who_lacks_something_is_told_and_is_no_problem(tmp_path: Path) -> None:
    check = the_one(list(reports(chest(tmp_path, documents=["sr", "heatmap"]), has_ledger=False)))
    assert check.ok
    assert check.detail.startswith("pacs gets no heat maps of chest@1")
    assert (
        the_one(
            list(reports(chest(tmp_path / "other", documents=["heatmap"]), has_ledger=False))
        ).ok
        is False
    )


def test_without_a_manifest_nothing_is_said_twice(tmp_path: Path) -> None:
    chosen = Settings.model_validate(
        {
            "site": {"state_dir": tmp_path},
            "models": {"releases": ["none@1"]},
            "destinations": {"pacs": {}},
        }
    )
    assert list(reports(chosen, has_ledger=False)) == []


def test_a_candidate_of_a_rollout_is_named_before_it_is_promoted(tmp_path: Path) -> None:
    chosen = chest(tmp_path, documents=["sr", "heatmap"])
    migrated_sqlite(tmp_path)
    with (
        contextlib.closing(Rollouts(chosen.ledger_url)) as rollouts,
        contextlib.closing(LedgerViews(chosen.ledger_url)) as views,
    ):
        keep_releases(chosen, rollouts)
        RolloutVerbs(chosen, rollouts, views).start(
            "chest", "chest@2", RolloutRequest(RolloutMode.SHADOW), "a person"
        )
    check = the_one(list(reports(chosen, has_ledger=True)))
    assert "of chest@1, chest@2" in check.detail


def test_what_the_settings_keep_back_is_counted_and_is_no_problem_of_its_own(
    street: Street, tmp_path: Path
) -> None:
    check = the_one(list(withheld(settings(tmp_path, pacs={}))))
    assert (check.name, check.ok) == ("withheld from pacs", True)
    assert check.detail.startswith(
        "2 withheld from pacs (untrained_weights): if pacs is a test PACS"
    )


def test_what_can_go_out_now_is_a_problem_with_its_command(street: Street, tmp_path: Path) -> None:
    check = the_one(list(withheld(settings(tmp_path, pacs={"accept_untrained": True}))))
    assert not check.ok
    assert check.detail == "2 withheld from pacs (untrained_weights) can be released now"
    assert "hilum requeue deliver --destination pacs --reason untrained_weights" in check.advice


def test_what_was_withheld_from_who_is_gone_is_nobodys_problem(
    street: Street, tmp_path: Path
) -> None:
    assert list(withheld(settings(tmp_path, other={}))) == []
