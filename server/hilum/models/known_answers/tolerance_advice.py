"""Advice about a tolerance for the builder of a release: the line to write into its manifest."""

from __future__ import annotations

import math
from typing import Final

from hilum.models.known_answers import canary
from hilum.models.manifest.manifest import FILE_NAME
from hilum.models.manifest.tables import EngineTable

LEAST_DISTANCE: Final = 3.0
"""Least distance of the canary from a grey image, in tolerances.

A canary that an image of one grey level could pass proves nothing.
"""
_ROUNDING: Final = 1e-6  # below it float32 hardly distinguishes two logits


def smaller(apart: float, engine: EngineTable) -> str:
    """Return advice where the canary and an image of one grey level have nearly the same logits."""
    found = (
        f"its logits for the known image and for an image of one grey level differ by {apart:.2g}"
        " only"
    )
    if apart / LEAST_DISTANCE < _ROUNDING:
        return (
            f"{found}: the network hardly sees its input. Bring the trained weights, and see"
            " whether weights.output names the logits"
        )
    why = (
        f"with a tolerance of {canary.tolerance(engine):g} a wrong answer could pass, because"
        f" {LEAST_DISTANCE:g} times that is needed"
    )
    line = f"`tolerance = {_one_digit(apart / LEAST_DISTANCE, is_upwards=False)}`"
    return (
        f"{found}; {why}. If these are the right weights, write {line} under [engine] in"
        f" {FILE_NAME}, then build again"
    )


def larger(worst: float, engine: EngineTable) -> str:
    """Return advice where an engine's logits are too far from the reference's."""
    off = (
        f"{engine.name} {engine.precision} differs by {worst:.2g} from the reference;"
        f" {canary.tolerance(engine):g} is allowed"
    )
    if not math.isfinite(worst):
        return (
            f"{off}. Its logits are not numbers: take another engine.name or engine.precision, then"
            " build again"
        )
    ways = " or ".join(f"`{each}`" for each in _other_engines(engine))
    other = f"Try {ways} under [engine] in {FILE_NAME}. " if ways else ""
    line = f"`tolerance = {_one_digit(worst, is_upwards=True)}`"
    return (
        f"{off}. {other}If results may differ by so much, write {line} under [engine] in"
        f" {FILE_NAME}. Then build again"
    )


def _other_engines(engine: EngineTable) -> list[str]:
    """Return lines that may bring the engine nearer to the reference."""
    if engine.precision == "bf16":
        return ['precision = "f32"']
    if engine.name == "openvino":
        return ['name = "onnxruntime"']
    return ['optimisation = "disabled"'] if engine.optimisation != "disabled" else []


def _one_digit(value: float, *, is_upwards: bool) -> str:
    """Return a positive number rounded to one digit, in TOML.

    It is the next one above the value, or below it.
    """
    exponent = math.floor(math.log10(value))
    digit = value / 10.0**exponent
    rounded = (math.ceil(digit) if is_upwards else max(1, math.floor(digit))) * 10.0**exponent
    return f"{rounded:.0e}" if exponent < -3 else f"{rounded:.{max(1, -exponent)}f}"
