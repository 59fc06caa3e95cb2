"""Coded concepts: every code that a release may use is verified or private.

The table is `terminology.toml`. It is checked when it is read: a code that fails here is in no
report.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hilum.domain import Code
from hilum.errors import ConfigurationError

PRIVATE_SCHEME: Final = "99HILUM"
_TABLE: Final = Path(__file__).with_name("terminology.toml")
_FIELDS: Final = frozenset(
    {"text", "scheme", "value", "meaning", "status", "source", "is_assertable"}
)
# Value Representations of PS3.3 8.8: Code Value and Coding Scheme Designator are SH, Code
# Meaning is LO (PS3.5 6.2).
_LONGEST: Final = {"value": 16, "scheme": 16, "meaning": 64}
# Verhoeff's permutation and dihedral multiplication; the check digit of every SNOMED CT identifier
# (SNOMED CT TIG, 5.5).
_MULTIPLY: Final = (
    "0123456789 1234067895 2340178956 3401289567 4012395678 5987604321 6598710432 7659821043"
    " 8765932104 9876543210"
)
_PERMUTE: Final = (
    "0123456789 1576283094 5803796142 8916043527 9453126870 4286573901 2793806415 7046913258"
)


@dataclass(frozen=True, slots=True)
class Concept:
    """One row of the table.

    `is_assertable` False: no release may decide on it.
    """

    key: str
    text: str
    code: Code
    status: str
    source: str
    is_assertable: bool = True


@dataclass(frozen=True, slots=True)
class LabelSet:
    """The labels of a public data set in its own spelling, in the order of its outputs.

    Each is (label, key of the concept).
    """

    labels: tuple[tuple[str, str], ...]
    cites: str


@dataclass(frozen=True, slots=True)
class Terminology:
    """The checked table and its version."""

    version: str
    concepts: Mapping[str, Concept]
    denied: Mapping[tuple[str, str], str]
    label_sets: Mapping[str, LabelSet]

    def meant_by(self, label: str) -> str | None:
        """Return the key of the concept of a public label: "Pleural_Thickening", "Effusion"."""
        return next(
            (
                key
                for known in self.label_sets.values()
                for name, key in known.labels
                if name == label
            ),
            None,
        )


def is_snomed_identifier(value: str) -> bool:
    """Whether the digits end in their Verhoeff check digit."""
    if not (value.isascii() and value.isdigit() and 6 <= len(value) <= 18):
        return False
    multiply = _MULTIPLY.split()
    permute = _PERMUTE.split()
    check = 0
    for position, digit in enumerate(reversed(value)):
        check = int(multiply[check][int(permute[position % 8][int(digit)])])
    return check == 0


def parse(table: Mapping[str, Any]) -> Terminology:
    """Return the table as types.

    Raises ConfigurationError with every wrong row.
    """
    denied = {_denied_key(key): why for key, why in table.get("denied", {}).items()}
    rows = table.get("concepts", {})
    sets = _label_sets(table)
    problems = [
        f"{key}: {problem}" for key, row in rows.items() for problem in _problems(row, denied)
    ]
    problems += [*_double_codes(rows), *_labels_without_concept(sets, rows)]
    if problems:
        raise ConfigurationError([f"terminology: {problem}" for problem in problems])
    concepts = {key: _concept(key, row) for key, row in rows.items()}
    return Terminology(str(table["version"]), concepts, denied, sets)


def _label_sets(table: Mapping[str, Any]) -> dict[str, LabelSet]:
    return {
        name: LabelSet(tuple((label, key) for label, key in row["labels"]), row["cites"])
        for name, row in table.get("label_sets", {}).items()
    }


def _labels_without_concept(sets: Mapping[str, LabelSet], rows: Mapping[str, Any]) -> Iterator[str]:
    for name, known in sets.items():
        yield from (
            f"{name}: {label} has no concept" for label, key in known.labels if key not in rows
        )


@functools.cache
def load() -> Terminology:
    """Return the table of this installation."""
    return parse(tomllib.loads(_TABLE.read_text(encoding="utf-8")))


def _denied_key(key: str) -> tuple[str, str]:
    scheme, _, value = key.partition(" ")
    return scheme, value


def _concept(key: str, row: Mapping[str, Any]) -> Concept:
    code = Code(row["value"], row["scheme"], row["meaning"])
    return Concept(
        key, row["text"], code, row["status"], row["source"], row.get("is_assertable", True)
    )


def _problems(row: Mapping[str, Any], denied: Mapping[tuple[str, str], str]) -> Iterator[str]:
    yield from (f"unknown field {name!r}" for name in sorted(set(row) - _FIELDS))
    missing = sorted(_FIELDS - {"is_assertable"} - set(row))
    if missing:
        yield f"missing {', '.join(missing)}"
        return
    yield from _code_problems(row["scheme"], row["value"], row["status"], denied)
    yield from (
        f"{name} is longer than {most} characters"
        for name, most in _LONGEST.items()
        if len(row[name]) > most
    )


def _code_problems(
    scheme: str, value: str, status: str, denied: Mapping[tuple[str, str], str]
) -> Iterator[str]:
    if why := denied.get((scheme, value)):
        yield f"{scheme} {value} is on the deny list: {why}"
    if scheme == "SCT" and not is_snomed_identifier(value):
        yield f"SCT {value} fails its check digit"
    if status not in {"A", "B", "C"}:
        yield f"status {status!r} is none of A, B, C"
    if (status == "C") != (scheme == PRIVATE_SCHEME):
        yield (
            f"status C and the private scheme {PRIVATE_SCHEME} go together; got {status}"
            f" with {scheme}"
        )


def _double_codes(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield concepts with the same code, which could not be distinguished in a report."""
    seen: dict[tuple[str, str], str] = {}
    for key, row in rows.items():
        first = seen.setdefault((row.get("scheme", key), row.get("value", key)), key)
        if first != key:
            yield f"{key}: has the code of {first}"
