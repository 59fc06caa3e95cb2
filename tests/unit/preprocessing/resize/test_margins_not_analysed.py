"""For every published geometry.

What its placement calls not analysed cannot change the tensor, and what it calls analysed can.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hilum_preprocessing import InputSpec
from hilum_preprocessing.spec.placement import place
from hilum_preprocessing.spec.recipes import RECIPES
from hilum_preprocessing.tensor.geometry import apply

SIZES = [(700, 500), (500, 701), (601, 601)]
# timm's way to evaluate, as `hilum models import vit` writes it.
TIMM = {
    "intensity": [{"op": "maxval", "of": "bits"}, {"op": "to_uint8", "mode": "round"}],
    "geometry": [
        {
            "op": "resize_side",
            "side": "short",
            "size": 256,
            "rounding": "int",
            "kernel": "pil_bicubic_aa",
            "compute": "uint8_rounded",
        },
        {"op": "centre_crop", "size": 224, "offset": "half_gap"},
    ],
    "target": {"height": 224, "width": 224, "dtype": "uint8"},
    "normalise": {"mean": 127.5, "std": 127.5, "channels": 3},
    "views": "any",
}
SPECS = {name: InputSpec.from_mapping({"recipe": name}) for name in RECIPES} | {
    "timm": InputSpec.from_mapping(TIMM)
}
CROPPING = [
    name
    for name, spec in SPECS.items()
    if place(spec.geometry, SIZES[0]).analysed != (0.0, 0.0, 700.0, 500.0)
]


def _tensor(image: np.ndarray, spec: InputSpec) -> np.ndarray:
    tensor: np.ndarray = apply(torch.from_numpy(image), list(spec.geometry)).numpy()
    return tensor


def _reach(spec: InputSpec, size: tuple[int, int]) -> int:
    """Pixels beyond the border of a crop that a kernel of three samples still mixes in, when it resizes before the crop."""
    placement = place(spec.geometry, size)
    return int(np.ceil(3 * max(placement.rows.scale, placement.columns.scale, 1.0)))


def test_some_geometries_crop_and_some_do_not() -> None:
    assert {"torchxrayvision_224", "chexnet_nih_256_224", "biovil_448", "timm"} <= set(CROPPING)
    assert {"vit_imagenet_224", "chexpert_320", "medgemma_896"} & set(CROPPING) == set()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CROPPING)
def test_a_cropped_margin_cannot_be_seen(name: str, size: tuple[int, int]) -> None:
    spec, image = SPECS[name], np.random.default_rng(1).integers(0, 255, size).astype(np.float32)
    top, left, bottom, right = place(spec.geometry, size).analysed
    reach = _reach(spec, size)
    changed = np.full_like(image, 255.0)
    kept = (
        slice(max(0, int(top) - reach), int(bottom) + reach),
        slice(max(0, int(left) - reach), int(right) + reach),
    )
    changed[kept] = image[kept]
    assert (size[0] == size[1]) or not np.array_equal(changed, image)
    assert np.array_equal(_tensor(changed, spec), _tensor(image, spec))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", list(SPECS))
def test_every_border_of_what_is_analysed_can_be_seen(name: str, size: tuple[int, int]) -> None:
    spec = SPECS[name]
    top, left, bottom, right = (round(edge) for edge in place(spec.geometry, size).analysed)
    width = 2 * _reach(spec, size)
    dark = _tensor(np.zeros(size, np.float32), spec)
    for rows, columns in (
        (slice(top, top + width), slice(left, right)),
        (slice(bottom - width, bottom), slice(left, right)),
        (slice(top, bottom), slice(left, left + width)),
        (slice(top, bottom), slice(right - width, right)),
    ):
        image = np.zeros(size, np.float32)
        image[rows, columns] = 200.0
        assert np.abs(_tensor(image, spec) - dark).max() > 50
