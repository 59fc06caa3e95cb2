"""Known images, drawn by whole-number arithmetic alone, so that every machine draws the same ones.

They have the range of a release's wire tensor. Number 0 is the canary, which is sent through a
running model. The others set the statistics of untrained weights.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from hilum.domain import Release
from hilum.errors import ConfigurationError
from hilum.models.known_answers import exact_maps
from hilum.models.manifest.tables import EngineTable
from hilum_preprocessing.spec.input_spec import InputSpec

Array = np.ndarray[Any, np.dtype[Any]]

NUMPY_TYPES: Final = {"fp16": np.float16, "uint8": np.uint8}
_LEVELS: Final = 4096
# int8: two steps of the output of the only int8 release.
_TOLERANCES: Final = {"f32": 2e-3, "bf16": 0.25, "int8": 0.6}


@dataclass(frozen=True, slots=True)
class Canary:
    """An image (1, 1, H, W) in the wire dtype, the release's logits (1, L), and the tolerance.

    Logits are float32. `name`: the canary itself, or a golden case. `cam_bias`: (L,) float32, where
    the release has maps.
    """

    image: Array
    logits: Array
    tolerance: float
    name: str = "the canary"
    cam_bias: Array | None = None

    def broken_maps(self, logits: Array, cam: Array | None) -> str | None:
        """Return why maps do not give their logits; None where they do or there are none."""
        return (
            None
            if self.cam_bias is None
            else exact_maps.broken_rule(logits, cam, self.cam_bias, self.tolerance)
        )


def tolerance(engine: EngineTable) -> float:
    """Return the largest difference of a logit between two engines of the same precision."""
    return engine.tolerance or _TOLERANCES[engine.precision]


def canary_image(spec: InputSpec) -> Array:
    """Return (1, 1, H, W) in the wire dtype of the specification.

    It is the same on every machine and never constant.
    """
    return known_image(spec, 0)


def known_image(spec: InputSpec, number: int) -> Array:
    """Return (1, 1, H, W) in the wire dtype: bands, blobs and grain.

    They differ from number to number.
    """
    low, high = wire_range(spec)
    levels = _levels(*spec.wire_shape[1:], number)
    if spec.wire_dtype == "uint8":
        return (int(low) + levels * int(high - low) // (_LEVELS - 1)).astype(np.uint8)[None, None]
    return (low + levels * ((high - low) / (_LEVELS - 1))).astype(np.float16)[None, None]


def wire_range(spec: InputSpec) -> tuple[float, float]:
    """Return the smallest and the largest value of the wire tensor."""
    bounds: tuple[float, float] | None = None
    for operation in spec.intensity:
        bounds = operation.bounds(bounds)
    if bounds is None:  # pragma: no cover - InputSpec.from_mapping refuses such a specification
        raise ValueError("the intensity operations are not bounded")
    return bounds


def read_canary(release: Release, built_dir: Path) -> Canary:
    """Return the canary that was recorded when the release was built, for any profile.

    Raises ConfigurationError when it was not.
    """
    path = find_record(release, built_dir)
    image = canary_image(InputSpec.from_mapping(release.input_spec))
    try:
        recorded = _record(path)["canary"]
        bias = recorded.get("cam_bias")
        return Canary(
            image,
            np.array([recorded["logits"]], np.float32),
            float(recorded["tolerance"]),
            cam_bias=None if bias is None else np.array(bias, np.float32),
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path) from error


def find_record(release: Release, built_dir: Path) -> Path:
    """Return the path of `build.json` in an up-to-date tree of the release, of any profile.

    Raises ConfigurationError when there is none.
    """
    paths = sorted(built_dir.glob(f"*/{release.triton_name}/build.json"))
    for path in paths:
        if _record(path).get("build_key") == release.build_key:
            return path
    state = "was built from another manifest or by another Hilum" if paths else "is not built"
    raise ConfigurationError(
        [f"{release.id} {state} in {built_dir}: run `hilum models build {release.id}`"]
    )


def _record(path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _damaged(path) from error
    except OSError as error:
        raise ConfigurationError(
            [f"{path}: {error.strerror}; let the server's user read it"]
        ) from error
    return record


def _damaged(path: Path) -> ConfigurationError:
    return ConfigurationError(
        [f"{path} is damaged: delete {path.parent} and build the release again"]
    )


def _levels(height: int, width: int, number: int) -> Array:
    """Return (height, width) whole numbers in 0..4095.

    They are as bright, steep and grainy as radiographs are, with a collimated edge and a marker.
    Each step takes its numbers from one sequence, so their order is part of the image.
    """
    y = (np.arange(height, dtype=np.int64)[:, None] * 1024) // height
    x = (np.arange(width, dtype=np.int64)[None, :] * 1024) // width
    draws = _Draws(number)
    field = _grained(_hills(_waves(y, x, draws), y, x, draws), y, x, number, draws)
    levels = _contrasted(field, draws)
    _collimate(levels, y, x, draws)
    _mark(levels, y, x, draws)
    levels[:1, :1] = 0
    levels[-1:, -1:] = _LEVELS - 1
    return levels


def _waves(y: Array, x: Array, draws: _Draws) -> Array:
    oblique = _triangle(x * draws.up_to(6) + y * draws.up_to(4), 900)
    return oblique + _triangle(y * draws.up_to(9) + draws.up_to(1024), 500)


def _hills(field: Array, y: Array, x: Array, draws: _Draws) -> Array:
    for _ in range(8):
        field = field + draws.sign() * _blob(
            y - draws.up_to(1024), x - draws.up_to(1024), 60 + draws.up_to(300)
        )
    return field


def _grained(field: Array, y: Array, x: Array, number: int, draws: _Draws) -> Array:
    grain = ((x * 73856093) ^ (y * 19349663) ^ ((number + 1) * 83492791)) >> 7 & 127
    grained: Array = field + grain * draws.up_to(3)
    return grained


def _contrasted(field: Array, draws: _Draws) -> Array:
    spread = field.max() - field.min()
    doubled = (field - field.min()) * 2 * (_LEVELS - 1) // spread
    levels: Array = np.clip(doubled - 1024 - draws.up_to(1024), 0, _LEVELS - 1)
    return levels


def _collimate(levels: Array, y: Array, x: Array, draws: _Draws) -> None:
    top, bottom, left, right = (draws.up_to(96) for _ in range(4))
    levels[(y < top) | (y >= 1024 - bottom) | (x < left) | (x >= 1024 - right)] = 0


def _mark(levels: Array, y: Array, x: Array, draws: _Draws) -> None:
    top = draws.up_to(900)
    left = draws.up_to(900)
    levels[(y >= top) & (y < top + 60) & (x >= left) & (x < left + 40)] = _LEVELS - 1


def _triangle(t: Array, period: int) -> Array:
    """Return a wave between 0 and `period`."""
    wave: Array = np.abs(2 * (t % period) - period)
    return wave


def _blob(y: Array, x: Array, radius: int) -> Array:
    """Return a paraboloid hill, 1024 high."""
    hill: Array = np.maximum(0, 1024 - 1024 * (y * y + x * x) // (radius * radius))
    return hill


class _Draws:
    """Whole numbers from a linear congruential generator (Knuth, MMIX).

    A library's stream of numbers may change with its version.
    """

    def __init__(self, seed: int) -> None:
        self._state = seed * 2862933555777941757 + 3037000493

    def up_to(self, limit: int) -> int:
        """Return the next number in 1..limit."""
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return 1 + (self._state >> 33) % limit

    def sign(self) -> int:
        """Return 1 for a hill or -1 for a hollow."""
        return 1 if self.up_to(2) == 1 else -1
