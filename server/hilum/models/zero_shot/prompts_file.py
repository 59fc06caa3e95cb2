"""A person's prompts.toml: which findings a zero-shot release is asked for, and in which words."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError

from hilum.dicom.text import Line
from hilum.errors import ConfigurationError
from hilum.models.manifest import label_names, terminology
from hilum.models.manifest.labels import StrictTable
from hilum.models.manifest.messages import explain

_PLACE: Final = "{finding}"
_POSITIVE: Final = (_PLACE,)
_NEGATIVE: Final = (f"no {_PLACE}",)
_MOST_FINDINGS: Final = 256


class FindingTable(StrictTable):
    """A finding with words of its own."""

    label: Line
    positive: tuple[str, ...] | None = Field(None, min_length=1)
    negative: tuple[str, ...] | None = Field(None, min_length=1)


class PromptsFileTable(StrictTable):
    """The whole file; the templates are for findings without words of their own."""

    positive: tuple[str, ...] = Field(_POSITIVE, min_length=1)
    negative: tuple[str, ...] = Field(_NEGATIVE, min_length=1)
    findings: tuple[Line | FindingTable, ...] = Field(min_length=1, max_length=_MOST_FINDINGS)


@dataclass(frozen=True, slots=True)
class FindingPrompts:
    """The texts that ask for one finding, and those that deny it."""

    finding: str
    positive: tuple[str, ...]
    negative: tuple[str, ...]


def published() -> tuple[FindingPrompts, ...]:
    """Return CheXzero's prompts: the 14 labels of CheXpert, each beside its denial.

    In the order of the alphabet, and each label as the data set writes it (CheXzero, zero_shot.py).
    """
    labels = terminology.load().label_sets["chexpert_14"].labels
    return tuple(_prompts(label, _POSITIVE, _NEGATIVE) for label in sorted(dict(labels)))


def read(path: Path) -> tuple[FindingPrompts, ...]:
    """Return the prompts of a person's file, in its order.

    Raises ConfigurationError with every problem.
    """
    try:
        table = PromptsFileTable.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigurationError([f"{path}: {error.strerror}"]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError([f"{path}: not valid TOML: {error}"]) from error
    except ValidationError as error:
        raise ConfigurationError([f"{path}: {explain(item)}" for item in error.errors()]) from error
    found = [_of(each, table) for each in table.findings]
    if problems := [*_template_problems(table), *_twice(found)]:
        raise ConfigurationError([f"{path}: {problem}" for problem in problems])
    return tuple(found)


def _of(given: str | FindingTable, table: PromptsFileTable) -> FindingPrompts:
    own = FindingTable(label=given) if isinstance(given, str) else given
    return _prompts(own.label, own.positive or table.positive, own.negative or table.negative)


def _prompts(label: str, positive: Sequence[str], negative: Sequence[str]) -> FindingPrompts:
    asked, denied = (
        tuple(text.replace(_PLACE, label) for text in texts) for texts in (positive, negative)
    )
    return FindingPrompts(label, asked, denied)


def _template_problems(table: PromptsFileTable) -> list[str]:
    return [
        f"{name}: {text!r} has no {_PLACE}, and would be the same prompt for every finding"
        for name in ("positive", "negative")
        for text in getattr(table, name)
        if _PLACE not in text
    ]


def _twice(found: Sequence[FindingPrompts]) -> list[str]:
    names = [label_names.plain(each.finding) for each in found]
    return [
        f"findings: {each.finding!r} stands twice"
        for index, each in enumerate(found)
        if names[index] in names[:index]
    ]
