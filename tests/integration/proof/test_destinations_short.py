"""The short form of the proof's part `destinations`: two kinds of destination, three troubles."""

from __future__ import annotations

from pathlib import Path

import pytest

from load_tests.proof.destinations.run import (
    QUICK_KINDS,
    QUICK_TROUBLES,
    destinations,
)
from load_tests.proof.part import Plan
from testing.tiny_release import make_tiny


@pytest.mark.slow
def test_no_trouble_loses_or_alters_a_document(tmp_path: Path) -> None:
    plan = Plan(tmp_path / "part", make_tiny(tmp_path / "release"), seed=1, is_short=True)
    outcome = destinations(plan)
    assert not outcome.left_out
    assert outcome.holds, (outcome.problems, outcome.goals)
    troubles = outcome.figures["troubles"]
    assert {name: tuple(found["kinds"]) for name, found in troubles.items()} == dict.fromkeys(
        QUICK_TROUBLES, QUICK_KINDS
    )
    assert outcome.figures["documents_repeated"] > 0, "no trouble met a document"
