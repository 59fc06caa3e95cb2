"""From logits to scores and probabilities: one image, one release.

Floats in, floats out; standard library only.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from hilum.domain import Label, Release

Numbers = tuple[float, ...]
_NOT_SHOWN: Final = math.nan  # of a masked label, which no calibration needs to know


def sigmoid(value: float) -> float:
    """1 / (1 + e^-value) without overflow at either end, any float → [0, 1]."""
    if value >= 0:
        return 1.0 / (1.0 + math.exp(-value))
    grown = math.exp(value)
    return grown / (1.0 + grown)


def softmax(logits: Sequence[float]) -> Numbers:
    """Shares of all classes; they sum to 1.

    The largest is subtracted first, so nothing overflows.
    """
    largest = max(logits)
    grown = [math.exp(value - largest) for value in logits]
    total = sum(grown)
    return tuple(value / total for value in grown)


def activate(logits: Sequence[float], activation: str) -> Numbers:
    """Activations of one image, in the order of the labels.

    Raises ValueError for an unknown one or a logit that is no number.
    """
    if not all(map(math.isfinite, logits)):
        raise ValueError("a logit is infinite or not a number")
    if activation not in ACTIVATIONS:
        raise ValueError(f"unknown activation {activation!r}; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[activation](logits)


def rescale(value: float, at: float | None) -> float:
    """Map [0, 1] to [0, 1] in two straight lines, so that `at` becomes 0.5.

    `op_norm` of torchxrayvision 1.5.7, models.py. None: unchanged.
    """
    if at is None:
        return value
    return value / (2 * at) if value < at else 1 - (1 - value) / (2 * (1 - at))


def scores_of(logits: Sequence[float], release: Release) -> Numbers:
    """Scores of one image, in the order of the release's labels.

    Raises ValueError as `activate`.
    """
    activated = activate(logits, release.activation)
    return tuple(
        rescale(value, label.rescaled_at)
        for value, label in zip(activated, release.labels, strict=True)
    )


def probabilities_of(logits: Sequence[float], release: Release) -> Numbers | None:
    """Return the probabilities of one image, NaN for a masked label.

    None without a calibration.

    Untrained weights cannot be calibrated: their numbers are no probabilities, also if the manifest
    has a calibration. Raises ValueError for a calibration that makes no sense.
    """
    if release.calibration is None or not release.is_trained:
        return None
    method = release.calibration.get("method")
    calibrate = CALIBRATIONS.get(str(method))
    if calibrate is None:
        raise ValueError(f"unknown calibration method {method!r}; known: {', '.join(CALIBRATIONS)}")
    return calibrate(logits, release, release.calibration)


def _temperature(
    logits: Sequence[float], release: Release, calibration: Mapping[str, Any]
) -> Numbers:
    """activation(logit / T), one T for all labels (Guo et al. 2017)."""
    temperature = float(calibration["temperature"])
    if not temperature > 0:
        raise ValueError(f"calibration temperature is {temperature}; it must be above 0")
    if release.activation == "none":
        raise ValueError('calibration by temperature needs the activation "sigmoid" or "softmax"')
    return activate([value / temperature for value in logits], release.activation)


def _platt(logits: Sequence[float], release: Release, calibration: Mapping[str, Any]) -> Numbers:
    """sigmoid(a * logit + b), a and b of the label or of all (Platt 1999)."""
    by_label: Mapping[str, Mapping[str, float]] = calibration.get("labels", {})

    def one(value: float, label: Label) -> float:
        item = by_label.get(label.key, calibration)
        if "a" not in item or "b" not in item:
            raise ValueError(f"calibration by platt has no a and b for {label.key}")
        return sigmoid(item["a"] * value + item["b"])

    return _shown(logits, release, one)


def _isotonic(logits: Sequence[float], release: Release, calibration: Mapping[str, Any]) -> Numbers:
    """Interpolate between the label's points (score, probability), constant beyond them.

    Source: Zadrozny and Elkan 2002.
    """

    def one(score: float, label: Label) -> float:
        if label.key not in calibration["points"]:
            raise ValueError(f"calibration by isotonic has no points for {label.key}")
        return _on_line(score, calibration["points"][label.key])

    return _shown(scores_of(logits, release), release, one)


def _shown(
    values: Sequence[float], release: Release, one: Callable[[float, Label], float]
) -> Numbers:
    pairs = zip(values, release.labels, strict=True)
    return tuple(_NOT_SHOWN if label.is_masked else one(value, label) for value, label in pairs)


def _on_line(x: float, points: Sequence[Sequence[float]]) -> float:
    """`points`: pairs with rising x, two at least."""
    right = bisect_right([point[0] for point in points], x)
    if right in (0, len(points)):
        return points[max(right - 1, 0)][1]
    (x0, y0), (x1, y1) = points[right - 1 : right + 1]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def _identity(logits: Sequence[float]) -> Numbers:
    return tuple(map(float, logits))


def _each_sigmoid(logits: Sequence[float]) -> Numbers:
    return tuple(map(sigmoid, logits))


ACTIVATIONS: Final[Mapping[str, Callable[[Sequence[float]], Numbers]]] = {
    "sigmoid": _each_sigmoid,
    "softmax": softmax,
    "none": _identity,
}
CALIBRATIONS: Final[
    Mapping[str, Callable[[Sequence[float], Release, Mapping[str, Any]], Numbers]]
] = {
    "temperature": _temperature,
    "platt": _platt,
    "isotonic": _isotonic,
}
