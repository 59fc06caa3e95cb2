"""Two known pictures through a specification on the serving device, against recorded tensors.

For a server that loads a release: wrong library versions, a driver that computes in another
precision or a changed algorithm show before the first patient's image. The difference between the
recipes and their authors' code is another question: tests/golden.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hilum_preprocessing.decode import StoredValues
from hilum_preprocessing.errors import NotAnalysable
from hilum_preprocessing.header.luts import Rescale, Voi, Window
from hilum_preprocessing.prepare import prepare_stored
from hilum_preprocessing.spec.input_spec import InputSpec

Record = list[float] | None
_SAMPLES: Final = 40
_TOLERANCES: Final[Mapping[str, float]] = {"fp16": 0.5, "uint8": 0.0}
"""A step of fp16 at 1024. Whole grey levels are exact: they are computed in whole numbers."""


def self_check(
    spec: InputSpec,
    device: str | torch.device = "cpu",
    known: Mapping[str, list[Record]] | None = None,
) -> str | None:
    """None: the tensors on `device` are the recorded ones. Otherwise the difference, as a sentence.

    A specification that is no named recipe has no record: then the device is compared with the CPU
    of this machine.
    """
    expected = (known_tensors() if known is None else known).get(spec.version)
    if expected is None:
        expected = recorded(spec, "cpu")
    for number, (now, then) in enumerate(zip(recorded(spec, device), expected, strict=True), 1):
        if problem := _problem(now, then, _TOLERANCES[spec.wire_dtype]):
            return f"known picture {number} on {device}: {problem}"
    return None


def recorded(spec: InputSpec, device: str | torch.device) -> list[Record]:
    """The record of the tensor of each known picture.

    None: the specification refuses that picture.
    """
    return [_record(stored, spec, device) for stored in known_pictures()]


def known_pictures() -> tuple[StoredValues, StoredValues]:
    """12 bits, MONOCHROME1, with a rescale and a window; and 8 bits, MONOCHROME2. Of odd sizes."""
    voi = Voi(Window(2100.0, 3500.0), None, is_unusable=False)
    deep = StoredValues(
        _drawn(611, 503, 12),
        12,
        is_signed=False,
        is_monochrome1=True,
        modality=Rescale(1.0, 0.0),
        voi=voi,
    )
    return deep, StoredValues(_drawn(487, 601, 8), 8, is_signed=False, is_monochrome1=False)


def known_tensors() -> Mapping[str, list[Record]]:
    """Version of a specification to the records of its tensors, from the package."""
    known: Mapping[str, list[Record]] = json.loads(
        (files("hilum_preprocessing") / "known_tensors.json").read_text(encoding="utf-8")
    )
    return known


def _drawn(rows: int, columns: int, bits: int) -> NDArray[Any]:
    """By whole-number arithmetic alone, so that every machine draws the same one.

    Waves, grain, a dark edge, a bright marker.
    """
    white = (1 << bits) - 1
    levels = _waves_and_grain(rows, columns) * white // 643
    levels[:, : columns // 15] = 0
    levels[rows // 9 : rows // 6, columns // 2 : columns // 2 + columns // 10] = white
    return levels.astype(np.uint8 if bits == 8 else np.uint16)


def _waves_and_grain(rows: int, columns: int) -> NDArray[np.int64]:
    """Two waves across each other, and noise from the bits of each place; 643 at most."""
    y, x = np.ogrid[:rows, :columns]
    waves = np.abs((5 * x + 3 * y) % 700 - 350) + np.abs((7 * y - 2 * x) % 460 - 230)
    grain = ((x * 73856093) ^ (y * 19349663)) >> 9 & 63
    return np.asarray(waves + grain)


def _record(stored: StoredValues, spec: InputSpec, device: str | torch.device) -> Record:
    """The mean, then values at places that spread over the tensor."""
    try:
        tensor = prepare_stored(stored, spec, device)
    except NotAnalysable:
        return None
    flat = tensor.cpu().flatten().to(torch.float64)
    return [float(flat.mean()), *_spread(flat).tolist()]


def _spread(flat: Tensor) -> Tensor:
    places = torch.arange(1, _SAMPLES + 1) * 7919 * (len(flat) // (_SAMPLES * 131) + 1) % len(flat)
    return flat[places]


def _problem(now: Record, then: Record, tolerance: float) -> str | None:
    if now is None or then is None:
        return None if now is then else "refused by only one of now and then"
    apart = max(abs(left - right) for left, right in zip(now, then, strict=True))
    # Not the other way round: a comparison with NaN is false.
    return (
        None
        if apart <= tolerance
        else f"values differ by {apart:g} from the recorded ones, more than {tolerance:g}"
    )
