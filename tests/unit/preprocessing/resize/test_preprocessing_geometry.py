"""Crop, pad and resize against the libraries that the models were trained with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from skimage.transform import resize as skimage_resize

from hilum_preprocessing.resize.bands import MATRICES
from hilum_preprocessing.spec.operations import CentreCrop, Pad, Resize
from hilum_preprocessing.tensor import geometry
from tests.support.objects.radiograph import scene

SIZES = [
    ((64, 48), (32, 32)),
    ((97, 61), (32, 40)),
    ((30, 50), (64, 64)),
    ((33, 200), (50, 50)),
    ((1, 9), (4, 4)),
    ((40, 40), (40, 40)),
]


def resized(array: np.ndarray, kernel: str, size: tuple[int, int], **fields: object) -> np.ndarray:
    op = Resize(height=size[0], width=size[1], kernel=kernel, **fields)
    return geometry.apply(torch.from_numpy(array), [op]).numpy()


@pytest.mark.parametrize(("before", "after"), SIZES)
def test_skimage_kernel_is_skimage(before, after):
    picture = (scene(*before).astype(np.float32) / 4095 * 2048 - 1024).astype(np.float32)
    expected = skimage_resize(
        picture.astype(np.float64), after, mode="constant", preserve_range=True
    )
    assert np.abs(resized(picture, "skimage", after, clip_to_input=True) - expected).max() < 0.01


@pytest.mark.parametrize("level", [1000.0, -1000.0])
def test_a_bright_border_bleeds_and_is_clipped_as_skimage_does(level):
    """Trap 26: beyond the border is 0, mid grey.

    The result stays within the picture's own range.
    """
    rng = np.random.default_rng(0)
    picture = (level + rng.uniform(-20, 20, (101, 131))).astype(np.float32)
    expected = skimage_resize(
        picture.astype(np.float64), (32, 32), mode="constant", preserve_range=True
    )
    bleeding = resized(picture, "skimage", (32, 32), clip_to_input=False)
    assert np.abs(bleeding - expected).max() > 100
    assert np.abs(resized(picture, "skimage", (32, 32), clip_to_input=True) - expected).max() < 0.01


@pytest.mark.parametrize(
    ("kernel", "filter_"),
    [("pil_bilinear_aa", Image.Resampling.BILINEAR), ("pil_bicubic_aa", Image.Resampling.BICUBIC)],
)
@pytest.mark.parametrize(("before", "after"), SIZES)
def test_pillow_kernels_are_pillow_to_the_bit_columns_first(before, after, kernel, filter_):
    """Pillow 13 does rows first when the height shrinks much more.

    Models were trained with versions that never did.
    """
    picture = (scene(*before) >> 4).astype(np.uint8)
    image = Image.fromarray(picture)
    expected = np.asarray(
        image.resize((after[1], before[0]), filter_).resize((after[1], after[0]), filter_)
    )
    found = resized(picture, kernel, after, compute="uint8_rounded")
    assert found.dtype == np.uint8
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("kernel", "filter_"),
    [("pil_bilinear_aa", Image.Resampling.BILINEAR), ("pil_bicubic_aa", Image.Resampling.BICUBIC)],
)
def test_pillow_kernels_in_float_are_pillow_s_float_mode(kernel, filter_):
    picture = scene(97, 61).astype(np.float32)
    expected = np.asarray(Image.fromarray(picture).resize((40, 32), filter_))
    assert np.abs(resized(picture, kernel, (32, 40)) - expected).max() < 0.01


@pytest.mark.parametrize(("before", "after"), SIZES)
def test_torch_kernel_is_interpolate(before, after):
    picture = scene(*before).astype(np.float32)
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(picture)[None, None], size=after, mode="bilinear", antialias=True
    )[0, 0]
    assert np.abs(resized(picture, "torch_aa", after) - expected.numpy()).max() < 0.05


@pytest.mark.parametrize(
    ("size", "rows", "columns"),
    [
        ((2047, 2049), (0, 2047), (1, 2048)),
        ((2049, 2047), (1, 2048), (0, 2047)),
        ((5, 8), (0, 5), (2, 7)),
        ((8, 5), (2, 7), (0, 5)),
        ((7, 7), (0, 7), (0, 7)),
    ],
)
def test_centre_crop_of_odd_sizes(size, rows, columns):
    """Trap 27: torchxrayvision cuts at x // 2 - side // 2, which is not (x - side) // 2."""
    assert geometry.crop_slices(CentreCrop(), size) == (slice(*rows), slice(*columns))


def test_centre_crop_of_a_fixed_size():
    image = torch.arange(35.0).reshape(5, 7)
    assert torch.equal(geometry.apply(image, [CentreCrop(size=3)]), image[1:4, 2:5])
    assert geometry.apply(image, [CentreCrop(size=6)]).shape == (
        5,
        6,
    ), "a side that is too short stays whole"


def test_pad_makes_a_square_in_the_middle_or_at_the_bottom_right():
    image = torch.ones(2, 5)
    centred = geometry.apply(image, [Pad(value=-1.0)])
    assert centred.shape == (5, 5)
    assert centred.sum(dim=1).tolist() == [-5, 5, 5, -5, -5]
    assert geometry.apply(image.T, [Pad(value=-1.0)]).sum(dim=0).tolist() == [-5, 5, 5, -5, -5]
    assert geometry.apply(image, [Pad(value=0.0, place="bottom_right")]).sum(dim=1).tolist() == [
        5,
        5,
        0,
        0,
        0,
    ]


def test_operations_run_in_their_order():
    image = torch.from_numpy(scene(60, 40).astype(np.float32))
    resize = Resize(height=16, width=16, kernel="torch_aa")
    crop_first = geometry.apply(image, [CentreCrop(), resize])
    squashed = geometry.apply(image, [resize])
    assert (crop_first - squashed).abs().max() > 100
    assert torch.equal(crop_first, geometry.apply(image[10:50], [resize]))


def test_the_cache_tells_kernels_sizes_and_arithmetic_apart():
    """Trap 33: two models in turn on the same shape."""
    picture = (scene(64, 48) >> 4).astype(np.uint8)
    wanted = [
        ("pil_bilinear_aa", "uint8_rounded"),
        ("pil_bicubic_aa", "uint8_rounded"),
        ("pil_bicubic_aa", "float"),
        ("skimage", "float"),
    ]
    MATRICES.clear()
    alone = []
    for kernel, compute in wanted:
        alone.append(resized(picture, kernel, (32, 32), compute=compute))
        MATRICES.clear()
    for _ in range(2):
        for (kernel, compute), expected in zip(wanted, alone, strict=True):
            assert np.array_equal(resized(picture, kernel, (32, 32), compute=compute), expected)
    assert len({array.tobytes() for array in alone}) == len(wanted)


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_reduced_precision_products_are_refused_and_not_used_in_silence(precision):
    """Trap 36: TF32 and bfloat16 cost a third of a grey level, and one global switch turns them on."""
    image = torch.rand(40, 40)
    op = Resize(height=16, width=16, kernel="skimage")
    if precision == "high" and torch.backends.mkldnn.matmul.fp32_precision == "none":
        torch.set_float32_matmul_precision("highest")
    expected = geometry.apply(image, [op])
    torch.set_float32_matmul_precision(precision)
    try:
        with pytest.raises(RuntimeError, match="leave them at 'ieee'"):
            geometry.apply(image, [op])
    finally:
        torch.set_float32_matmul_precision("highest")
    assert torch.equal(geometry.apply(image, [op]), expected)
