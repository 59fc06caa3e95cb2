"""`hilum check` on rollouts: what reads for each alias, what shall follow, and what is wrong with it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hilum.domain import RolloutMode
from hilum.services.releases.releases import keep_releases
from hilum.services.releases.rollouts import RolloutVerbs
from hilum.settings import Api, Models, Receive, Settings, Site
from hilum.store.queries.views import LedgerViews
from hilum.store.rollouts.rollouts import RolloutRequest, Rollouts
from hilum.supervisor.checks.check import Check
from hilum.supervisor.checks.doctor import examine
from testing.serving import free_ports
from tests.support.ledger.database import change
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.models.releases import Tiny, make_tiny
from tests.support.models.versions import add_version

SHADOW, SWITCH = RolloutRequest(RolloutMode.SHADOW), RolloutRequest(RolloutMode.SWITCH)


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    made = make_tiny(tmp_path / "tiny", name="chest")
    add_version(made, "2")
    return made


@pytest.fixture
def settings(tmp_path: Path, tiny: Tiny) -> Settings:
    receive, api = free_ports(2)
    models = Models(manifests=tiny.manifests_dir, built=tiny.built_dir, releases=("chest@1",))
    return Settings(
        site=Site(state_dir=tmp_path / "state"),
        models=models,
        receive=Receive(port=receive),
        api=Api(port=api),
    )


@pytest.fixture
def rollouts(settings: Settings) -> Iterator[Rollouts]:
    settings.site.state_dir.mkdir()
    migrated_sqlite(settings.site.state_dir)
    with contextlib.closing(Rollouts(settings.ledger_url)) as opened:
        yield opened


def found(settings: Settings) -> Check:
    return next(check for check in examine(settings) if check.name == "rollout chest")


def start(settings: Settings, rollouts: Rollouts, order: RolloutRequest) -> None:
    with contextlib.closing(LedgerViews(settings.ledger_url)) as views:
        RolloutVerbs(settings, rollouts, views).start("chest", "chest@2", order, "a person")


def confirm(rollouts: Rollouts) -> None:
    rollouts.confirm("chest", "chest@2", "analyser", rollouts.manifest("chest@2").digest)  # type: ignore[union-attr]


def test_an_installation_that_never_ran_has_no_rollouts(settings: Settings) -> None:
    assert not any(check.name.startswith("rollout") for check in examine(settings))


def test_what_reads_and_what_shall_follow_is_said(settings: Settings, rollouts: Rollouts) -> None:
    assert found(settings) == Check(
        "rollout chest", ok=True, detail="done, chest@1 reads new studies"
    )
    start(settings, rollouts, SHADOW)
    confirm(rollouts)
    assert found(settings).detail == "running, chest@1 reads new studies, chest@2 as shadow"
    rollouts.promote("chest", SWITCH, "a person")
    assert found(settings).detail.startswith(
        "switched, chest@2 reads new studies, chest@1 is kept for rollback"
    )
    assert found(settings).ok


def test_a_refused_candidate_is_a_problem_with_its_reason(
    settings: Settings, rollouts: Rollouts
) -> None:
    start(settings, rollouts, SHADOW)
    rollouts.refuse("chest", "chest@2", "wrong answers", "analyser")
    check = found(settings)
    assert not check.ok
    assert check.detail.endswith("wrong answers")
    assert "hilum rollout stop chest" in check.advice


def test_a_release_that_a_rollout_wants_and_that_is_gone_is_a_problem(
    settings: Settings, rollouts: Rollouts, tiny: Tiny
) -> None:
    start(settings, rollouts, SWITCH)
    confirm(rollouts)
    shutil.rmtree(tiny.manifests_dir / "chest@2", ignore_errors=True)
    shutil.rmtree(tiny.built_dir)
    check = found(settings)
    assert not check.ok
    assert "chest@2" in check.detail.partition("; ")[2]


def test_a_ledger_of_another_version_is_not_asked(settings: Settings, rollouts: Rollouts) -> None:
    change(rollouts, "UPDATE alembic_version SET version_num = '0001'")
    assert not any(check.name.startswith("rollout") for check in examine(settings))


def edit(settings: Settings, release: str) -> None:
    path = settings.manifests_dir / release / "manifest.toml"
    path.write_text(path.read_text().replace("operating_point = 0.6", "operating_point = 0.9", 1))


def test_what_was_edited_since_it_reads_is_said(settings: Settings, rollouts: Rollouts) -> None:
    keep_releases(settings, rollouts)
    edit(settings, "chest@1")
    assert (
        "chest@1 was edited since the server started, and holds from its next start on"
        in found(settings).detail
    )
    assert found(settings).ok
    keep_releases(settings, rollouts)
    assert found(settings) == Check(
        "rollout chest", ok=True, detail="done, chest@1 reads new studies"
    )
    start(settings, rollouts, SWITCH)
    confirm(rollouts)
    assert found(settings).ok
    edit(settings, "chest@2")
    assert (found(settings).ok, "chest@2 was edited after" in found(settings).detail) == (
        False,
        True,
    )
