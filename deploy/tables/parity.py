"""The table of docs/figures/models_parity.md, from the result of `make bench-parity`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

_RESULT: Final = Path(__file__).resolve().parents[2] / "load_tests/results/bench-parity.json"
_ZERO_SHOT: Final = _RESULT.with_name("bench-zero-shot.json")
_COLUMNS: Final = ("logits", "maps", "sum")


def parity_table(row: Callable[..., str]) -> Iterator[str]:
    """One line a network, engine and batch."""
    run = json.loads(_RESULT.read_text(encoding="utf-8"))
    versions = ", ".join(
        f"{name} {run['versions'][name]}" for name in ("torch", "onnxruntime", "openvino")
    )
    yield f"\nMeasured {run['measured_at'][:10]} on {run['machine']['cpu']}; {versions}.\n"
    yield (
        f"| network | checkpoint | engine | batch | {' | '.join(_COLUMNS)}"
        f" |\n|---|---|---|--:|{'--:|' * len(_COLUMNS)}"
    )
    for network in run["rows"]:
        for engine, sizes in network["engines"].items():
            for size, found in sizes.items():
                yield row(network["network"], network["checkpoint"], engine, size, *_figures(found))
    yield from _goals(run, row)


def zero_shot_table(row: Callable[..., str]) -> Iterator[str]:
    """One line a network of the comparison with another implementation of CLIP."""
    run = json.loads(_ZERO_SHOT.read_text(encoding="utf-8"))
    versions = f"transformers {run['transformers']}, torch {run['versions']['torch']}"
    yield f"\nMeasured {run['measured_at'][:10]} on {run['machine']['cpu']}; {versions}.\n"
    engines = list(run["rows"][0]["similarities"])
    yield (
        f"| network | tensors | prompts | other tokens | embeddings | {' | '.join(engines)}"
        f" |\n|---|--:|--:|--:|--:|{'--:|' * len(engines)}"
    )
    for network in run["rows"]:
        counts = [network[name] for name in ("tensors", "prompts", "prompts_with_other_tokens")]
        figures = [network["embeddings"], *network["similarities"].values()]
        yield row(network["network"], *map(str, counts), *(f"{value:.1e}" for value in figures))
    yield from _goals(run, row)


def _goals(run: Mapping[str, Any], row: Callable[..., str]) -> Iterator[str]:
    yield "\n| goal | measured | at most | holds |\n|---|--:|--:|---|"
    for goal in run["goals"]:
        yield row(
            goal["name"],
            f"{goal['value']:.1e}",
            f"{goal['goal']:g}",
            "yes" if goal["holds"] else "no",
        )


def _figures(found: Mapping[str, Any]) -> list[str]:
    return [f"{found[name]:.1e}" if name in found else "none" for name in _COLUMNS]
