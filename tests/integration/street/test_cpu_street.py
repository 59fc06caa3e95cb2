"""CPU accounting of a real Hilum: processes, counters and the engine alone agree."""

from __future__ import annotations

import pytest

from load_tests.bench.cpu_engine import Built, count_engine
from load_tests.bench.cpu_stages import Window, by_stage, rows
from load_tests.bench.cpu_street import Street
from testing.accounting import Accountant
from testing.phantoms import phantom
from testing.tiny_release import make_tiny

STUDIES, RATE = 6, 3.0


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    tiny = make_tiny(tmp_path_factory.mktemp("tiny"))
    built = Built(tiny.release, tiny.manifests_dir, tiny.built_dir)
    count_engine(built)
    return built


@pytest.fixture(scope="module")
def load(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Window:
    studies = [phantom.make_study(1, views=("PA", "AP"), rows=256, columns=256)]
    with (
        Street(tmp_path_factory.mktemp("hilum"), built) as street,
        Accountant(street.pid) as accountant,
    ):
        return street.watched(accountant, lambda: street.send(studies, STUDIES, RATE), 2 * STUDIES)


def test_every_process_has_a_role_and_has_used_cpu(load: Window) -> None:
    wanted = {
        "supervisor",
        "listener",
        "analyser",
        "decode",
        "dispatcher",
        "api",
        "tritonserver",
        "triton-stub",
    }
    assert wanted <= {role for role, seconds in load.roles.items() if seconds > 0}
    assert load.generator > 0


def test_every_stage_was_charged_and_no_more_than_its_process_used(load: Window) -> None:
    assert all(
        load.charged[label] > 0
        for label in ("sync", "index", "index_ledger", "decode", "prepare", "aggregate", "deliver")
    )
    assert all(
        load.charged[f"{stage}_ledger"] > 0
        for stage in ("analyse", "assemble", "report", "deliver")
    )
    assert (
        load.charged["sync"] + load.charged["index"] + load.charged["index_ledger"]
        < load.roles["listener"]
    )
    assert load.charged["decode"] + load.charged["prepare"] <= load.roles["decode"]


def test_the_table_holds_all_cpu(load: Window) -> None:
    images = 2 * STUDIES
    assert images / 4 <= sum(load.batches.values()) <= images
    assert 0 < load.charged["engine"] < load.roles["triton-stub"]
    stages = by_stage(rows(load, Window(1.0, 0, {}, {})))
    assert sum(stages.values()) == pytest.approx(1000 * sum(load.roles.values()) / images)
    assert all(
        stages[stage] > 0
        for stage in (
            "receive",
            "sync",
            "index",
            "decode",
            "prepare",
            "hop",
            "model",
            "report",
            "ledger",
        )
    )
