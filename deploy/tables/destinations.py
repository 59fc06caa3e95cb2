"""The tables of docs/figures/destinations.md: what became of documents under each trouble."""

from __future__ import annotations

import json
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

_RESULT: Final = Path(__file__).resolve().parents[2] / "load_tests/results/proof.json"
_NONE: Final = "-"
_COLUMNS: Final = 80
Cell = Mapping[str, Any]


def destinations_tables(row: Callable[..., str], result: Path = _RESULT) -> Iterator[str]:
    """The troubles; sends again and seconds, by kind; dead letters with their advice."""
    part = json.loads(result.read_text(encoding="utf-8"))["parts"]["destinations"]
    troubles: Mapping[str, Any] = part["figures"]["troubles"]
    kinds = list(dict.fromkeys(kind for item in troubles.values() for kind in item["kinds"]))
    cells = [cell for item in troubles.values() for cell in item["kinds"].values()]
    yield "\n| trouble | what happens |\n|---|---|"
    for name, item in troubles.items():
        yield row(name, item["what"])
    for name, why in part["figures"]["left_out"].items():
        yield row(name, f"left out: {why}")
    yield (
        f"\nOf {sum(cell['documents'] for cell in cells):,} documents"
        f" **{_total(cells, 'lost')} were lost** and {_total(cells, 'altered')} were held twice or"
        "\nwith other content.\n"
    )
    yield "How many documents were sent again, by kind of destination:"
    yield from _by_kind(row, troubles, kinds, lambda cell: str(cell["repeated"]))
    yield "\nSeconds from the end of the trouble until the queue was empty again:"
    yield from _by_kind(row, troubles, kinds, lambda cell: f"{cell['seconds']:.1f}")
    yield "\nDead letters, until a person requeued them, and what the ledger said of each:\n"
    yield from _dead_letters(troubles)


def _dead_letters(troubles: Mapping[str, Any]) -> Iterator[str]:
    """Yield each reason and its advice, with the kinds that had it."""
    kinds: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for item in troubles.values():
        for kind, cell in item["kinds"].items():
            for reason, advice in cell["dead"].items():
                kinds[reason, _after_address(advice)].append(f"`{kind}`")
    for (reason, advice), found in kinds.items():
        text = f"* {', '.join(found)}: `{reason}`, {advice}."
        yield from textwrap.wrap(text, _COLUMNS, subsequent_indent="  ")


def _by_kind(
    row: Callable[..., str],
    troubles: Mapping[str, Any],
    kinds: list[str],
    figure: Callable[[Cell], str],
) -> Iterator[str]:
    yield f"\n| trouble | {' | '.join(kinds)} |\n|---|{'--:|' * len(kinds)}"
    for name, item in troubles.items():
        found: Mapping[str, Cell] = item["kinds"]
        yield row(name, *(figure(found[kind]) if kind in found else _NONE for kind in kinds))


def _total(cells: list[Cell], key: str) -> int:
    return sum(cell[key] for cell in cells)


def _after_address(advice: str) -> str:
    """The advice without the address of the receiver, whose port is chance."""
    for word in ("answered", "answers"):
        before, found, rest = advice.partition(f" {word} ")
        if found and " " not in before:
            return f"{word} {rest}"
    return advice
