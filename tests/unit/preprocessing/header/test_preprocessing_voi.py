"""Which window or table a specification takes, and what becomes of pictures that have none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydicom.dataset import Dataset
from pydicom.pixels import apply_modality_lut, apply_windowing
from pydicom.sequence import Sequence

from hilum_preprocessing import (
    Flag,
    NotAnalysable,
    Reason,
    SpecError,
    decode,
    level_flags,
)
from tests.support.objects.gray_levels import levels, source
from tests.support.objects.radiograph import radiograph, ramp

TWO_WINDOWS = {
    "WindowCenter": ["1000", "3000"],
    "WindowWidth": ["500", "100"],
    "WindowCenterWidthExplanation": ["NORMAL", "Harder "],
}


def windowed(centre: str, width: str) -> np.ndarray[Any, Any]:
    return levels(
        radiograph(ramp(16, 16), 12, WindowCenter=centre, WindowWidth=width),
        source(voi="first_window"),
    )


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"voi": "window_index", "window_index": 0}, ("1000", "500")),
        ({"voi": "window_index", "window_index": 1}, ("3000", "100")),
        ({"voi": "explanation", "window_explanation": "normal"}, ("1000", "500")),
        ({"voi": "explanation", "window_explanation": "HARDER"}, ("3000", "100")),
        ({"voi": "fixed", "fixed_window": {"centre": 2000, "width": 800}}, ("2000", "800")),
    ],
)
def test_the_window_that_is_meant_is_used(fields, wanted):
    """Trap 6."""
    found = levels(radiograph(ramp(16, 16), 12, **TWO_WINDOWS), source(**fields))
    assert np.array_equal(found, windowed(*wanted))
    assert not np.array_equal(windowed("1000", "500"), windowed("3000", "100"))


@pytest.mark.parametrize(
    "fields",
    [
        {"voi": "window_index", "window_index": 2},
        {"voi": "explanation", "window_explanation": "BONE"},
    ],
)
def test_a_window_that_is_not_there_counts_as_missing(fields):
    dataset = radiograph(ramp(16, 16), 12, **TWO_WINDOWS)
    assert np.array_equal(levels(dataset, source(**fields)), ramp(16, 16))
    with pytest.raises(NotAnalysable) as refused:
        levels(dataset, source(**fields, missing_voi="reject"))
    assert refused.value.reason is Reason.CORRUPT_HEADER


def test_an_unusable_second_window_hurts_nobody_who_takes_the_first():
    dataset = radiograph(ramp(16, 16), 12, WindowCenter=["1000", "3000"], WindowWidth=["500", "0"])
    assert np.array_equal(levels(dataset, source(voi="first_window")), windowed("1000", "500"))
    assert level_flags(decode(dataset), source(voi="first_window")) == ()
    second = source(voi="window_index", window_index=1)
    assert np.array_equal(levels(dataset, second), ramp(16, 16))
    assert level_flags(decode(dataset), second) == (Flag.VOI_UNUSABLE,)


def test_a_fixed_window_has_its_function_and_comes_after_the_modality_lut():
    fixed = {"centre": 3000, "width": 1000, "function": "LINEAR_EXACT"}
    dataset = radiograph(
        ramp(64, 64),
        12,
        RescaleSlope="2",
        RescaleIntercept="-1000",
        WindowCenter="1",
        WindowWidth="1",
    )
    expected = np.clip((2.0 * ramp(64, 64) - 1000 - 3000) / 1000 + 0.5, 0, 1) * 4095
    assert levels(
        dataset, source(voi="fixed", fixed_window=fixed, modality_lut="apply")
    ) == pytest.approx(expected, abs=1e-9)


def with_lut(**attributes: Any) -> Dataset:
    item = Dataset()
    item.LUTDescriptor = [4096, 0, 8]
    item.add_new("LUTData", "US", [255 - entry // 16 for entry in range(4096)])
    return radiograph(ramp(16, 16), 12, VOILUTSequence=Sequence([item]), **attributes)


def test_a_table_is_a_substitute_for_a_window_unless_the_recipe_says_no():
    table = 255 - ramp(16, 16) // 16
    assert np.array_equal(
        levels(with_lut(), source(voi="first_window", voi_prefer="window")), table
    )
    assert np.array_equal(
        levels(with_lut(), source(voi="first_window", voi_prefer="window_only")), ramp(16, 16)
    )
    both = with_lut(WindowCenter="1000", WindowWidth="500")
    assert np.array_equal(levels(both, source(voi="first_window", voi_prefer="lut")), table)
    for preferred in ("window", "window_only"):
        assert np.array_equal(
            levels(both, source(voi="first_window", voi_prefer=preferred)), windowed("1000", "500")
        )


def test_without_a_window_the_picture_s_own_range_may_stand_for_it():
    stored = np.array([[100, 300], [500, 900]], np.uint16)
    found = levels(radiograph(stored, 12), source(voi="first_window", missing_voi="minmax"))
    assert found == pytest.approx((stored - 100.0) / 800 * 4095)
    inside = radiograph(stored, 12, PixelPaddingValue=900)
    assert levels(inside, source(voi="first_window", missing_voi="minmax")).flatten().tolist() == [
        0,
        4095 / 2,
        4095,
        4095,
    ]


@pytest.mark.parametrize("rescale", [{}, {"RescaleSlope": "2", "RescaleIntercept": "-1000"}])
@pytest.mark.parametrize("function", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
def test_windows_over_the_modality_range_are_pydicom_s(function, rescale):
    dataset = radiograph(
        ramp(64, 64), 12, WindowCenter="2000", WindowWidth="900", VOILUTFunction=function, **rescale
    )
    expected = apply_windowing(apply_modality_lut(dataset.pixel_array, dataset), dataset)
    found = levels(
        dataset, source(voi="first_window", window_output="modality_range", modality_lut="apply")
    )
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("attributes", "is_doubtful"),
    [
        ({"WindowCenter": "32768", "WindowWidth": "65536"}, True),
        ({"WindowCenter": "2048", "WindowWidth": "65536"}, True),
        ({"WindowCenter": "9000", "WindowWidth": "100"}, True),
        (
            {
                "WindowCenter": "32768",
                "WindowWidth": "65536",
                "RescaleSlope": "16",
                "RescaleIntercept": "0",
            },
            False,
        ),
        (
            {
                "WindowCenter": "2048",
                "WindowWidth": "4096",
                "RescaleSlope": "0.01",
                "RescaleIntercept": "0",
            },
            True,
        ),
        ({"WindowCenter": "2048", "WindowWidth": "4096"}, False),
        ({"WindowCenter": "2048", "WindowWidth": "20000"}, False),
        ({"WindowCenter": "128", "WindowWidth": "256"}, True),
        ({"WindowCenter": "2048", "WindowWidth": "1"}, True),
        ({"WindowCenter": "100", "WindowWidth": "10", "VOILUTFunction": "SIGMOID"}, True),
        ({"WindowCenter": "1000", "WindowWidth": "500"}, False),
        ({}, False),
    ],
)
def test_a_window_for_other_pixels_is_flagged(attributes, is_doubtful):
    """Sixteen bits over twelve: a picture that is nearly black, and says nothing.

    Eight over twelve: one that is nearly white.
    """
    stored = decode(radiograph(ramp(16, 16), 12, **attributes))
    shown = source(voi="first_window", modality_lut="apply")
    assert level_flags(stored, shown) == ((Flag.VOI_DOUBTFUL,) if is_doubtful else ())
    assert level_flags(stored, source(voi="none")) == ()
    assert level_flags(stored, source(voi="fixed", fixed_window={"centre": 0, "width": 1e6})) == ()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"voi": "fixed"}, "fixed_window: goes with"),
        ({"fixed_window": {"centre": 0, "width": 1}}, "fixed_window: goes with"),
        ({"voi": "fixed", "fixed_window": {"centre": 0, "width": 0.5}}, "LINEAR needs at least 1"),
        ({"voi": "fixed", "fixed_window": {"centre": 0, "width": 0}}, "above 0"),
        ({"voi": "fixed", "fixed_window": {"centre": 0}}, "missing width"),
        ({"voi": "explanation"}, "window_explanation: goes with"),
        ({"window_explanation": "BONE"}, "window_explanation: goes with"),
        ({"voi": "window_index", "window_index": -1}, "whole number from 0"),
        ({"window_index": 1}, "window_index: goes with"),
    ],
)
def test_a_window_half_said_is_refused(fields, words):
    with pytest.raises(SpecError, match=words):
        source(**fields)
