"""From logits to scores and probabilities: one image, one release. Floats in, floats out; standard library only."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Numbers = tuple[float, ...]


def sigmoid(value: float) -> float:
    """1 / (1 + e^-value) without overflow at either end, any float → [0, 1]."""
    if value >= 0:
        return 1.0 / (1.0 + math.exp(-value))
    grown = math.exp(value)
    return grown / (1.0 + grown)


def softmax(logits: Sequence[float]) -> Numbers:
    """Shares of all classes; they sum to 1. The largest is subtracted first, so nothing overflows."""
    largest = max(logits)
    grown = [math.exp(value - largest) for value in logits]
    total = sum(grown)
    return tuple(value / total for value in grown)


def activate(logits: Sequence[float], activation: str) -> Numbers:
    """Scores of one image, in the order of the labels. Raises ValueError for an unknown activation or a logit that is no number."""
    if not all(map(math.isfinite, logits)):
        raise ValueError("a logit is infinite or not a number")
    if activation not in ACTIVATIONS:
        raise ValueError(f"unknown activation {activation!r}; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[activation](logits)


def calibrate(logits: Sequence[float], activation: str, keys: Sequence[str], calibration: Mapping[str, Any] | None) -> Numbers | None:
    """Probabilities of one image, or None without a calibration (promise 8).

    `temperature`: activation(logit / T), one T for all labels (Guo et al. 2017). `platt`: sigmoid(a · logit + b), with `a` and `b`
    for all labels or, in `labels`, for each key (Platt 1999). Raises ValueError for anything else.
    """
    if calibration is None:
        return None
    method = calibration.get("method")
    if method == "temperature":
        temperature = float(calibration["temperature"])
        if not temperature > 0:
            raise ValueError(f"calibration temperature is {temperature}; it must be above 0")
        return activate([value / temperature for value in logits], _bounded(activation))
    if method == "platt":
        return tuple(sigmoid(a * value + b) for value, (a, b) in zip(logits, _platt(keys, calibration), strict=True))
    raise ValueError(f"unknown calibration method {method!r}; known: temperature, platt")


def _bounded(activation: str) -> str:
    """A release without activation gives no number between 0 and 1 to be scaled."""
    if activation == "none":
        raise ValueError('calibration by temperature needs the activation "sigmoid" or "softmax"')
    return activation


def _platt(keys: Sequence[str], calibration: Mapping[str, Any]) -> list[tuple[float, float]]:
    by_label: Mapping[str, Mapping[str, float]] = calibration.get("labels", {})
    chosen = [by_label.get(key, calibration) for key in keys]
    lacking = [key for key, item in zip(keys, chosen, strict=True) if "a" not in item or "b" not in item]
    if lacking:
        raise ValueError(f"calibration by platt has no a and b for {', '.join(lacking)}")
    return [(float(item["a"]), float(item["b"])) for item in chosen]


def _identity(logits: Sequence[float]) -> Numbers:
    return tuple(map(float, logits))


def _each_sigmoid(logits: Sequence[float]) -> Numbers:
    return tuple(map(sigmoid, logits))


ACTIVATIONS: Final[Mapping[str, Callable[[Sequence[float]], Numbers]]] = {"sigmoid": _each_sigmoid, "softmax": softmax, "none": _identity}
