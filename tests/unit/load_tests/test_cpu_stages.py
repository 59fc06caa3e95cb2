"""CPU by stage: every second of every process is in exactly one row."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hilum import pipeline
from load_tests.bench.cpu_result import Measured, goals, lines, record
from load_tests.bench.cpu_stages import (
    CHARGED,
    ENGINE,
    IDLE,
    STAGES,
    Window,
    by_stage,
    everything_else,
    outside_model,
    rows,
    summed,
)
from testing.serving import REPOSITORY

IDLE_WINDOW = Window(
    10.0,
    0,
    {"listener": 0.01, "dispatcher": 0.05, "api": 0.02, "triton-stub": 0.0},
    {"deliver_ledger": 0.01},
)
LOAD = Window(
    20.0,
    40,
    {
        "listener": 1.0,
        "decode": 0.8,
        "dispatcher": 0.5,
        "api": 0.05,
        "triton-stub": 2.0,
        "tritonserver": 0.1,
        "other": 0.2,
    },
    {
        "sync": 0.1,
        "index": 0.2,
        "index_ledger": 0.05,
        "decode": 0.3,
        "prepare": 0.4,
        "deliver": 0.1,
        "deliver_ledger": 0.12,
        "engine": 1.6,
    },
    {1.0: 20.0, 2.0: 10.0, 4.0: 0.0, float("inf"): 0.0},
    generator=0.4,
)
FOUND = rows(LOAD, IDLE_WINDOW)


def test_the_rows_add_up_to_what_the_processes_used() -> None:
    assert sum(row.milliseconds for row in FOUND) == pytest.approx(
        1000 * sum(LOAD.roles.values()) / 40
    )
    by_role = summed(FOUND, lambda row: row.role)
    assert by_role == pytest.approx(
        {role: 1000 * seconds / 40 for role, seconds in LOAD.roles.items()}
    )
    assert sum(by_stage(FOUND).values()) == pytest.approx(sum(by_role.values()))
    assert list(by_stage(FOUND)) == list(STAGES)


def test_the_rest_of_a_process_with_one_task_is_that_task() -> None:
    stages = by_stage(FOUND)
    assert stages["receive"] == pytest.approx(1000 * (1.0 - 0.02 - 0.35) / 40)
    assert stages["decode"] == pytest.approx(1000 * 0.4 / 40)
    assert stages["prepare"] == pytest.approx(1000 * 0.4 / 40)
    assert stages["hop"] == pytest.approx(1000 * (2.1 - 1.6) / 40)
    assert stages["model"] == pytest.approx(1000 * 1.6 / 40)
    assert stages["REST"] == pytest.approx(1000 * (0.05 - 0.04) / 40)


def test_what_a_stage_uses_when_idle_counts_once() -> None:
    stages = by_stage(FOUND)
    assert stages[IDLE] == pytest.approx(1000 * 2 * 0.08 / 40)
    assert stages["ledger"] == pytest.approx(1000 * (0.05 + 0.12 - 0.02) / 40)
    dispatcher = 0.5 - 2 * 0.05 - 0.1 - (0.12 - 0.02)
    assert stages["other"] == pytest.approx(1000 * (0.2 + dispatcher) / 40)


def test_the_goals_leave_out_what_has_goals_of_its_own() -> None:
    stages = dict.fromkeys(STAGES, 0.0) | {
        "model": 40.0,
        "receive": 6.0,
        "prepare": 3.0,
        "ledger": 2.0,
        IDLE: 1.0,
    }
    assert outside_model(stages) == 12.0
    assert everything_else(stages) == 3.0


def test_every_stage_that_the_server_charges_has_a_row() -> None:
    sources = (
        path.read_text(encoding="utf-8") for path in (REPOSITORY / "server/hilum").rglob("*.py")
    )
    named = {label for text in sources for label in re.findall(r'telemetry\.cpu\("(\w+)"\)', text)}
    assert named | {f"{stage}_ledger" for stage in pipeline.STAGES} | {ENGINE} == set(CHARGED)


@pytest.fixture
def measured() -> Measured:
    conditions = ("10 MB", "0.5 MB", "10 MB 8/s", "0.5 MB 8/s", "10 MB flat out", "0.5 MB flat out")
    return Measured(IDLE_WINDOW, dict.fromkeys(conditions, FOUND), dict.fromkeys(conditions, LOAD))


def test_a_goal_is_held_against_what_was_measured(measured: Measured) -> None:
    found = {goal.name: goal for goal in goals(measured)}
    assert found["idle Hilum"].value == pytest.approx(0.008)
    assert found["idle Hilum"].holds
    assert found["CPU outside the model, 10 MB image"].value == pytest.approx(
        1000 * (sum(LOAD.roles.values()) - 1.6) / 40
    )
    assert not found["CPU outside the model, 10 MB image"].holds
    assert found["CPU outside the model, 10 MB image 8/s"].goal == 14.0
    assert found["CPU outside the model, 0.5 MB image 8/s"].goal == 4.5


def test_the_table_fits_a_terminal(measured: Measured) -> None:
    text = list(lines(measured))
    assert max(map(len, text)) <= 80
    assert any(line.startswith("prepare ") and line.endswith("10.00") for line in text)
    assert sum(line.startswith(("holds", "BROKEN")) for line in text) == 13


def test_earlier_runs_are_kept(measured: Measured, tmp_path: Path) -> None:
    result = tmp_path / "bench-cpu.json"
    for commit in ("one", "two", "three"):
        record(result, measured, {"commit": commit, "is_modified": False}, {"rate": 1.5})
    content = json.loads(result.read_text())
    assert content["commit"] == "three"
    assert [run["commit"] for run in content["history"]] == ["one", "two"]
    assert content["history"][0]["milliseconds_per_image"]["10 MB"]["prepare"] == 10.0
    assert content["history"][0]["idle_cores"] == 0.008
    assert content["by_process"]["10 MB"]["decode"]["prepare"] == 10.0
