"""That `make bench-writes` measures what it says."""

from __future__ import annotations

import json
from pathlib import Path

from load_tests import writes


def test_a_run_has_figures_of_both_ways_and_leaves_nothing(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    writes.main(["--rounds", "2", "--folder", str(tmp_path), "--result", str(result)])
    found = json.loads(result.read_text(encoding="utf-8"))
    assert {way: {step: len(taken) for step, taken in steps.items()} for way, steps in found["rows"].items()} == {
        way: {"write": 2, "read": 2, "drop": 2} for way in ("anywhere", "aligned")
    }
    assert all(min(taken) > 0 for steps in found["rows"].values() for taken in steps.values())
    assert found["goals"][0]["value"] > 0
    assert list(tmp_path.iterdir()) == [result]
