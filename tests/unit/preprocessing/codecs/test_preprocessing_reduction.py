"""Reduced-resolution decoding.

Where samples lie, how far it may go, and what is left of the picture.
"""

from __future__ import annotations

from dataclasses import replace

import imagecodecs
import numpy as np
import pytest
import torch
from pydicom.encaps import encapsulate
from pydicom.uid import JPEG2000Lossless

from hilum_preprocessing import InputSpec, StoredValues, decode, prepare_stored
from hilum_preprocessing.resize.axes import Grid, on_grid
from hilum_preprocessing.resize.bands import MATRICES
from hilum_preprocessing.resize.kernels import taps
from hilum_preprocessing.spec.reduction import choose_reduction
from tests.support.objects.radiograph import radiograph, scene, spec, under

REDUCING = spec(source={"allow_reduced_decode": "auto"})
SIZES = [(512, 512), (601, 487), (487, 603)]


def blob(rows: int, columns: int, centre: tuple[float, float]) -> np.ndarray:
    y, x = np.mgrid[0:rows, 0:columns]
    distance = (y - centre[0]) ** 2 + (x - centre[1]) ** 2
    return np.rint(200 + 3500 * np.exp(-distance / (2 * 30.0**2))).astype(np.uint16)


def on_even_grid(picture: np.ndarray, r: int) -> StoredValues:
    """What a wavelet decoder leaves of a smooth picture: every 2^r-th pixel."""
    step = 1 << r
    return StoredValues(
        picture[::step, ::step],
        12,
        is_signed=False,
        is_monochrome1=False,
        reduced=r,
        full_size=picture.shape,
    )


