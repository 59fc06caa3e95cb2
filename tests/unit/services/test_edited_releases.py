"""A manifest that is edited while a server runs.

Every process means the same by a name, and what has read under it stays what it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete

from hilum.domain import Release, RolloutMode, RolloutState
from hilum.errors import ConfigurationError
from hilum.models.build import build
from hilum.services.releases.rebuild import require_replaceable
from hilum.services.releases.release_loader import ReleaseLoader
from hilum.services.releases.releases import Catalogue, keep_releases
from hilum.services.releases.rollouts import RolloutVerbs
from hilum.settings import Models, Settings, Site
from hilum.store.queries.views import LedgerViews
from hilum.store.rollouts.rollouts import CannotRollOut, RolloutRequest
from hilum.store.schema.tables import release_manifest
from tests.support.ledger.database import change
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.rolling import Rolling
from tests.support.models.fleets import Engines, Rig
from tests.support.models.releases import Tiny, make_tiny
from tests.support.models.versions import add_version

SHADOW, SWITCH, POINT = (
    RolloutRequest(RolloutMode.SHADOW),
    RolloutRequest(RolloutMode.SWITCH),
    "operating_point = 0.6",
)


def edit(tiny: Tiny, release: str, before: str, after: str) -> None:
    """Somebody edits a manifest while the server runs."""
    path = tiny.manifests_dir / release / "manifest.toml"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


@pytest.fixture
def own(tmp_path: Path) -> Tiny:
    """chest@1 and chest@2, built; to be edited."""
    made = make_tiny(tmp_path / "own", name="chest")
    add_version(made, "2")
    return made


@contextlib.contextmanager
def installation(own: Tiny, folder: Path) -> Iterator[tuple[Rig, RolloutVerbs, Catalogue]]:
    """An analyser, a person's verbs and a dispatcher's catalogue, each as in a process of its own, over one ledger."""
    settings = Settings(
        site=Site(state_dir=folder),
        models=Models(manifests=own.manifests_dir, built=own.built_dir, releases=("chest@1",)),
    )
    with (
        contextlib.closing(Rolling(migrated_sqlite(folder))) as rolling,
        contextlib.closing(LedgerViews(rolling.ledger.url)) as views,
    ):
        keep_releases(settings, rolling.rollouts)
        engines, find = Engines(), rolling.rollouts.manifest
        fleet = ReleaseLoader(
            settings,
            Catalogue(settings, find),
            rolling.rollouts,
            engines,
            engines.pixels,
            "me",
            patience_seconds=0.0,
        )
        made = Rig(rolling, fleet, engines)
        asyncio.run(fleet.begin(made.readers))
        yield made, RolloutVerbs(settings, rolling.rollouts, views), Catalogue(settings, find)


def other_host(rig: Rig, verbs: RolloutVerbs) -> Rig:
    """An analyser beside that of the installation, over the same ledger, with a Triton of its own."""
    engines, rollouts = Engines(), rig.rolling.rollouts
    catalogue = Catalogue(verbs.settings, rollouts.manifest)
    made = Rig(
        rig.rolling,
        ReleaseLoader(verbs.settings, catalogue, rollouts, engines, engines.pixels, "another host"),
        engines,
    )
    made.go()
    return made


def points(release: Release) -> set[float | None]:
    return {label.operating_point for label in release.labels}


def test_a_candidate_that_was_edited_since_the_server_started_is_what_the_command_found(
    own: Tiny, tmp_path: Path
) -> None:
    with installation(own, tmp_path) as (rig, verbs, dispatcher):
        old = points(dispatcher["chest@2"])
        edit(own, "chest@2", POINT, "operating_point = 0.9")
        verbs.start("chest", "chest@2", SHADOW, "a person")
        rig.go()
        assert rig.rollout.state is RolloutState.RUNNING
        assert 0.9 in points(rig.fleet._loaded["chest@2"]), (
            "not what it said when the server started"
        )
        assert points(dispatcher["chest@2"]) == points(rig.fleet._loaded["chest@2"]) != old


def test_what_has_been_proved_stays_what_it_is_and_an_edited_one_is_refused(
    own: Tiny, tmp_path: Path
) -> None:
    with installation(own, tmp_path) as (rig, verbs, dispatcher):
        verbs.start("chest", "chest@2", SHADOW, "a person")
        rig.go()
        proved = rig.fleet._loaded["chest@2"]
        edit(own, "chest@2", POINT, "operating_point = 0.9")
        assert dispatcher["chest@2"] == proved
        assert Catalogue(verbs.settings, verbs.rollouts.manifest)["chest@2"] == proved, (
            "a process that is started anew"
        )
        assert verbs.promote("chest", None, "a person").serving == "chest@2"
        rig.go()
        assert rig.fleet._loaded["chest@2"] == proved
        verbs.stop("chest", "a person")
        verbs.start("chest", "chest@1", SWITCH, "a person")
        rig.go()
        with pytest.raises(CannotRollOut, match=r"chest@2 was edited .* a version of its own"):
            verbs.start("chest", "chest@2", SWITCH, "a person")
        edit(own, "chest@2", "operating_point = 0.9", POINT)
        assert verbs.start("chest", "chest@2", SWITCH, "a person").candidate == "chest@2", (
            "put back"
        )


def test_a_candidate_that_is_edited_while_it_is_proved_is_proved_as_what_was_started_last(
    own: Tiny, tmp_path: Path
) -> None:
    with installation(own, tmp_path) as (rig, verbs, _):
        rig.engines.wrong.add("chest@2")
        verbs.start("chest", "chest@2", SHADOW, "a person")
        asyncio.run(rig.fleet.follow(rig.readers))
        first = rig.fleet._loaded["chest@2"]
        edit(own, "chest@2", POINT, "operating_point = 0.9")
        asyncio.run(rig.fleet.follow(rig.readers))
        assert rig.fleet._loaded["chest@2"] == first, "an edited file alone changes nothing"
        verbs.stop("chest", "a person")
        verbs.start("chest", "chest@2", SHADOW, "a person")
        with pytest.raises(CannotRollOut, match="edited, and the rollout started again"):
            rig.rolling.rollouts.confirm("chest", "chest@2", "another analyser", first.digest)
        rig.engines.wrong.clear()
        rig.go(2)
        assert rig.rollout.state is RolloutState.RUNNING
        assert 0.9 in points(rig.fleet._loaded["chest@2"])


def test_an_analyser_that_was_busy_while_another_proved_the_edited_one_reads_with_that_too(
    own: Tiny, tmp_path: Path
) -> None:
    with installation(own, tmp_path) as (rig, verbs, dispatcher):
        slow = other_host(rig, verbs)
        verbs.start("chest", "chest@2", SWITCH, "a person")
        for each in (rig, slow):
            asyncio.run(each.fleet.follow(each.readers))
        verbs.stop("chest", "a person")
        edit(own, "chest@2", POINT, "operating_point = 0.9")
        verbs.start("chest", "chest@2", SWITCH, "a person")
        rig.go()
        assert rig.rollout.serving == "chest@2", (
            "while the slow one still loads what was started first"
        )
        slow.go()
        assert (
            slow.fleet._loaded["chest@2"] == rig.fleet._loaded["chest@2"] == dispatcher["chest@2"]
        )


def test_a_candidate_of_a_ledger_without_manifests_that_was_not_proved_may_be_edited(
    own: Tiny, tmp_path: Path
) -> None:
    """An upgrade in the middle of a rollout: the ledger's revision before kept none."""
    with installation(own, tmp_path) as (rig, verbs, _):
        rig.start("chest@2", SHADOW)
        change(
            rig.rolling.ledger,
            delete(release_manifest).where(release_manifest.c.release == "chest@2"),
        )
        keep_releases(verbs.settings, verbs.rollouts)
        verbs.stop("chest", "a person")
        edit(own, "chest@2", POINT, "operating_point = 0.9")
        verbs.start("chest", "chest@2", SHADOW, "a person")
        rig.go()
        assert rig.rollout.state is RolloutState.RUNNING
        assert 0.9 in points(rig.fleet._loaded["chest@2"])


