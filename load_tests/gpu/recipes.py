"""Every recipe on the device: against this machine's CPU, and against the recorded tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import torch

from hilum_preprocessing import RECIPES, InputSpec, NotAnalysable, StoredValues, prepare_stored
from hilum_preprocessing.self_check import known_pictures, self_check
from load_tests.gpu.outcome import GpuOutcome, GpuPlan
from load_tests.gpu.rates import drawn, stored
from load_tests.load.figures import Goal

Arithmetic = Literal["float", "fp16"]
_ROUNDING: Final = 0.5  # a step of fp16 at 1024
_SIZES: Final = ((1203, 1021), (301, 257), (260, 700))


def measure(plan: GpuPlan) -> GpuOutcome:
    """Return the largest differences of each recipe, and which recorded tensors are missed."""
    pictures = [*known_pictures(), *_pictures(plan)]
    rows = [_row(recipe, pictures, plan.device) for recipe in plan.recipes or RECIPES]
    return GpuOutcome({"pictures": len(pictures), "recipes": rows}, tuple(goals(rows)))


def _pictures(plan: GpuPlan) -> Iterator[StoredValues]:
    sizes = _SIZES[:1] if plan.is_quick else (plan.picture, *_SIZES)
    for number, (rows, columns) in enumerate(sizes):
        yield stored(drawn(rows, columns, seed=number))


def _row(recipe: str, pictures: Sequence[StoredValues], device: str) -> dict[str, Any]:
    spec = InputSpec.from_mapping({"recipe": recipe})
    return {
        "recipe": recipe,
        "wire": spec.wire_dtype,
        "float": _largest(pictures, spec, device, "float"),
        "fp16": _largest(pictures, spec, device, "fp16"),
        "golden": self_check(spec, device),
    }


def _largest(
    pictures: Sequence[StoredValues], spec: InputSpec, device: str, arithmetic: Arithmetic
) -> float:
    return max(
        difference(_tensor(item, spec, "cpu", "float"), _tensor(item, spec, device, arithmetic))
        for item in pictures
    )


def difference(here: torch.Tensor | None, there: torch.Tensor | None) -> float:
    """Return the largest difference to the CPU, in units of the wire.

    Infinite if one device refuses, or a value is no number: no maximum finds a NaN.
    """
    if here is None or there is None:
        return 0.0 if here is there else float("inf")
    found = float((here.double() - there.cpu().double()).abs().max())
    return found if math.isfinite(found) else float("inf")


def _tensor(
    item: StoredValues, spec: InputSpec, device: str, arithmetic: Arithmetic
) -> torch.Tensor | None:
    try:
        return prepare_stored(item, spec, device, arithmetic)
    except NotAnalysable:
        return None


def goals(rows: Sequence[dict[str, Any]]) -> Iterator[Goal]:
    """Yield those of the design: whole grey levels to the bit, fp16 within its own steps."""
    for arithmetic, bound in (("float", _ROUNDING), ("fp16", 2 * _ROUNDING)):
        halves = [row[arithmetic] for row in rows if row["wire"] == "fp16"]
        name = f"largest difference to the CPU, half precision, {arithmetic}"
        yield Goal(name, max(halves, default=float("nan")), "of 1024", bound)
        whole = [row[arithmetic] for row in rows if row["wire"] == "uint8"]
        name = f"largest difference to the CPU, whole grey levels, {arithmetic}"
        yield Goal(name, max(whole, default=float("nan")), "levels", 0)
    missed = sum(row["golden"] is not None for row in rows)
    yield Goal("recipes that miss their recorded tensors", missed, "recipes", 0)
