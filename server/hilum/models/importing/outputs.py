"""The lines of the manifest's `labels`, from the authors' names of the outputs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Final

from hilum.errors import ConfigurationError
from hilum.models.manifest import label_names, terminology
from hilum.toml import quoted

_NO_NAME: Final = re.compile(r"^(label|class|output)?[ _]?\d+$", re.IGNORECASE)


def names(asked: str | None, found: Sequence[str], count: int) -> Sequence[str]:
    """Return the label of each output.

    It comes from a known order, from a file with one a line, or from the files beside the
    checkpoint.

    Raises ConfigurationError where no source names the outputs, or their number differs. The order
    gives every number its meaning and is never guessed.
    """
    told = {} if all(map(_NO_NAME.match, found)) else {"labels": json.dumps(list(found))}
    named = label_names.named(asked, told, count)
    if named is None:
        known = ", ".join(terminology.load().label_sets)
        advice = (
            f"say with --labels in which order: {known}, or a file with one label a line (an empty"
            " line: an output without a name)"
        )
        raise ConfigurationError(
            [f"the network has {count} outputs and nothing says what they are; {advice}"]
        )
    return named.names


def lines(labels: Sequence[str], thresholds: Sequence[float] | None) -> Iterator[str]:
    """Return one table a label.

    With thresholds, scores are bent there and decided at 0.5, and an output without one is masked.
    Without thresholds, outputs are scored and never decided.
    """
    for index, label in enumerate(labels):
        meaning = _meaning(label, index)
        if not meaning:
            yield f"  {{ is_masked = true }}, # output {index}: its authors gave it no name"
        elif thresholds is None:
            yield f'  {{ {meaning}, operating_point = "none" }},{_comment(label, meaning)}'
        elif math.isnan(thresholds[index]):
            yield (
                f"  {{ {meaning}, is_masked = true }}, # its authors have no operating point for"
                " it: 0.5 whatever the image"
            )
        else:
            yield (
                f"  {{ {meaning}, operating_point = 0.5, rescaled_at = {thresholds[index]:.9g}"
                f" }},{_comment(label, meaning)}"
            )


def _meaning(label: str, index: int) -> str:
    """Return the concept where one has this label, else a private code."""
    if not label:
        return ""
    if key := label_names.concept_of(label):
        return f'concept = "{key}"'
    return f'private = "{label_names.private_code(label, index)}", text = {quoted(label[:64])}'


def _comment(label: str, meaning: str) -> str:
    if meaning.startswith("private"):
        return " # EDIT: no concept is known by this label; docs/models/terminology.md has them all"
    return "" if label_names.concept_of(label) == label.lower() else f" # {ascii(label)[1:-1]}"
