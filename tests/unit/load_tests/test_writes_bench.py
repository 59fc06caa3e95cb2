"""That `make bench-writes` measures what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hilum.store.archive.direct_io import takes_direct_io
from load_tests.bench import writes
from tests.support.machine.page_cache import can_be_dropped


def test_a_run_has_figures_of_both_ways_and_leaves_nothing(tmp_path: Path) -> None:
    probe = tmp_path / "probe"
    probe.write_bytes(bytes(1 << 20))
    if not can_be_dropped(probe) or not takes_direct_io(tmp_path):
        pytest.skip("this file system keeps its files in memory, or reads through it alone")
    probe.unlink()
    result = tmp_path / "result.json"
    code = writes.main(["--rounds", "2", "--folder", str(tmp_path), "--result", str(result)])
    found = json.loads(result.read_text(encoding="utf-8"))
    assert {
        way: {step: len(taken) for step, taken in steps.items()}
        for way, steps in found["rows"].items()
    } == {
        way: {"write": 2, "read": 2, "drop": 2, "mapped": 2, "past the cache": 2}
        for way in ("anywhere", "aligned")
    }
    assert all(min(taken) > 0 for steps in found["rows"].values() for taken in steps.values())
    assert [goal["value"] > 0 for goal in found["goals"]] == [True, True]
    assert code == (0 if all(goal["holds"] for goal in found["goals"]) else 1)
    assert list(tmp_path.iterdir()) == [result]
