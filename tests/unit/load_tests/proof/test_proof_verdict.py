"""The verdict of `make proof` sees what must never be.

Each case changes one thing of a clean street.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from load_tests.proof.evidence import Evidence, Report, stray_files
from load_tests.proof.part import Outcome
from load_tests.proof.results import merge, section
from load_tests.proof.street.soak import slope
from load_tests.proof.verdict import Verdict, judge

ACKNOWLEDGED = {"1.1": "a", "1.2": "b", "2.1": "c"}
STUDIES = {"1": frozenset({"1.1", "1.2"}), "2": frozenset({"2.1"})}
FIRST = Report(frozenset({"1.1", "1.2"}), "9.1", "x", "x")
SECOND = Report(frozenset({"2.1"}), "9.2", "y", "y")
CLEAN = Evidence(
    kept=ACKNOWLEDGED,
    current={"1": [FIRST], "2": [SECOND]},
    same_revision=(),
    changed=(),
    without_row=(),
    open_rows={},
    stuck_rows={},
    stray_files=(),
    repeated=3,
)


def verdict(**changes: Any) -> Verdict:
    return judge(ACKNOWLEDGED, STUDIES, replace(CLEAN, **changes))


def test_a_clean_street() -> None:
    found = verdict()
    assert found.is_clean
    assert all(goal.holds for goal in found.goals())
    assert found.repeated == 3, "the same bytes again are no offence"


@pytest.mark.parametrize(
    ("changes", "what", "said"),
    [
        ({"kept": {"1.1": "a", "2.1": "c"}}, "lost", "1.2: acknowledged, and no row"),
        (
            {"kept": {**ACKNOWLEDGED, "1.2": ""}},
            "lost",
            "1.2: acknowledged, and not in the archive",
        ),
        (
            {"kept": {**ACKNOWLEDGED, "1.2": "B"}},
            "lost",
            "1.2: acknowledged, and other bytes in the archive",
        ),
        (
            {"current": {"1": [FIRST]}},
            "unreported",
            "2: the PACS has no report on all of its 1 images",
        ),
        (
            {"current": {"1": [replace(FIRST, arrived=None)], "2": [SECOND]}},
            "unreported",
            "1: the PACS has no report",
        ),
        (
            {"current": {"1": [replace(FIRST, images=frozenset({"1.1"}))], "2": [SECOND]}},
            "unreported",
            "1: the PACS has no report",
        ),
        ({"changed": ("9.1",)}, "contradicting", "9.1: came with other bytes"),
        ({"without_row": ("9.7",)}, "contradicting", "9.7: came, and no row"),
        ({"same_revision": ("1",)}, "contradicting", "1: two results in one revision"),
        (
            {"current": {"1": [FIRST, FIRST], "2": [SECOND]}},
            "contradicting",
            "1: 2 current reports",
        ),
        (
            {"current": {"1": [replace(FIRST, arrived="X")], "2": [SECOND]}},
            "contradicting",
            "9.1: came with other bytes than are stored",
        ),
        ({"open_rows": {"reading leased": 1}}, "stuck", "reading leased"),
        ({"stuck_rows": {"delivery dead": 1}}, "stuck", "delivery dead"),
        ({"stray_files": ("unindexed/a.part",)}, "stray", "unindexed/a.part"),
    ],
)
def test_every_broken_promise_is_seen(changes: dict[str, Any], what: str, said: str) -> None:
    found = verdict(**changes)
    (line,) = getattr(found, what)
    assert line.startswith(said)
    assert not found.is_clean
    assert [goal.holds for goal in found.goals()].count(False) == 1
    assert line in found.examples()


def test_stray_files_are_those_that_no_row_names(tmp_path: Path) -> None:
    for name in (
        "ab/cd/abcd.dcm",
        "ab/cd/other.dcm",
        "unindexed/host/x.part",
        "unindexed/host/y.dcm",
        "locks/host.lock",
        "hilum-archive.json",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert stray_files(tmp_path, {"ab/cd/abcd.dcm"}) == [
        "ab/cd/other.dcm",
        "unindexed/host/x.part",
        "unindexed/host/y.dcm",
    ]


def test_memory_that_grows_with_the_studies_has_a_slope() -> None:
    growing = [{"studies": n * 1000.0, "listener": 100 + 3.0 * n} for n in range(10)]
    filling_up = [
        {"studies": n * 1000.0, "listener": min(130.0, 100 + 10.0 * n)} for n in range(10)
    ]
    assert slope(growing, "listener") == pytest.approx(3.0)
    assert slope(filling_up, "listener") == 0
    assert slope(growing, "api") == 0


def test_a_part_keeps_the_sections_of_the_others(tmp_path: Path) -> None:
    import json

    file = tmp_path / "proof.json"
    merge(file, "kills", section(Outcome({"studies": 1}), seed=1, seconds=2.0, is_short=True))
    merge(file, "soak", section(Outcome(left_out="no time"), seed=1, seconds=0.0, is_short=False))
    parts = json.loads(file.read_text())["parts"]
    assert parts["kills"]["figures"] == {"studies": 1}
    assert parts["kills"]["form"] == "short"
    assert parts["soak"]["left_out"] == "no time"