def centroid(tensor: np.ndarray) -> np.ndarray:
    weight = tensor.astype(np.float64) - tensor.min()
    weight[weight < 0.2 * weight.max()] = 0
    return np.array(
        [
            (weight * axis).sum() / weight.sum()
            for axis in np.mgrid[0 : weight.shape[0], 0 : weight.shape[1]]
        ]
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("r", [1, 2, 3])
def test_a_spot_stays_where_it_is(size, r):
    """Trap 15: half a pixel a level, if samples are taken for the middles of their blocks."""
    picture = blob(*size, (size[0] * 0.47, size[1] * 0.55))
    full = prepare_stored(on_even_grid(picture, 0), REDUCING)[0].numpy()
    reduced = prepare_stored(on_even_grid(picture, r), REDUCING)[0].numpy()
    assert np.abs(centroid(reduced) - centroid(full)).max() < 0.05
    if size == (512, 512):  # elsewhere the crop moves it, too
        shifted = replace(on_even_grid(picture, r), reduced=0, full_size=None)
        assert (
            np.abs(centroid(prepare_stored(shifted, REDUCING)[0].numpy()) - centroid(full)).max()
            > 0.2
        )


def test_matrices_of_several_reductions_are_told_apart():
    """Trap 33: the same kernel, lengths and crop; only the grid differs."""
    picture = blob(512, 512, (240.0, 280.0))
    reduced = [on_even_grid(picture, r) for r in (0, 1, 2)]
    alone = []
    for stored in reduced:
        MATRICES.clear()
        alone.append(prepare_stored(stored, REDUCING))
    for index in (0, 1, 2, 1, 0, 2):
        assert torch.equal(prepare_stored(reduced[index], REDUCING), alone[index])


@pytest.mark.parametrize("r", [1, 2])
def test_a_reduced_decode_differs_by_less_than_a_grey_level(r):
    """Of a real codestream; what r = 0 with the same samples would give is several times farther off."""
    picture = scene(1203, 1000)
    codestream = bytes(
        imagecodecs.jpeg2k_encode(
            picture, level=0, codecformat="j2k", reversible=True, bitspersample=12
        )
    )
    dataset = under(radiograph(picture, 12), JPEG2000Lossless)
    dataset.PixelData = encapsulate([codestream])
    dataset["PixelData"].VR = "OB"
    full, reduced = (
        prepare_stored(decode(dataset, reduce=levels), REDUCING).double() for levels in (0, r)
    )
    naive = prepare_stored(
        replace(decode(dataset, reduce=r), reduced=0, full_size=None), REDUCING
    ).double()
    rms = float((reduced - full).square().mean().sqrt())
    assert rms < 8 * r
    assert rms < 0.5 * float((naive - full).square().mean().sqrt())


@pytest.mark.parametrize("kernel", ["skimage", "pil_bilinear_aa", "pil_lanczos"])
@pytest.mark.parametrize("grid", [Grid(2, 0), Grid(2, 1), Grid(4, 2), Grid(8, 5)])
def test_a_straight_line_is_resized_as_if_all_its_pixels_were_there(kernel, grid):
    exact = taps(kernel, 331, 40)
    known = on_grid(exact, 331, grid)
    pixels = np.arange(331.0)
    samples = pixels[grid.first :: grid.step]
    assert len(samples) == grid.count(331)
    found, expected = (
        known.weights @ samples,
        (
            exact.weights
            * pixels[np.clip(exact.first[:, None] + np.arange(exact.weights.shape[1]), 0, 330)]
        ).sum(1),
    )
    inner = slice(4, -4)  # beyond the outermost samples the line is not known
    assert np.abs(found - expected)[inner].max() < 1e-9
    assert np.abs(known.weights.sum(axis=1) - exact.weights.sum(axis=1)).max() < 1e-12


@pytest.mark.parametrize("start", range(9))
@pytest.mark.parametrize("step", [1, 2, 4])
def test_a_crop_keeps_the_samples_within_it(start, step):
    pixels = np.arange(100)
    skipped, grid = Grid(step).cropped(start)
    kept = pixels[::step][skipped : skipped + grid.count(50)]
    assert np.array_equal(kept, pixels[start : start + 50][grid.first :: grid.step])
    assert np.array_equal(kept, [pixel for pixel in pixels[::step] if start <= pixel < start + 50])


@pytest.mark.parametrize(
    ("size", "levels", "expected"),
    [
        ((2500, 2048), 5, 2),
        ((2500, 2048), 1, 1),
        ((2500, 2048), 0, 0),
        ((896, 2000), 5, 1),
        ((895, 2000), 5, 0),
        ((4096, 4000), 5, 3),
    ],
)
def test_how_far_a_picture_may_be_reduced(size, levels, expected):
    """At least twice the target is left, and no more levels than were coded (trap 16)."""
    assert choose_reduction(REDUCING, size, levels) == expected


def test_what_is_never_reduced():
    size = (4096, 4096)
    assert choose_reduction(spec(), size, 5) == 0, "the default"
    assert (
        choose_reduction(
            spec(source={"allow_reduced_decode": "auto", "pixel_aspect": "resample"}), size, 5
        )
        == 0
    )
    own_statistics = spec(source={"allow_reduced_decode": "auto"}, intensity=[{"op": "minmax"}])
    assert choose_reduction(own_statistics, size, 5) == 0
    for source in (
        {"voi": "first_window", "missing_voi": "minmax"},
        {"monochrome1_about": "image_maximum"},
        {"padding": "replace_min"},
    ):
        assert (
            choose_reduction(spec(source={"allow_reduced_decode": "auto", **source}), size, 5) == 0
        ), source
    for maxval in ({"of": "two_to_bits"}, {"of": 4095, "outside": "reject"}):
        ranged = [{"op": "maxval", **maxval}, {"op": "clamp", "low": 0, "high": 1}]
        assert (
            choose_reduction(
                spec(source={"allow_reduced_decode": "auto"}, intensity=ranged), size, 5
            )
            == 0
        ), maxval
    to_the_bit = spec("nih_pil_bicubic_224", source={"allow_reduced_decode": "auto"})
    assert choose_reduction(to_the_bit, size, 5) == 0
    geometry = [
        {"op": "centre_crop"},
        {"op": "resize", "height": 224, "width": 224, "kernel": "cv2_linear"},
    ]
    assert (
        choose_reduction(spec(source={"allow_reduced_decode": "auto"}, geometry=geometry), size, 5)
        == 0
    ), "it does not antialias"
    crop = [
        {"op": "centre_crop", "size": 448},
        {"op": "resize", "height": 224, "width": 224, "kernel": "skimage"},
    ]
    assert (
        choose_reduction(spec(source={"allow_reduced_decode": "auto"}, geometry=crop), size, 5) == 0
    )


def test_the_specification_of_these_tests_allows_it():
    assert REDUCING.source.allow_reduced_decode == "auto"
    assert (
        InputSpec.from_mapping({"recipe": "torchxrayvision_224"}).source.allow_reduced_decode == 0
    )
