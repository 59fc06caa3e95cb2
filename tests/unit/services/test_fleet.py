"""Which releases an analyser loads, proves and unloads.

The ledger and the built releases are real, Triton is a hand-written fake.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import QueuePool, create_engine

from hilum.domain import Rollout, RolloutMode, RolloutState
from hilum.errors import NotAnalysed, Retry
from hilum.models.build import build
from hilum.models.manifest import catalogue
from hilum.services.releases.release_loader import ReleaseLoader
from hilum.services.releases.release_plan import plan_of
from hilum.services.releases.releases import Catalogue
from hilum.settings import Analyse, Models, Settings, Site, Triton
from hilum.store.rollouts.advertised_releases import SUPERVISOR, in_words
from hilum.store.rollouts.rollouts import RolloutRequest
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.rolling import Rolling
from tests.support.models.fleets import Engines, Rig
from tests.support.models.releases import Tiny, make_tiny, pictures, tiny_logits
from tests.support.models.versions import add_version

SHADOW, SWITCH = RolloutRequest(RolloutMode.SHADOW), RolloutRequest(RolloutMode.SWITCH)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """chest@1, chest@2 and chest@3, built, and chest@4, not built; all the same network."""
    made = make_tiny(tmp_path_factory.mktemp("tiny"), name="chest")
    for version in ("2", "3"):
        add_version(made, version)
    add_version(made, "4", is_built=False)
    return made


@pytest.fixture
def rig(tiny: Tiny, tmp_path: Path) -> Iterator[Rig]:
    with contextlib.closing(Rolling(migrated_sqlite(tmp_path))) as rolling:
        settings = Settings(
            site=Site(state_dir=tmp_path),
            models=Models(
                manifests=tiny.manifests_dir, built=tiny.built_dir, releases=("chest@1",)
            ),
            analyse=Analyse(canary_seconds=1),
            triton=Triton(other_models=("of_a_neighbour",)),
        )
        engines = Engines()
        fleet = ReleaseLoader(
            settings,
            Catalogue(settings),
            rolling.rollouts,
            engines,
            engines.pixels,
            "me",
            patience_seconds=0.0,
        )
        made = Rig(rolling, fleet, engines)
        asyncio.run(made.fleet.begin(made.readers))
        yield made


def test_models_are_looked_for_that_no_manifest_and_no_setting_names(rig: Rig) -> None:
    rig.go()
    assert rig.engines.ours == {"chest__1", "chest__2", "chest__3", "chest__4", "of_a_neighbour"}


def test_what_the_settings_name_is_loaded_and_readiness_rests_on_its_answer(rig: Rig) -> None:
    assert rig.readers.releases == {"chest@1"}
    assert rig.fleet.readiness()[0] is False
    rig.go()
    assert (rig.engines.loaded, rig.fleet.readiness()) == ({"chest@1"}, (True, ""))
    rig.engines.wrong.add("chest@1")
    rig.go()
    is_ready, problem = rig.fleet.readiness()
    assert not is_ready
    assert "chest@1: the canary's logits are" in problem


def test_a_release_whose_pixels_are_prepared_wrongly_here_is_not_ready(rig: Rig) -> None:
    rig.engines.blurred.add("chest@1")
    rig.go()
    assert rig.fleet.readiness() == (
        False,
        "chest@1: pixels are prepared wrongly here: another precision",
    )
    rig.engines.blurred.clear()
    rig.go()
    assert rig.fleet.readiness() == (True, "")


def test_a_candidate_is_loaded_beside_and_proved_before_it_gets_a_study(rig: Rig) -> None:
    rig.start("chest@2", SWITCH)
    rig.go()
    assert rig.engines.loaded == {"chest@1", "chest@2"}
    assert (rig.rollout.state, rig.rollout.serving, rig.rollout.changed_by) == (
        RolloutState.SWITCHED,
        "chest@2",
        "me",
    )
    rig.go()
    assert rig.readers.releases == {"chest@1", "chest@2"}, "the way back stays loaded"


@pytest.mark.parametrize(
    ("candidate", "said"),
    [("chest@2", "the canary's logits are"), ("chest@4", "run `hilum models build chest@4`")],
)
def test_a_candidate_that_fails_is_refused_and_unloaded_and_nobody_is_called(
    rig: Rig, candidate: str, said: str
) -> None:
    rig.go()
    rig.engines.wrong.add("chest@2")
    rig.start(candidate, SWITCH)
    rig.go()
    assert (rig.rollout.state, rig.rollout.serving) == (RolloutState.REFUSED, "chest@1")
    assert said in (rig.rollout.problem or "")
    assert rig.fleet.readiness() == (True, "")
    rig.go()
    assert (rig.engines.loaded, rig.readers.releases) == ({"chest@1"}, {"chest@1"})


def test_a_candidate_has_to_give_the_answers_of_its_golden_cases(rig: Rig, tiny: Tiny) -> None:
    record = (
        build.tree_of(catalogue.load_catalogue(tiny.manifests_dir)["chest@3"], tiny.built_dir)
        / "build.json"
    )
    before = record.read_text()
    image = pictures(1, seed=3)
    np.save(record.parent / "golden_0.npy", image)
    case = {
        "file": "case.npy",
        "tensor": "golden_0.npy",
        "logits": (tiny_logits(image)[0] + 0.5).tolist(),
        "tolerance": 0.01,
    }
    record.write_text(json.dumps({**json.loads(before), "golden": [case]}))
    rig.start("chest@3", SHADOW)
    rig.go()
    record.write_text(before)
    assert rig.rollout.state is RolloutState.REFUSED
    assert "golden case case.npy" in (rig.rollout.problem or "")


def test_a_triton_that_is_away_is_no_fault_of_a_candidate_for_a_while(tiny: Tiny, rig: Rig) -> None:
    rig.go()
    rig.fleet._patience_seconds = 3600.0
    rig.engines.away = True
    rig.start("chest@2", SHADOW)
    rig.go(2)
    assert rig.rollout.state is RolloutState.LOADING
    rig.engines.away = False
    rig.go()
    assert rig.rollout.state is RolloutState.RUNNING


def test_what_was_stopped_is_unloaded_when_its_last_image_is_read(rig: Rig) -> None:
    rig.start("chest@2", SWITCH)
    rig.rolling.receive("1.1", 1)
    rig.go()
    rig.rolling.rollouts.stop("chest", "a person")
    rig.go(2)
    assert rig.engines.loaded == {"chest@1", "chest@2"}, "an image still waits for chest@1"
    rig.engines.wrong.add("chest@1")
    rig.go()
    assert rig.fleet.readiness()[0] is False, (
        "an image waits for a release that does not answer as it should"
    )
    rig.rolling.read()
    rig.go()
    assert (rig.engines.loaded, rig.readers.releases) == ({"chest@2"}, {"chest@2"})
    assert rig.fleet.readiness() == (True, "")


def test_a_shadow_that_fails_calls_nobody(rig: Rig) -> None:
    rig.start("chest@2", SHADOW)
    rig.go(2)
    rig.engines.wrong.add("chest@2")
    rig.go()
    assert rig.fleet.readiness() == (True, "")
    rig.rolling.rollouts.promote("chest", RolloutRequest(RolloutMode.CANARY, 0.5), "a person")
    rig.go()
    assert rig.fleet.readiness()[0] is False, "now studies wait for it"


def test_a_late_image_has_its_release_loaded_again(rig: Rig) -> None:
    rig.start("chest@2", SWITCH)
    rig.go()
    rig.rolling.receive("1.1", 1)
    rig.rolling.rollouts.roll_back("chest", "a person")
    rig.rolling.read()
    rig.go(2)
    assert rig.readers.releases == {"chest@1"}
    rig.rolling.receive("1.1", 2)
    assert isinstance(rig.explain("1.1", "chest@2"), Retry)
    rig.go()
    assert rig.readers.releases == {"chest@1", "chest@2"}
    rig.rolling.read()
    rig.go()
    assert rig.readers.releases == {"chest@1"}


def test_an_analyser_that_starts_into_a_rollback_still_finishes_what_is_due(
    rig: Rig, tiny: Tiny
) -> None:
    rig.start("chest@2", SWITCH)
    rig.go()
    rig.rolling.receive("1.1", 1)
    rig.engines.loaded.clear()
    rig.readers.releases.clear()
    asyncio.run(rig.fleet.begin(rig.readers))  # it was killed, and so was its Triton
    rig.rolling.rollouts.roll_back("chest", "a person")
    rig.go(2)
    assert rig.engines.loaded == {"chest@1", "chest@2"}
    rig.rolling.read()
    rig.go(2)
    assert rig.engines.loaded == {"chest@1"}


def test_a_release_that_nobody_chose_is_not_available(rig: Rig) -> None:
    for release in ("chest@2", "lung@1"):
        answer = rig.explain("1.1", release)
        assert isinstance(answer, NotAnalysed)
        assert answer.reason == "release_not_available"


def test_what_the_settings_of_a_running_server_name_waits_for_a_host_that_is_behind(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, clock = rig.rolling.ledger, rig.rolling.clock
    ledger.beat(
        "listener's host",
        SUPERVISOR,
        7,
        started_at=0.0,
        is_ready=True,
        detail=in_words(("chest@1", "chest@2")),
    )
    ledger.beat(
        "a listener", "listener", 8, started_at=0.0, is_ready=True, detail=in_words(("lung@1",))
    )
    for _ in range(2):
        answer = rig.explain("1.1", "chest@2")
        assert isinstance(answer, Retry)
        assert answer.is_outage, "the try does not count"
    assert "".join(capsys.readouterr()).count("settings_differ") == 1
    for release in ("chest@22", "chest", "lung@1"):
        assert isinstance(rig.explain("1.1", release), NotAnalysed), release
    clock.now += 61
    assert isinstance(rig.explain("1.1", "chest@2"), NotAnalysed), "nobody names it any more"


def test_what_our_own_settings_name_is_loaded_for_a_study_of_before_the_rollouts(rig: Rig) -> None:
    """Two rollouts later nothing else wants it.

    The header of an old image is corrected, and that study was assigned to nobody.
    """
    ledger = rig.rolling.ledger
    rig.rolling.receive("1.1", 1)
    rig.rolling.read()
    ledger.beat("ours", SUPERVISOR, 7, started_at=0.0, is_ready=True, detail=in_words(("chest@1",)))
    for candidate in ("chest@2", "chest@3"):
        rig.start(candidate, SWITCH)
        rig.go(2)
    assert rig.readers.releases == {"chest@2", "chest@3"}
    assert isinstance(rig.explain("1.1", "chest@1"), Retry)
    asyncio.run(rig.fleet.follow(rig.readers))
    assert "chest@1" in rig.readers.releases


def test_a_second_analyser_has_the_reading_tried_again_until_it_has_loaded_the_release(
    rig: Rig,
) -> None:
    rig.start("chest@2", SWITCH)
    rig.rolling.rollouts.confirm("chest", "chest@2", "another analyser", rig.kept("chest@2").digest)
    rig.rolling.receive("1.1", 1)
    answer = rig.explain("1.1", "chest@2")
    assert isinstance(answer, Retry)
    assert answer.is_outage, "the try does not count"


def test_while_the_ledger_has_no_connection_for_it_everything_stays_as_it_is(rig: Rig) -> None:
    rig.go()
    rig.start("chest@2", SWITCH)
    usual, rollouts = rig.rolling.rollouts._reader, rig.rolling.rollouts
    rollouts._reader = create_engine(
        usual.url, poolclass=QueuePool, pool_size=1, max_overflow=0, pool_timeout=0.01
    )
    with rollouts._reader.connect():
        rig.go(2)
        assert (rig.engines.loaded, rig.fleet.readiness()) == ({"chest@1"}, (True, ""))
        assert isinstance(rig.explain("1.1", "chest@3"), Retry)
    rollouts._reader.dispose()
    rollouts._reader = usual
    rig.go()
    assert rig.rollout.serving == "chest@2"


def test_plans() -> None:
    def rollout(**changes: Any) -> Rollout:
        usual = {
            "alias": "chest",
            "configured": "chest@1",
            "serving": "chest@1",
            "changed_at": 0.0,
            "changed_by": "x",
        }
        return Rollout(**{**usual, **changes})

    shadow = rollout(state=RolloutState.RUNNING, candidate="chest@2", mode=RolloutMode.SHADOW)
    canary = rollout(
        state=RolloutState.RUNNING, candidate="chest@2", mode=RolloutMode.CANARY, fraction=0.1
    )
    loading = rollout(state=RolloutState.LOADING, candidate="chest@2", mode=RolloutMode.SWITCH)
    switched = rollout(state=RolloutState.SWITCHED, serving="chest@2", previous="chest@1")
    done = rollout(state=RolloutState.DONE, serving="chest@2")
    closed = rollout(state=RolloutState.CLOSED, serving="chest@2")
    expected: list[tuple[Rollout, set[str], set[str]]] = [
        (shadow, {"chest@1", "lung@1"}, {"chest@2"}),
        (canary, {"chest@1", "chest@2", "lung@1"}, set()),
        (loading, {"chest@1", "lung@1"}, {"chest@2"}),
        (switched, {"chest@2", "lung@1"}, {"chest@1"}),
        (done, {"chest@2", "lung@1"}, set()),
        (closed, {"chest@1", "lung@1"}, set()),
    ]
    for item, required, kept in expected:
        plan = plan_of(["chest@1", "lung@1"], [item])
        assert (plan.required, plan.kept) == (required, kept), item.state
        assert dict(plan.proving) == ({"chest@2": "chest"} if item is loading else {})
