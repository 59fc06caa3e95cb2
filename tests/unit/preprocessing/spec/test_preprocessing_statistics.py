"""Intensity operations that ask the whole picture.

Percentiles, histograms, padding, values beyond a maximum; before and after a resize.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from skimage.transform import resize as skimage_resize

from hilum_preprocessing import NotAnalysable, Reason, SpecError, decode, prepare_stored
from hilum_preprocessing.levels.grayscale import level_table
from hilum_preprocessing.levels.intensity import equalized
from tests.support.objects.gray_levels import levels
from tests.support.objects.radiograph import radiograph, ramp, scene, spec

TO_UINT8 = [{"op": "minmax"}, {"op": "to_uint8", "mode": "truncate"}]
EQUALIZED = [*TO_UINT8, {"op": "equalize_hist"}]


def chexpert(stored: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    picture = stored.astype(float) - stored.min()
    return cv2.equalizeHist((picture / picture.max() * 255).astype(np.uint8))


@pytest.mark.parametrize("bits", [8, 10, 12, 16])
@pytest.mark.parametrize("seed", range(3))
def test_equalize_hist_is_opencv_s_to_the_bit(bits, seed):
    stored = scene(201, 163, bits, seed).astype(np.uint8 if bits == 8 else np.uint16)
    assert np.array_equal(
        levels(radiograph(stored, bits), spec(intensity=EQUALIZED)), chexpert(stored)
    )


def test_equalize_hist_of_signed_values():
    stored = (scene(201, 163).astype(np.int16) - 2048).astype(np.int16)
    assert np.array_equal(
        levels(radiograph(stored, 12), spec(intensity=EQUALIZED)), chexpert(stored)
    )


@pytest.mark.parametrize(
    "counts",
    [
        {0: 5, 255: 1},
        {3: 1, 4: 1},
        {0: 1, 1: 10**7, 200: 3},
        {level: level + 1 for level in range(256)},
    ],
)
def test_the_table_of_equalize_hist(counts):
    picture = np.repeat(np.array(list(counts), np.uint8), list(counts.values()))[None]
    expected = cv2.equalizeHist(picture)[0]
    table = equalized(np.bincount(picture[0], minlength=256))
    assert np.array_equal(table[picture[0]], expected)


def test_equalize_hist_of_one_level_is_refused():
    dataset = radiograph(np.array([[0, 1], [1, 0]], np.uint16), 12)
    with pytest.raises(NotAnalysable) as refused:
        levels(
            dataset,
            spec(
                intensity=[
                    {"op": "maxval"},
                    {"op": "to_uint8", "mode": "truncate"},
                    {"op": "equalize_hist"},
                ]
            ),
        )
    assert refused.value.reason is Reason.CONSTANT_IMAGE


@pytest.mark.parametrize(("low", "high"), [(0, 100), (1, 99), (0.5, 99.5), (25, 50), (33.3, 66.6)])
def test_percentiles_are_numpy_s(low, high):
    stored = scene(97, 83)
    ends = np.percentile(stored, (low, high))
    expected = np.clip((stored - ends[0]) / (ends[1] - ends[0]), 0, 1)
    intensity = [{"op": "percentile", "low": low, "high": high}]
    assert levels(radiograph(stored, 12), spec(intensity=intensity)) == pytest.approx(
        expected, abs=1e-12
    )
    mirrored = levels(
        radiograph(stored, 12, PhotometricInterpretation="MONOCHROME1"), spec(intensity=intensity)
    )
    ends = np.percentile(4095 - stored, (low, high))
    assert mirrored == pytest.approx(
        np.clip((4095 - stored - ends[0]) / (ends[1] - ends[0]), 0, 1), abs=1e-12
    )


@pytest.mark.parametrize(
    "intensity", [EQUALIZED, [{"op": "percentile", "low": 2, "high": 98}], [{"op": "minmax"}]]
)
@pytest.mark.parametrize(("value", "limit"), [(0, None), (4000, 4095), (2000, 2001)])
def test_statistics_ignore_padding(intensity, value, limit):
    """Trap 10: the picture inside of a frame of padding is what it is without the frame, wherever the padding's value lies."""
    picture = np.where(
        (inside := scene(61, 53) // 2 + 900) // 2 == value // 2, value + 3, inside
    ).astype(np.uint16)
    framed = np.pad(picture, 7, constant_values=value)
    attributes = {"PixelPaddingValue": value} | ({"PixelPaddingRangeLimit": limit} if limit else {})
    given = spec(intensity=intensity)
    found = levels(radiograph(framed, 12, **attributes), given)[7:-7, 7:-7]
    assert np.array_equal(found, levels(radiograph(picture, 12), given))
    kept = levels(
        radiograph(framed, 12, **attributes), spec(intensity=intensity, source={"padding": "keep"})
    )[7:-7, 7:-7]
    assert value == 2000 or not np.array_equal(kept, found)


@pytest.mark.parametrize("photometric", ["MONOCHROME2", "MONOCHROME1"])
def test_padding_may_be_shown_as_the_darkest_of_the_picture(photometric):
    picture = scene(61, 53) // 2 + 900
    framed = np.pad(picture, 7, constant_values=4095)
    dataset = radiograph(framed, 12, PixelPaddingValue=4095, PhotometricInterpretation=photometric)
    given = spec(intensity=[{"op": "minmax"}], source={"padding": "replace_min"})
    found = levels(dataset, given)
    assert set(np.unique(found[:7])) == {0.0}
    assert np.array_equal(
        found[7:-7, 7:-7],
        levels(radiograph(picture, 12, PhotometricInterpretation=photometric), given),
    )


@pytest.mark.parametrize("value", [-3, 4096, 65535])
def test_padding_that_no_pixel_can_have_changes_nothing(value):
    """A header may name it all the same; 0 and 4095 are not padding by that."""
    stored = decode(radiograph(np.array([[0, 100], [2000, 4095]], np.uint16), 12))
    for intensity in (EQUALIZED, [{"op": "minmax"}]):
        given = spec(intensity=intensity, source={"padding": "replace_min"})
        expected = level_table(stored, given).values
        assert np.array_equal(
            level_table(replace(stored, padding=(value, value)), given).values, expected
        )


def test_values_beyond_a_fixed_maximum_are_kept_or_refused():
    dataset = radiograph(np.array([[0, 100], [255, 256]], np.uint16), 12)
    kept = [{"op": "maxval", "of": 255}, {"op": "clamp", "low": 0, "high": 2}]
    assert levels(dataset, spec(intensity=kept)).max() == 256 / 255
    with pytest.raises(NotAnalysable) as refused:
        levels(dataset, spec(intensity=[{"op": "maxval", "of": 255, "outside": "reject"}]))
    assert refused.value.reason is Reason.UNSUPPORTED_PIXEL_FORMAT
    fits = radiograph(np.array([[0, 100], [254, 255]], np.uint16), 12)
    assert (
        levels(fits, spec(intensity=[{"op": "maxval", "of": 255, "outside": "reject"}])).max()
        == 1.0
    )


# --- order resize_first
# ---------------------------------------------------------------------------------------------------

RESIZE = [{"op": "resize", "height": 64, "width": 64, "kernel": "skimage", "clip_to_input": True}]
FIRST = {
    "order": "resize_first",
    "geometry": RESIZE,
    "target": {"height": 64, "width": 64},
    "source": {"padding": "keep"},
}


def resized(stored: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return skimage_resize(stored.astype(np.float64), (64, 64), mode="constant", preserve_range=True)


def test_statistics_after_the_resize_are_the_resized_picture_s():
    """Trap 31: minmax before a resize and after it are two models."""
    stored = scene(301, 257)
    small = resized(4095.0 - stored)
    expected = (small - small.min()) / (small.max() - small.min()) * 200 - 100
    dataset = radiograph(stored, 12, PhotometricInterpretation="MONOCHROME1")
    intensity = [{"op": "minmax"}, {"op": "scale", "multiply": 200, "add": -100}]
    found = prepare_stored(decode(dataset), spec(intensity=intensity, **FIRST))[0].double().numpy()
    assert np.abs(found - expected).max() < 0.05
    early = (
        prepare_stored(
            decode(dataset), spec(intensity=intensity, **{**FIRST, "order": "intensity_first"})
        )[0]
        .double()
        .numpy()
    )
    assert np.abs(early - expected).max() > 1


def test_grey_levels_after_the_resize():
    stored = scene(301, 257)
    small = resized(stored)
    picture = ((small - small.min()) / (small.max() - small.min()) * 255).astype(np.uint8)
    given = spec(
        intensity=EQUALIZED, **{**FIRST, "target": {"height": 64, "width": 64, "dtype": "uint8"}}
    )
    found = prepare_stored(decode(radiograph(stored, 12)), given)
    assert found.dtype == torch.uint8
    assert (np.abs(found[0].numpy().astype(int) - cv2.equalizeHist(picture)) == 0).mean() > 0.97


def test_the_table_of_resize_first_holds_the_source_steps_alone():
    stored = decode(radiograph(ramp(64, 64), 12, RescaleSlope="2", RescaleIntercept="-7"))
    given = spec(
        intensity=[{"op": "minmax"}],
        **{**FIRST, "source": {"padding": "keep", "modality_lut": "apply"}},
    )
    table = level_table(stored, given)
    assert np.array_equal(table.values, 2.0 * np.arange(4096) - 7.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {**FIRST, "source": {"padding": "exclude_from_stats"}},
            "resize_first needs keep or replace_min",
        ),
        (
            {
                **FIRST,
                "intensity": EQUALIZED,
                "geometry": [{**RESIZE[0], "compute": "uint8_rounded"}],
            },
            "before the geometry",
        ),
        (
            {"intensity": [{"op": "minmax"}, {"op": "equalize_hist"}]},
            "put to_uint8 right before it",
        ),
        ({"intensity": [{"op": "equalize_hist"}]}, "put to_uint8 right before it"),
        ({"intensity": [{"op": "percentile", "low": 60, "high": 40}]}, "low below high"),
        (
            {"intensity": [{"op": "maxval"}, {"op": "clamp", "low": 1, "high": 0}]},
            "clamp needs low below high",
        ),
        ({"intensity": [{"op": "percentile", "low": -1, "high": 40}]}, "from 0 to 100"),
        ({"intensity": [{"op": "maxval", "of": "two_to_bits"}]}, "not bounded"),
    ],
)
def test_what_cannot_be_computed_is_refused(changes, words):
    with pytest.raises(SpecError, match=words):
        spec(**changes)
