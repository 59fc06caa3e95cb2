"""A table that is kept says of each picture what the picture's own one would."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hilum_preprocessing import InputSpec, NotAnalysable, StoredValues
from hilum_preprocessing.header.luts import LookupTable, Rescale, Voi, Window
from hilum_preprocessing.levels import grayscale
from hilum_preprocessing.levels.grayscale import level_table
from hilum_preprocessing.levels.lines import Line, Slope, line_of, line_within, slope_of
from hilum_preprocessing.spec.recipes import RECIPES

DEEP = StoredValues(np.zeros((2, 2), np.uint16), 12, is_signed=False, is_monochrome1=False)
AS_IT_IS = InputSpec.from_mapping({"recipe": "torchxrayvision_224"}).to_mapping()
KEPT = [
    name
    for name in RECIPES
    if grayscale._key_of(DEEP, InputSpec.from_mapping({"recipe": name})) is not None
]


def with_source(**source: object) -> InputSpec:
    return InputSpec.from_mapping({**AS_IT_IS, "source": {"monochrome1": "invert", **source}})


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    bits=st.integers(8, 16),
    is_signed=st.booleans(),
    rescale=st.tuples(
        st.floats(-3, 3).filter(lambda slope: abs(slope) > 1e-3), st.floats(-3000, 3000)
    ),
    clamps=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    part=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_the_line_of_a_part(bits, is_signed, rescale, clamps, part):
    first = -(1 << (bits - 1)) if is_signed else 0
    levels = rescale[0] * np.arange(first, first + (1 << bits), dtype=np.float64) + rescale[1]
    low, high = (float(levels[int(place * (len(levels) - 1))]) for place in clamps)
    levels = np.clip(levels, min(low, high), max(low, high) + 0.3 * abs(rescale[0]))
    begin, end = sorted(int(place * (len(levels) - 1)) for place in part)
    slope, used = slope_of(levels, first), levels[begin : end + 1]
    if slope is None:
        assert line_of(levels, first) is None or np.count_nonzero(np.diff(levels)) == 0
        return
    found, wanted = (
        line_within(levels, first, slope, slice(begin, end + 1)),
        line_of(used, first + begin),
    )
    assert found == wanted
    assert {float(used[0]), float(used[-1])} == {float(used.min()), float(used.max())}


def test_what_has_no_slope():
    assert slope_of(np.array([1.0, 2.0, 3.0]), 7) == Slope(0, 1)
    assert slope_of(np.array([1.0, 1.0, 2.0, 3.0, 3.0, 3.0]), 0) is None, (
        "nothing between its clamps"
    )
    assert slope_of(np.array([1.0, 1.0, 2.0, 3.0, 4.0, 4.0]), 0) == Slope(1, 3)
    assert slope_of(np.array([1.0, 2.0, 2.0, 3.0]), 0) is None
    assert slope_of(np.array([5.0, 5.0]), 0) is None
    assert slope_of(np.arange(9.0) ** 2, 0) is None
    assert line_within(
        np.array([1.0, 1.0, 2.0, 3.0, 4.0, 4.0]), 0, Slope(1, 3), slice(0, 2)
    ) == Line(0.0, 1.0)


@pytest.mark.parametrize("recipe", KEPT)
@pytest.mark.parametrize("is_monochrome1", [False, True])
@pytest.mark.parametrize(("dtype", "bits"), [("u1", 8), ("u2", 12), ("i2", 12), ("u2", 16)])
def test_a_table_by_header_is_that_of_the_picture(recipe, is_monochrome1, dtype, bits):
    spec = InputSpec.from_mapping({"recipe": recipe})
    first = -(1 << (bits - 1)) if dtype == "i2" else 0
    for seed in range(4):
        low, high = sorted(np.random.default_rng(seed).choice(1 << bits, 2, replace=False) + first)
        array = np.array([[low, high, low], [high, low, high]], dtype)
        modality = Rescale(1.0 + seed % 2, -seed)
        voi = Voi(Window(900.0, 700.0 + seed), None, is_unusable=False)
        stored = StoredValues(array, bits, dtype == "i2", is_monochrome1, modality, voi)
        try:
            own = grayscale._levels(
                grayscale._nominal(stored, grayscale._observed(stored, spec, None)), stored, spec
            )
        except NotAnalysable as error:
            with pytest.raises(NotAnalysable, match=error.reason.value):
                level_table(stored, spec)
            continue
        found = level_table(stored, spec)
        assert np.array_equal(found.values, own.values)
        assert (found.first, found.observed) == (first, own.observed)
        assert found.line((low, high)) == line_of(own.picture, low)
        for made in (np.uint8, np.float32):
            unkept = replace(found, lookups=None)
            assert np.array_equal(found.lookup(array.dtype, made), unkept.lookup(array.dtype, made))
            assert found.lookup(array.dtype, made) is level_table(stored, spec).lookup(
                array.dtype, made
            )


def test_what_the_object_brings_is_not_kept():
    """A window or a table may differ from image to image, and statistics do."""
    assert "torchxrayvision_224" in KEPT
    assert not {"chexpert_320", "torchxrayvision_vindr_224"} & set(KEPT)
    rescaled = with_source(modality_lut="apply", voi="none")
    assert grayscale._key_of(DEEP, rescaled) is not None
    assert (
        grayscale._key_of(replace(DEEP, modality=LookupTable(0, np.arange(4096.0), 12)), rescaled)
        is None
    )
    assert grayscale._key_of(
        replace(DEEP, modality=Rescale(2.0, 0.0)), rescaled
    ) != grayscale._key_of(DEEP, rescaled)


def test_no_contrast_is_seen_in_the_part_that_a_picture_uses():
    window = {"centre": 1000.0, "width": 500.0}
    spec = with_source(modality_lut="ignore", voi="fixed", fixed_window=window)
    assert (
        level_table(replace(DEEP, array=np.array([[900, 4000]], np.uint16)), spec).line((900, 4000))
        is not None
    )
    with pytest.raises(NotAnalysable, match="one level"):
        level_table(replace(DEEP, array=np.array([[3000, 4000]], np.uint16)), spec)
