"""Situations from public bug reports, each as a small file with its twin under a plain header.

The outcome that its report demands.

The files are those of `cases` in the folder that HILUM_TEST_DATA names; `cases.json` says of each
what must come of it. Those that it marks with `ingest` go into an archive first, as `hilum ingest`
takes them, and are then read from there.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hilum.domain import Priority
from hilum.models.manifest import manifest
from hilum.receive.files.folder import FileOutcome, TakenFile
from hilum.services.ingest import FileOrigin, ingest
from hilum.settings import Receive, Settings, Site
from hilum.store.archive.archive import Archive
from hilum.store.migrations.migrate import migrate
from hilum_preprocessing import InputSpec, NotAnalysable, read_file
from hilum_preprocessing.prepare import prepare

REPOSITORY = Path(__file__).parents[4] / "model_repository"
FOLDER = Path(os.environ.get("HILUM_TEST_DATA", "/nowhere"), "cases")
CASES: list[dict[str, Any]] = (
    json.loads((FOLDER / "cases.json").read_text()) if (FOLDER / "cases.json").is_file() else []
)
SHAPE_CORRELATION = 0.99

pytestmark = pytest.mark.skipif(
    not CASES, reason="HILUM_TEST_DATA does not name a folder with cases/cases.json"
)
each_case = pytest.mark.parametrize(
    ("case", "release"),
    [
        pytest.param(case, release, id=f"{case['id']}-{release}")
        for case in CASES
        for release in case["releases"]
    ],
)


@dataclass(frozen=True)
class Outcome:
    """A tensor, its view and flags; or a reason instead."""

    tensor: NDArray[Any] | None = None
    view: str = ""
    flags: frozenset[str] = frozenset()
    reason: str = ""


def outcome_of(path: Path, release: str) -> Outcome:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pydicom warns of what is odd in odd files
            prepared = prepare(read_file(path), spec_of(release))
    except NotAnalysable as error:
        return Outcome(reason=error.reason.value)
    return Outcome(prepared.tensor.float().numpy(), prepared.view, frozenset(prepared.flags))


def spec_of(release: str) -> InputSpec:
    return manifest.read(REPOSITORY / release / "manifest.toml").spec


def is_same(case: dict[str, Any], found: Outcome, twin: Outcome) -> bool:
    assert twin.tensor is not None, f"the twin is not analysed: {twin.reason}"
    if found.tensor is None:
        return False
    if case.get("measure") == "shape":
        return (
            float(np.corrcoef(found.tensor.ravel(), twin.tensor.ravel())[0, 1]) > SHAPE_CORRELATION
        )
    apart = float(np.abs(found.tensor - twin.tensor).max())
    return apart <= case.get("tolerance", 0.0) * float(np.ptp(twin.tensor))


def is_reason(case: dict[str, Any], found: Outcome) -> bool:
    return found.tensor is None and (not case.get("reasons") or found.reason in case["reasons"])


def is_said(found: Outcome, twin: Outcome) -> bool:
    return found.tensor is None or bool(found.flags - twin.flags)


Rule = Callable[[dict[str, Any], Outcome, Outcome], bool]
EXPECTED: dict[str, Rule] = {
    "same": lambda case, found, twin: (
        is_same(case, found, twin) and case.get("flag", "") in {"", *found.flags}
    ),
    "reason": lambda case, found, _: is_reason(case, found),
    "same_or_reason": lambda case, found, twin: (
        is_same(case, found, twin) or is_reason(case, found)
    ),
    "same_or_flag": lambda case, found, twin: (
        is_same(case, found, twin) or case["flag"] in found.flags
    ),
    "not_silent": lambda _, found, twin: is_said(found, twin),
    "same_or_not_silent": lambda case, found, twin: (
        is_same(case, found, twin) or is_said(found, twin)
    ),
}


def check(case: dict[str, Any], found: Outcome, twin: Outcome) -> None:
    seen = f"{case['what']}: {found.reason or sorted(found.flags)}, expected {case['expect']}"
    assert EXPECTED[case["expect"]](case, found, twin), seen
    if "view" in case and found.tensor is not None:
        assert found.view == case["view"], case["what"]


@each_case
def test_a_reported_case_ends_as_its_report_demands(case: dict[str, Any], release: str) -> None:
    check(
        case,
        outcome_of(FOLDER / f"{case['id']}.dcm", release),
        outcome_of(FOLDER / f"{case['twin']}.dcm", release),
    )


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["id"]) for case in CASES if case.get("ingest")]
)
def test_a_reported_case_that_was_ingested_ends_the_same(
    case: dict[str, Any], tmp_path: Path
) -> None:
    found, detail = ingested(FOLDER / f"{case['id']}.dcm", tmp_path)
    for release in case["releases"]:
        outcome = outcome_of(found, release) if found else Outcome(reason=detail)
        check(case, outcome, outcome_of(FOLDER / f"{case['twin']}.dcm", release))


def ingested(path: Path, folder: Path) -> tuple[Path | None, str]:
    """Where the archive keeps the file; or why it was not taken."""
    settings = Settings(site=Site(state_dir=folder / "state"), receive=Receive(reserve_bytes=0))
    settings.site.state_dir.mkdir()
    migrate(settings.ledger_url)
    seen: list[TakenFile] = []
    ingest(
        settings, [path], FileOrigin("SENDER", "HILUM", Priority.LIVE), 1, seen.append, pytest.fail
    )
    (taken,) = seen
    if taken.fate is not FileOutcome.STORED:
        assert taken.detail, "a file that is not taken says why"
        return None, taken.detail
    (kept,) = Archive(settings.archive_dir).root.rglob("*.dcm")
    return kept, ""


def test_every_case_is_read_by_a_known_rule() -> None:
    assert {case["expect"] for case in CASES} <= set(EXPECTED)
    assert {case["id"] for case in CASES} <= {path.stem for path in FOLDER.glob("*.dcm")}
