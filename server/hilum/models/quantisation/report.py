"""The report of a quantisation, for programs and for people.

File names of images are left out: they may name patients.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hilum.models.known_answers.acceptance import Judgement, LabelChange


def write(stem: Path, facts: Mapping[str, Any], judgement: Judgement) -> Path:
    """Write `<stem>.json` and `<stem>.md`; return the latter's path."""
    text = stem.with_name(f"{stem.name}.json")
    words = stem.with_name(f"{stem.name}.md")
    text.write_text(json.dumps({**facts, **judgement.as_json()}, indent=1) + "\n", encoding="utf-8")
    words.write_text("\n".join(_lines(facts, judgement)) + "\n", encoding="utf-8")
    return words


def _lines(facts: Mapping[str, Any], judgement: Judgement) -> Iterator[str]:
    yield from _head(facts, judgement)
    yield from (f"\n* {problem}" for problem in judgement.problems)
    yield (
        "\n| finding | largest change of a score | area before | area after | fall"
        " |\n|---|--:|--:|--:|--:|"
    )
    yield from (_row(change) for change in judgement.labels)
    limits = facts["limits"]
    yield (
        f"| *allowed* | {limits['maximum_score_difference']:g} | | |"
        f" {limits['maximum_auc_drop']:g} |"
    )


def _head(facts: Mapping[str, Any], judgement: Judgement) -> Iterator[str]:
    before, after = (facts["size_bytes"][name] / 1e6 for name in ("before", "after"))
    yield f"# {facts['quantised_release']}: {'accepted' if judgement.is_accepted else 'refused'}\n"
    yield f"int8 from {facts['release']}: {before:.1f} MB became {after:.1f} MB."
    yield (
        f"Calibrated with {facts['calibration_images']} images, judged by {judgement.cases} others."
    )
    if not facts["is_auc_compared"]:
        yield "No labelled cases were given: the area under the ROC curve was not compared."


def _row(change: LabelChange) -> str:
    areas = (
        "" if value is None else f"{value:.4f}"
        for value in (change.auc_before, change.auc_after, change.auc_drop)
    )
    return f"| {change.key} | {change.largest_score_difference:.4f} | {' | '.join(areas)} |"
