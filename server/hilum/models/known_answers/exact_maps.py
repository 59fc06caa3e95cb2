"""Proof that class activation maps are exact.

The mean of a map and one number of its label make the logit (Zhou et al., CVPR 2016). That number
is the bias of the head. It is measured when a release is built, on images that differ, and checked
wherever it is served.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from hilum.errors import ConfigurationError

Array = np.ndarray[Any, np.dtype[Any]]
_ROUNDING: Final = 2.0**-11  # relative error of a map's value: maps are sent as fp16


def bias(logits: Array, cam: Array | None, allowed: float) -> Array:
    """Return (L,) float32 from several images that differ: logit - mean of the map.

    Raises ConfigurationError where it changes with the image.
    """
    if cam is None:
        raise ConfigurationError(
            ["the manifest says that there are maps, the network puts none out"]
        )
    measured: Array = (logits - mean(cam)).mean(0).astype(np.float32)
    if problem := broken_rule(logits, cam, measured, allowed):
        raise ConfigurationError([f"{problem}: these maps are not exact; set model.cam = false"])
    return measured


def mean(cam: Array) -> Array:
    """(B, L, h, w) → (B, L) float32."""
    average: Array = cam.astype(np.float32).mean((2, 3))
    return average


def broken_rule(logits: Array, cam: Array | None, head_bias: Array, allowed: float) -> str | None:
    """Return the reason why mean(cam) + bias = logit does not hold; None where it does.

    Logits are (B, L), maps (B, L, h, w). `allowed` and the rounding of fp16 are added up.
    """
    if cam is None or cam.shape[:2] != logits.shape or cam.ndim != 4:
        return f"maps are {None if cam is None else cam.shape} for logits {logits.shape}"
    apart = np.abs(mean(cam) + head_bias - logits)
    bound = allowed + _ROUNDING * np.abs(cam.astype(np.float32)).mean((2, 3))
    if (apart <= bound).all():
        return None
    row, label = np.unravel_index(np.argmax(apart - bound), apart.shape)
    return (
        f"mean of the map + bias differs from logit {label} by {apart[row, label]:.2g};"
        f" {bound[row, label]:.2g} is allowed"
    )
