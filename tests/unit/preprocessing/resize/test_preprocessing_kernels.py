"""Resizers and the blur beside OpenCV, Pillow and torch.

In float, and in whole grey levels to the bit.
"""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from hilum_preprocessing.resize.kernels import taps
from hilum_preprocessing.spec.operations import Blur, Resize
from hilum_preprocessing.tensor.geometry import apply
from tests.support.objects.radiograph import scene

SHRINKING = [
    ((97, 61), (32, 40)),
    ((64, 48), (32, 24)),
    ((200, 33), (50, 33)),
    ((601, 487), (224, 224)),
    ((50, 50), (50, 50)),
]
GROWING = [
    ((30, 50), (64, 64)),
    ((33, 200), (50, 50)),
    ((1, 9), (4, 4)),
    ((20, 90), (50, 45)),
    ((90, 20), (45, 50)),
]
ANY = [*SHRINKING, *GROWING]


def resized(
    picture: np.ndarray, kernel: str, size: tuple[int, int], compute: str = "float"
) -> np.ndarray:
    op = Resize(height=size[0], width=size[1], kernel=kernel, compute=compute)
    return apply(torch.from_numpy(picture), [op]).numpy()


def in_float(size: tuple[int, int]) -> np.ndarray:
    return (scene(*size).astype(np.float32) / 2 - 1024).astype(np.float32)


def in_levels(size: tuple[int, int]) -> np.ndarray:
    return (scene(*size) >> 4).astype(np.uint8)


@pytest.mark.parametrize(("before", "after"), ANY)
@pytest.mark.parametrize(
    ("kernel", "interpolation"),
    [
        ("cv2_area", cv2.INTER_AREA),
        ("cv2_linear", cv2.INTER_LINEAR),
        ("nearest", cv2.INTER_NEAREST),
    ],
)
def test_opencv_in_float(kernel, interpolation, before, after):
    picture = in_float(before)
    expected = cv2.resize(picture, (after[1], after[0]), interpolation=interpolation)
    assert np.abs(resized(picture, kernel, after) - expected).max() < 0.02


@pytest.mark.parametrize(("before", "after"), ANY)
def test_opencv_s_linear_in_grey_levels_is_opencv_s_to_the_bit(before, after):
    picture = in_levels(before)
    expected = cv2.resize(picture, (after[1], after[0]), interpolation=cv2.INTER_LINEAR)
    assert np.array_equal(resized(picture, "cv2_linear", after, "uint8_once"), expected)


def test_opencv_s_linear_in_grey_levels_at_random_sizes():
    rng = np.random.default_rng(3)
    for _ in range(60):
        rows, columns, height, width = (int(length) for length in rng.integers(1, 260, 4))
        picture = rng.integers(0, 256, (rows, columns), dtype=np.uint8)
        expected = cv2.resize(picture, (width, height), interpolation=cv2.INTER_LINEAR)
        assert np.array_equal(
            resized(picture, "cv2_linear", (height, width), "uint8_once"), expected
        ), (rows, columns, height, width)


@pytest.mark.parametrize(("before", "after"), ANY)
def test_opencv_s_area_in_grey_levels_is_within_one(before, after):
    picture = in_levels(before)
    expected = cv2.resize(picture, (after[1], after[0]), interpolation=cv2.INTER_AREA).astype(int)
    found = resized(picture, "cv2_area", after, "uint8_once")
    assert found.dtype == np.uint8
    assert np.abs(found - expected).max() <= 1
    is_half = before == (
        2 * after[0],
        2 * after[1],
    )  # there OpenCV rounds halves up, elsewhere to even
    if before in [size for size, _ in SHRINKING] and not is_half:
        assert (found == expected).mean() > 0.97


@pytest.mark.parametrize(("before", "after"), ANY)
def test_lanczos_is_pillow_s_to_the_bit(before, after):
    picture = in_levels(before)
    image = Image.fromarray(picture)
    lanczos = Image.Resampling.LANCZOS
    expected = np.asarray(
        image.resize((after[1], before[0]), lanczos).resize((after[1], after[0]), lanczos)
    )
    assert np.array_equal(resized(picture, "pil_lanczos", after, "uint8_rounded"), expected)


@pytest.mark.parametrize(("before", "after"), ANY)
def test_bicubic_without_antialiasing_is_torch_s(before, after):
    picture = in_float(before)
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(picture)[None, None], size=after, mode="bicubic", align_corners=False
    )[0, 0]
    assert np.abs(resized(picture, "torch_bicubic", after) - expected.numpy()).max() < 0.01


@pytest.mark.parametrize(
    "kernel",
    [
        *("cv2_area", "cv2_area_enlarging", "cv2_linear", "nearest"),
        *("pil_bilinear_aa", "pil_bicubic_aa", "pil_lanczos", "torch_aa", "torch_bicubic"),
    ],
)
@pytest.mark.parametrize(("n_in", "n_out"), [(2048, 224), (225, 224), (100, 224), (1, 224), (3, 1)])
def test_weights_of_a_row_sum_to_one(kernel, n_in, n_out):
    """So that mean and standard deviation may be taken before the resize or after it."""
    assert taps(kernel, n_in, n_out).weights.sum(axis=1) == pytest.approx(np.ones(n_out))


@pytest.mark.parametrize("size", [3, 5, 7])
@pytest.mark.parametrize("shape", [(97, 61), (8, 9), (3, 40), (1, 1), (2, 2)])
def test_blur_is_opencv_s(size, shape):
    levels = in_levels(shape)
    assert np.array_equal(
        apply(torch.from_numpy(levels), [Blur(size=size)]).numpy(),
        cv2.GaussianBlur(levels, (size, size), 0),
    )
    values = in_float(shape)
    assert (
        np.abs(
            apply(torch.from_numpy(values), [Blur(size=size)]).numpy()
            - cv2.GaussianBlur(values, (size, size), 0)
        ).max()
        < 0.01
    )


def test_a_blur_leaves_its_input_as_it_was():
    levels = torch.from_numpy(in_levels((40, 40)))
    before = levels.clone()
    apply(levels, [Blur(size=3)])
    assert torch.equal(levels, before)
