"""The generated parts of docs/models/recipes.md, input_spec.md and decoding.md.

Recipes, fields, operations, traps with their tests, C-ECHO.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import tomllib
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from deploy.words_of_types import words_of
from hilum_preprocessing import RECIPES, InputSpec
from hilum_preprocessing.guard.doubts import REFUSED_TOGETHER
from hilum_preprocessing.spec.input_spec import Normalise, Target
from hilum_preprocessing.spec.operations import GEOMETRY, INTENSITY
from hilum_preprocessing.spec.population import Population
from hilum_preprocessing.spec.source import FixedWindow, Source

ROOT: Final = Path(__file__).resolve().parents[2]
GOLDENS: Final = ROOT / "load_tests/results/goldens.json"
BENCH_ECHO: Final = ROOT / "load_tests/results/bench-echo.json"
TRAPS: Final = ROOT / "tests/traps.toml"
TABLES: Final[Mapping[str, type[Any]]] = {
    "The whole": InputSpec,
    "`source`": Source,
    "`source.fixed_window`": FixedWindow,
    "`target`": Target,
    "`normalise`": Normalise,
    "`population`": Population,
}
_NUMBERS: Final = re.compile(r"\bTraps? ((?:\d+(?:, and |, | and )?)+)")
Row = Callable[..., str]


def recipes_table(row: Row) -> Iterator[str]:
    """Every recipe, and how far it is from its authors' operations in the committed run of load_tests/bench/goldens.py."""
    run = json.loads(GOLDENS.read_text(encoding="utf-8"))
    measured = {item["recipe"]: item for item in run["recipes"]}
    yield (
        "\nCompared with "
        + ", ".join(f"{name} {number}" for name, number in run["libraries"].items())
        + ".\n"
    )
    yield (
        "| recipe | wire | version | difference before the wire | on it | pictures | source"
        " |\n|---|---|---|--:|--:|--:|---|"
    )
    for name in RECIPES:
        spec = InputSpec.from_mapping({"recipe": name})
        found = measured[name]
        wire = (
            f"{spec.wire_dtype} {spec.target.height} x {spec.target.width},"
            f" {spec.model_channels} ch."
        )
        differences = (_difference(found[key]) for key in ("before", "on_the_wire"))
        yield row(
            f"`{name}`", wire, f"`{spec.version}`", *differences, str(found["pictures"]), spec.cites
        )


def doubts_table(row: Row) -> Iterator[str]:
    """The default combinations of flags whose images are not analysed."""
    yield "\n| flags that an image has together | what it ends as |\n|---|---|"
    yield from (
        row(", ".join(f"`{flag}`" for flag in flags), "`implausible_pixels`")
        for flags in REFUSED_TOGETHER
    )


def _difference(value: float) -> str:
    return "0" if value < 1e-9 else f"{value:.4f}"


def echo_table(row: Row) -> Iterator[str]:
    """Of the committed run of `make bench-echo`."""
    if not BENCH_ECHO.is_file():
        yield "\nNot measured yet."
        return
    run = json.loads(BENCH_ECHO.read_text(encoding="utf-8"))
    machine = run["machine"]
    measured = {"idle": run["idle_ms"], "decoding": run["busy_ms"]}
    yield f"\nMeasured {run['measured_at'][:10]} on {machine['cores']} cores {machine['cpu']}"
    yield f"with a load average of {machine['load_average_before']:.1f} before it.\n"
    yield f"| C-ECHO, ms | {' | '.join(run['idle_ms'])} |\n|---|{'--:|' * len(run['idle_ms'])}"
    yield from (
        row(name, *(f"{value:.1f}" for value in found.values())) for name, found in measured.items()
    )


def fields_tables(row: Row) -> Iterator[str]:
    """One table a section, then one an operation."""
    for title, table in TABLES.items():
        yield from _fields(f"### {title}", table, row)
    for title, operations in (
        ("Intensity operations", INTENSITY),
        ("Geometry operations", GEOMETRY),
    ):
        yield f"\n### {title}"
        for name, operation in operations.items():
            yield from _fields(f"#### `{name}`", operation, row)


def _fields(title: str, table: type[Any], row: Row) -> Iterator[str]:
    yield f"\n{title}\n\n{' '.join((table.__doc__ or '').split())}"
    fields = dataclasses.fields(table)
    if fields:
        yield "\n| field | type | default | meaning |\n|---|---|---|---|"
    kinds = typing.get_type_hints(table)
    for field in fields:
        kind = words_of(kinds[field.name], _list_of)
        yield row(f"`{field.name}`", kind, _default(field), field.metadata["meaning"])


def _list_of(item: object) -> str:
    return f"list of {'numbers' if item is float else 'operations'}"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING:
        return "required"
    if field.default is None or field.default == "" or dataclasses.is_dataclass(field.default):
        return "none"
    return f"`{json.dumps(field.default)}`"


def traps_table(row: Row) -> Iterator[str]:
    """Every trap, and the tests that fail when it is put back."""
    traps, open_traps = known_traps()
    tests = named_by_tests(sorted((ROOT / "tests").rglob("test_*.py")))
    yield "\n| | trap | tests |\n|--:|---|---|"
    for number, text in traps.items():
        yield row(
            str(number),
            text,
            ", ".join(f"`{name}`" for name in tests.get(number, ()))
            or open_traps.get(number, "none"),
        )


def known_traps() -> tuple[dict[int, str], dict[int, str]]:
    """Number to its words; number to why there is no test."""
    given = tomllib.loads(TRAPS.read_text(encoding="utf-8"))
    open_traps = given.pop("open")
    return {int(number): text for number, text in given.items()}, {
        int(number): text for number, text in open_traps.items()
    }


def named_by_tests(paths: Iterable[Path]) -> dict[int, list[str]]:
    """Number to the tests whose docstring names it, `file::test`."""
    found: dict[int, list[str]] = {}
    for path in paths:
        for test in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) and test.name.startswith(
                "test_"
            ):
                for number in _named(ast.get_docstring(test) or ""):
                    found.setdefault(number, []).append(
                        f"{path.relative_to(ROOT / 'tests')}::{test.name}"
                    )
    return found


def _named(docstring: str) -> Iterator[int]:
    for numbers in _NUMBERS.findall(docstring):
        yield from map(int, re.findall(r"\d+", numbers))