def test_a_server_that_is_started_anew_reads_the_settings_releases_as_they_are_now(
    own: Tiny, tmp_path: Path
) -> None:
    with installation(own, tmp_path) as (_, verbs, dispatcher):
        before = dispatcher["chest@1"]
        edit(own, "chest@1", POINT, "operating_point = 0.9")
        assert Catalogue(verbs.settings, verbs.rollouts.manifest)["chest@1"] == before, (
            "a process that crashed alone"
        )
        keep_releases(verbs.settings, verbs.rollouts)
        assert 0.9 in points(Catalogue(verbs.settings, verbs.rollouts.manifest)["chest@1"])


def test_a_release_that_was_built_as_another_one_is_not_ready_and_says_why(
    own: Tiny, tmp_path: Path
) -> None:
    with installation(own, tmp_path) as (rig, verbs, _):
        verbs.start("chest", "chest@2", SWITCH, "a person")
        rig.go()
        edit(own, "chest@2", "max_batch = 4", "max_batch = 2")
        build.build(["chest@2"], own.manifests_dir, own.built_dir, progress=lambda _: None)
        find = rig.rolling.rollouts.manifest
        again = ReleaseLoader(
            verbs.settings,
            Catalogue(verbs.settings, find),
            rig.rolling.rollouts,
            rig.engines,
            rig.engines.pixels,
            "again",
        )
        restarted = Rig(rig.rolling, again, rig.engines)
        restarted.go()
        assert "the manifest of chest@2 was edited" in again.readiness()[1]


def test_the_tree_with_which_a_running_server_reads_is_not_replaced(
    own: Tiny, tmp_path: Path
) -> None:
    with installation(own, tmp_path) as (_, verbs, _):
        settings, both = verbs.settings, ("chest@1", "chest@2")
        for release in both:
            edit(own, release, "max_batch = 4", "max_batch = 2")
        settings.run_dir.mkdir()
        with (settings.run_dir / "supervisor-all.lock").open("w") as held:
            require_replaceable(settings, both, ("embedded",))  # nobody holds it
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(ConfigurationError, match="a server runs") as refused:
                require_replaceable(settings, both, ("embedded", "onnxruntime"))
            assert len(refused.value.problems) == 1, "nobody has read with chest@2"
            require_replaceable(settings, both, ("onnxruntime",))  # no such tree is there
            build.build(["chest@1"], own.manifests_dir, own.built_dir, progress=lambda _: None)
            edit(own, "chest@1", "max_batch = 2", "max_batch = 4")
            require_replaceable(settings, both, ("embedded",))  # a mistake is mended
