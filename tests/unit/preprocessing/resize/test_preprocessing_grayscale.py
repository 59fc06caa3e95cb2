"""The grayscale pipeline as one table.

Order of the steps, windows of PS3.3, polarity, padding, and what is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian

from hilum_preprocessing import (
    Flag,
    NotAnalysable,
    Reason,
    decode,
    level_flags,
    read_file,
)
from hilum_preprocessing.header.luts import Window
from hilum_preprocessing.levels.grayscale import level_table, windowed
from hilum_preprocessing.levels.lines import line_of
from tests.support.objects.gray_levels import levels, source
from tests.support.objects.radiograph import radiograph, ramp, scene, spec, under


def lut(first: int, entries: list[int], bits: int, **attributes: Any) -> Sequence:
    item = Dataset()
    item.add_new("LUTDescriptor", "US" if first >= 0 else "SS", [len(entries) % 65536, first, bits])
    item.add_new("LUTData", "US", entries)
    for keyword, value in attributes.items():
        setattr(item, keyword, value)
    return Sequence([item])


# --- windows
# ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "centre", "width", "points"),
    [
        # PS3.3 C.11.2.1.2.1, Note 2: c=2048, w=4096 maps 0..4095; c=0, w=100 has its edges at -50
        # and 49; w=1 is a step at c - 0.5.
        ("LINEAR", 2048, 4096, {0: 0.0, 4095: 1.0, 2047.5: 0.5}),
        ("LINEAR", 0, 100, {-51: 0.0, -50: 0.0, 49: 1.0, 50: 1.0, -0.5: 0.5, 0: 0.5 + 0.5 / 99}),
        ("LINEAR", 0, 1, {-1: 0.0, -0.5: 0.0, 0: 1.0, 1: 1.0}),
        # PS3.3 C.11.2.1.3.2: edges at c - w/2 and c + w/2.
        ("LINEAR_EXACT", 2048, 4096, {0: 0.0, 4095: 4095 / 4096, 4096: 1.0, 2048: 0.5}),
        ("LINEAR_EXACT", 0, 100, {-50: 0.0, 49: 0.99, 50: 1.0, 0: 0.5}),
        ("LINEAR_EXACT", 0, 0.5, {-0.25: 0.0, 0: 0.5, 0.25: 1.0}),
        # PS3.3 C.11.2.1.3.1: 1 / (1 + exp(-4 (x - c) / w)).
        ("SIGMOID", 2048, 4096, {0: 1 / (1 + np.exp(2)), 2048: 0.5, 4096: 1 / (1 + np.exp(-2))}),
        ("SIGMOID", 0, 0.001, {-1e6: 0.0, 0: 0.5, 1e6: 1.0}),
    ],
)
def test_window_functions_at_their_edges(function, centre, width, points):
    """Trap 5."""
    found = windowed(np.array(list(points), np.float64), Window(centre, width, function))
    assert found == pytest.approx(list(points.values()), abs=1e-12)


def test_the_first_of_several_windows_is_used():
    dataset = radiograph(
        ramp(16, 16), 12, WindowCenter=["1000", "3000"], WindowWidth=["500", "100"]
    )
    alone = radiograph(ramp(16, 16), 12, WindowCenter="1000", WindowWidth="500")
    given = source(voi="first_window")
    assert np.array_equal(levels(dataset, given), levels(alone, given))


def test_modality_lut_comes_before_the_window():
    """Trap 3: slope 2, intercept -1000, and a window in output units."""
    dataset = radiograph(
        ramp(64, 64),
        12,
        RescaleSlope="2",
        RescaleIntercept="-1000",
        WindowCenter="3000",
        WindowWidth="1001",
    )
    output = 2.0 * ramp(64, 64) - 1000
    expected = np.clip((output - 2999.5) / 1000 + 0.5, 0, 1) * 4095
    assert levels(dataset, source(modality_lut="apply", voi="first_window")) == pytest.approx(
        expected, abs=1e-9
    )
    ignored = np.clip((ramp(64, 64) - 2999.5) / 1000 + 0.5, 0, 1) * 4095
    assert levels(dataset, source(modality_lut="ignore", voi="first_window")) == pytest.approx(
        ignored, abs=1e-9
    )


@pytest.mark.parametrize(
    "window",
    [
        {"WindowCenter": "2000", "WindowWidth": "0"},
        {"WindowCenter": "2000", "WindowWidth": "0.5"},
        {"WindowCenter": "2000", "WindowWidth": "-5"},
        {"WindowCenter": "2000"},
        {"WindowWidth": "100"},
        {"WindowCenter": "2000", "WindowWidth": "0", "VOILUTFunction": "SIGMOID"},
        {"WindowCenter": "2000", "WindowWidth": "100", "VOILUTFunction": "CUBIC"},
    ],
)
def test_a_window_against_the_rules_counts_as_missing_and_is_flagged(window):
    """Trap 7."""
    dataset = radiograph(ramp(16, 16), 12, **window)
    assert level_flags(decode(dataset), source(voi="first_window")) == (Flag.VOI_UNUSABLE,)
    assert level_flags(decode(dataset), source(voi="none")) == (), "nobody asks for it"
    assert np.array_equal(
        levels(dataset, source(voi="first_window", missing_voi="identity")), ramp(16, 16)
    )
    with pytest.raises(NotAnalysable) as refused:
        levels(dataset, source(voi="first_window", missing_voi="reject"))
    assert refused.value.reason is Reason.CORRUPT_HEADER


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "12a"])
def test_a_window_that_is_no_number_counts_as_missing(text):
    dataset = radiograph(ramp(16, 16), 12, WindowCenter="2000", WindowWidth="100")
    dataset["WindowWidth"]._value = text
    assert decode(dataset).voi.window is None
    assert level_flags(decode(dataset), source(voi="first_window")) == (Flag.VOI_UNUSABLE,)


def test_no_window_at_all_is_no_flag():
    dataset = radiograph(ramp(16, 16), 12)
    assert level_flags(decode(dataset), source(voi="first_window")) == ()
    assert np.array_equal(levels(dataset, source(voi="first_window")), ramp(16, 16))


# --- lookup tables
# ----------------------------------------------------------------------------------------------------


def test_voi_lut_has_the_range_of_its_own_bits():
    """Trap 4: a 16-bit table on 12-bit pixels; dividing by 4095 would overshoot 16 times."""
    dataset = radiograph(
        ramp(16, 16), 12, VOILUTSequence=lut(0, [entry * 16 + 15 for entry in range(4096)], 16)
    )
    normalised = levels(
        dataset, spec(intensity=[{"op": "maxval", "of": "bits"}], source={"voi": "lut_sequence"})
    )
    assert normalised == pytest.approx((ramp(16, 16) * 16.0 + 15) / 65535)


def test_lut_beyond_its_ends_repeats_them():
    dataset = radiograph(ramp(16, 16), 12, VOILUTSequence=lut(1000, [7, 9, 11], 8))
    stored = ramp(16, 16)
    expected = np.where(stored <= 1000, 7, np.where(stored >= 1002, 11, 9))
    assert np.array_equal(levels(dataset, source(voi="lut_sequence")), expected)


def test_modality_lut_sequence_on_signed_values():
    stored = np.arange(-8, 8, dtype=np.int16).reshape(4, 4)
    dataset = radiograph(
        stored, 12, ModalityLUTSequence=lut(-8, list(range(100, 116)), 16, ModalityLUTType="US")
    )
    assert np.array_equal(
        levels(dataset, source(modality_lut="apply")), np.arange(100, 116).reshape(4, 4)
    )
    assert np.array_equal(levels(dataset, source(modality_lut="ignore")), stored)


@pytest.mark.parametrize("is_undefined_length", [False, True])
@pytest.mark.parametrize("uid", [ImplicitVRLittleEndian, ExplicitVRLittleEndian])
@pytest.mark.parametrize(
    ("keyword", "is_signed", "first", "attributes"),
    [
        ("ModalityLUTSequence", True, -2048, {}),
        ("VOILUTSequence", True, -2048, {}),
        ("VOILUTSequence", False, -1024, {"RescaleSlope": 1, "RescaleIntercept": -1024}),
        ("VOILUTSequence", False, -1024, {"RescaleSlope": -1, "RescaleIntercept": 3071}),
    ],
)
def test_a_first_input_below_0_whatever_its_vr_says(
    tmp_path, uid, is_undefined_length, keyword, is_signed, first, attributes
):
    """Implicit VR does not say whether 63488 is -2048, and a sequence of undefined length is read before the pixels' sign is known."""
    stored = ramp(16, 16).astype(np.int32) - 2048 * is_signed
    table = lut(first, [(entry * 7) % 65536 for entry in range(4096)], 16, ModalityLUTType="US")
    table.is_undefined_length = is_undefined_length
    dataset = radiograph(
        stored.astype(np.int16 if is_signed else np.uint16),
        12,
        SOPInstanceUID="1.2.3",
        **attributes,
        **{keyword: table},
    )
    dataset[keyword].is_undefined_length = is_undefined_length
    under(dataset, uid).save_as(tmp_path / "table.dcm", enforce_file_format=True)
    given = source(voi="lut_sequence", modality_lut="apply")
    inputs = stored * int(attributes.get("RescaleSlope", 1)) + int(
        attributes.get("RescaleIntercept", 0)
    )
    found = levels(read_file(tmp_path / "table.dcm"), given)
    assert np.array_equal(found, (inputs - first) * 7 % 65536)


@pytest.mark.parametrize("uid", [ImplicitVRLittleEndian, ExplicitVRLittleEndian])
def test_a_first_input_above_32767_whatever_its_vr_says(tmp_path, uid):
    """Signed pixels that a rescale makes positive.

    Implicit VR does not say whether -25536 is 40000.
    """
    stored = ramp(16, 16, bits=16).astype(np.int32) - 32768
    table = lut(40_000, [(entry * 7) % 65536 for entry in range(4096)], 16)
    attributes = {"RescaleSlope": 1, "RescaleIntercept": 32768, "VOILUTSequence": table}
    dataset = radiograph(stored.astype(np.int16), 16, SOPInstanceUID="1.2.3", **attributes)
    under(dataset, uid).save_as(tmp_path / "table.dcm", enforce_file_format=True)
    found = levels(
        read_file(tmp_path / "table.dcm"), source(voi="lut_sequence", modality_lut="apply")
    )
    assert np.array_equal(found, np.clip(stored + 32768 - 40_000, 0, 4095) * 7 % 65536)


def test_a_table_that_begins_beyond_positive_inputs_is_left_as_it_is():
    """65000 is no negative number where no input is."""
    dataset = radiograph(ramp(16, 16, bits=16), 16, VOILUTSequence=lut(65000, list(range(536)), 16))
    assert np.array_equal(
        levels(dataset, source(voi="lut_sequence")),
        np.clip(ramp(16, 16, bits=16).astype(int) - 65000, 0, 535),
    )


def test_a_lut_of_65536_entries_says_0():
    """PS3.3 C.11.2.1.1: the count does not fit into 16 bits."""
    stored = ramp(16, 16, bits=16)
    dataset = radiograph(
        stored, 16, VOILUTSequence=lut(0, [65535 - entry for entry in range(65536)], 16)
    )
    assert np.array_equal(
        levels(
            dataset,
            spec(
                intensity=[{"op": "clamp", "low": 0, "high": 65000}], source={"voi": "lut_sequence"}
            ),
        ),
        np.clip(65535.0 - stored, 0, 65000),
    )


@pytest.mark.parametrize(
    "packed",
    [bytes(range(256)), np.arange(256, dtype="<u2").tobytes()],
    ids=["8 bits packed", "16-bit words"],
)
def test_lut_data_as_words(packed):
    item = Dataset()
    item.LUTDescriptor = [256, 0, 8]
    item.add_new("LUTData", "OW", packed)
    stored = np.arange(256, dtype=np.uint8).reshape(16, 16)
    assert np.array_equal(
        levels(radiograph(stored, VOILUTSequence=Sequence([item])), source(voi="lut_sequence")),
        stored,
    )


def test_window_or_lut_by_preference_when_both_are_there():
    both = radiograph(
        ramp(16, 16),
        12,
        WindowCenter="100",
        WindowWidth="50",
        VOILUTSequence=lut(0, list(range(4096)), 12),
    )
    assert np.array_equal(levels(both, source(voi="first_window", voi_prefer="lut")), ramp(16, 16))
    assert levels(both, source(voi="first_window", voi_prefer="window"))[-1, -1] == 4095
    assert np.count_nonzero(
        levels(both, source(voi="first_window", voi_prefer="window")) == 0
    ) == np.count_nonzero(ramp(16, 16) <= 75)
    lut_alone = radiograph(ramp(16, 16), 12, VOILUTSequence=lut(0, list(range(4096)), 12))
    assert np.array_equal(
        levels(lut_alone, source(voi="first_window", voi_prefer="window")), ramp(16, 16)
    )


@pytest.mark.parametrize(
    "broken",
    [
        lut(0, [1, 2, 3], 12, LUTDescriptor=[8, 0, 12]),
        lut(0, [1, 2, 3], 12, LUTDescriptor=[3, 0]),
        lut(0, [1, 2], 17),
        Sequence([Dataset()]),
    ],
    ids=["too few entries", "short descriptor", "17 bits", "empty item"],
)
def test_a_broken_voi_lut_fails_only_the_recipe_that_needs_it(broken):
    dataset = radiograph(ramp(16, 16), 12, VOILUTSequence=broken)
    assert np.array_equal(levels(dataset, source(voi="none")), ramp(16, 16))
    assert level_flags(decode(dataset), source(voi="none")) == ()
    assert level_flags(decode(dataset), source(voi="lut_sequence")) == (Flag.VOI_UNUSABLE,)
    with pytest.raises(NotAnalysable):
        levels(dataset, source(voi="lut_sequence", missing_voi="reject"))


# --- polarity
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields", [{}, {"source": {"modality_lut": "apply"}}, {"intensity": [{"op": "minmax"}]}]
)
@pytest.mark.parametrize("bits", [8, 10, 12, 16])
def test_one_scene_stored_both_ways_gives_one_picture(bits, fields):
    """Trap 1: missed or made twice, the inversion would show."""
    scene_2 = scene(32, 32, bits).astype(np.uint8 if bits == 8 else np.uint16)
    scene_1 = ((1 << bits) - 1 - scene_2).astype(scene_2.dtype)
    rescale = {"RescaleSlope": "2", "RescaleIntercept": "-1000"}
    given = spec(**fields)
    light_on_dark = levels(radiograph(scene_2, bits, **rescale), given)
    dark_on_light = levels(
        radiograph(scene_1, bits, PhotometricInterpretation="MONOCHROME1", **rescale), given
    )
    assert dark_on_light == pytest.approx(light_on_dark, abs=1e-9)
    assert np.std(light_on_dark) > 0.01


def test_one_scene_stored_both_ways_through_its_window():
    stored = scene(32, 32)
    window = {"WindowWidth": "1500", "VOILUTFunction": "LINEAR_EXACT"}
    two = levels(radiograph(stored, 12, WindowCenter="1800", **window), source(voi="first_window"))
    mirrored = radiograph(
        4095 - stored,
        12,
        WindowCenter=str(4095 - 1800),
        PhotometricInterpretation="MONOCHROME1",
        **window,
    )
    assert levels(mirrored, source(voi="first_window")) == pytest.approx(two, abs=1e-9)


def test_signed_monochrome1_is_mirrored_within_its_own_range():
    stored = np.array([[-2048, -1], [0, 2047]], np.int16)
    dataset = radiograph(stored, 12, PhotometricInterpretation="MONOCHROME1")
    assert np.array_equal(levels(dataset, source()), [[2047, 0], [-1, -2048]])


def test_the_point_of_inversion_is_the_recipe_s():
    """Trap 2: before or after the truncation to 8 bits is one grey level.

    Minmax sees nothing of the nominal range.
    """
    stored = np.array([[0, 9], [1000, 4095]], np.uint16)
    dataset = radiograph(stored, 12, PhotometricInterpretation="MONOCHROME1")
    to_8_bits = [{"op": "minmax"}, {"op": "to_uint8", "mode": "truncate"}]
    before = levels(dataset, spec(intensity=to_8_bits, source={"monochrome1": "invert"}))
    after = levels(dataset, spec(intensity=to_8_bits, source={"monochrome1": "invert_after_uint8"}))
    assert np.array_equal(before, np.trunc((4095.0 - stored) / 4095 * 255))
    assert np.array_equal(after, 255 - np.trunc(stored / 4095 * 255))
    assert np.array_equal(before != after, [[False, True], [True, False]])


def test_ignored_and_refused_monochrome1():
    dataset = radiograph(ramp(16, 16), 12, PhotometricInterpretation="MONOCHROME1")
    assert np.array_equal(levels(dataset, source(monochrome1="ignore")), ramp(16, 16))
    with pytest.raises(NotAnalysable) as refused:
        levels(dataset, source(monochrome1="reject"))
    assert refused.value.reason is Reason.UNSUPPORTED_PIXEL_FORMAT
    assert np.array_equal(
        levels(radiograph(ramp(16, 16), 12), source(monochrome1="reject")), ramp(16, 16)
    )


# --- intensity operations
# ---------------------------------------------------------------------------------------------


def test_maxval_is_bits_stored_and_not_the_picture_s_own_maximum():
    dataset = radiograph(np.array([[0, 100], [200, 1000]], np.uint16), 12)
    assert levels(dataset, spec()) == pytest.approx(
        (2 * np.array([[0, 100], [200, 1000]]) / 4095 - 1) * 1024
    )
    fixed = [{"op": "maxval", "of": 1000}, {"op": "clamp", "low": 0, "high": 1}]
    assert levels(dataset, spec(intensity=fixed)) == pytest.approx(np.array([[0, 0.1], [0.2, 1]]))


def test_truncation_darkens_by_half_a_level_and_rounding_does_not():
    """Trap 29."""
    dataset = radiograph(ramp(256, 256, bits=16), 16)
    exact = ramp(256, 256, bits=16) / 65535 * 255
    bias = {}
    for mode in ("truncate", "round"):
        intensity = [{"op": "maxval", "of": "bits"}, {"op": "to_uint8", "mode": mode}]
        bias[mode] = float((levels(dataset, spec(intensity=intensity)) - exact).mean())
    assert bias["truncate"] == pytest.approx(-0.5, abs=0.01)
    assert bias["round"] == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize("recipe", ["nih_pil_bicubic_224", "vit_imagenet_half_224"])
def test_eight_bit_pictures_keep_every_level(recipe):
    stored = np.arange(256, dtype=np.uint8).reshape(16, 16)
    assert np.array_equal(levels(radiograph(stored), spec(recipe)), stored)


def test_invert_and_scale():
    intensity = [
        {"op": "maxval", "of": "bits"},
        {"op": "invert"},
        {"op": "scale", "multiply": -2, "add": 1},
        {"op": "invert"},
    ]
    assert levels(radiograph(ramp(16, 16), 12), spec(intensity=intensity)) == pytest.approx(
        1 - 2 * ramp(16, 16) / 4095
    )


def test_padding_is_no_part_of_the_statistics():
    """Trap 10: values between 506 and 2547, and a frame of padding at 0 and at 4095."""
    picture = np.linspace(506, 2547, 14 * 14).round().astype(np.uint16).reshape(14, 14)
    minmax = [{"op": "minmax"}]
    for padding, attributes in (
        (0, {"PixelPaddingValue": 0}),
        (4095, {"PixelPaddingValue": 4000, "PixelPaddingRangeLimit": 4095}),
    ):
        framed = np.pad(picture, 1, constant_values=padding)
        found = levels(radiograph(framed, 12, **attributes), spec(intensity=minmax))
        assert found[1:-1, 1:-1] == pytest.approx((picture - 506.0) / (2547 - 506))
        assert set(found[0]) == {float(padding > 2547)}, "padding is clamped to the nearer end"
        kept = levels(
            radiograph(framed, 12, **attributes), spec(intensity=minmax, source={"padding": "keep"})
        )
        assert kept[1:-1, 1:-1] != pytest.approx(found[1:-1, 1:-1])


def test_padding_above_32767_that_is_written_as_signed():
    picture = np.linspace(506, 2547, 14 * 14).round().astype(np.uint16).reshape(14, 14)
    dataset = radiograph(np.pad(picture, 1, constant_values=65535), 16)
    dataset.add_new("PixelPaddingValue", "SS", -1)
    assert decode(dataset).padding == (65535, 65535)
    found = levels(dataset, spec(intensity=[{"op": "minmax"}]))
    assert found[1:-1, 1:-1] == pytest.approx((picture - 506.0) / (2547 - 506))


@pytest.mark.parametrize("limit", [None, -1990])
def test_padding_below_0_that_is_written_as_unsigned(limit):
    """Explicit VR can say US for -2000 beside signed pixels."""
    picture = np.linspace(-506, 1547, 14 * 14).round().astype(np.int16).reshape(14, 14)
    dataset = radiograph(np.pad(picture, 1, constant_values=-2000), 12)
    dataset.add_new("PixelPaddingValue", "US", 63536)
    if limit:
        dataset.add_new("PixelPaddingRangeLimit", "US", limit + 65536)
    assert decode(dataset).padding == (-2000, limit or -2000)
    found = levels(dataset, spec(intensity=[{"op": "minmax"}]))
    assert found[1:-1, 1:-1] == pytest.approx((picture + 506.0) / (1547 + 506))


@pytest.mark.parametrize(
    ("array", "attributes", "fields"),
    [
        (np.full((8, 8), 700, np.uint16), {}, {}),
        (np.zeros((8, 8), np.uint16), {}, {"intensity": [{"op": "minmax"}]}),
        (np.pad(np.full((8, 8), 700, np.uint16), 2), {"PixelPaddingValue": 0}, {}),
        (np.zeros((8, 8), np.uint16), {"PixelPaddingValue": 0}, {}),
        (
            ramp(8, 8),
            {"WindowCenter": "9000", "WindowWidth": "100"},
            {"source": {"voi": "first_window"}},
        ),
        (
            ramp(8, 8),
            {"WindowCenter": "9000", "WindowWidth": "100"},
            {"source": {"voi": "first_window"}, "intensity": [{"op": "minmax"}]},
        ),
        (
            np.array([[1, 2]], np.uint16),
            {},
            {"intensity": [{"op": "maxval", "of": "bits"}, {"op": "to_uint8", "mode": "truncate"}]},
        ),
    ],
    ids=[
        "one value",
        "zeros",
        "one value in padding",
        "padding only",
        "window beside the picture",
        "the same, minmax",
        "one level of 8 bits",
    ],
)
def test_a_picture_without_contrast_is_refused(array, attributes, fields):
    """Trap 32: min-max of it would be 0/0."""
    with pytest.raises(NotAnalysable) as refused:
        levels(radiograph(array, 12, **attributes), spec(**fields))
    assert refused.value.reason is Reason.CONSTANT_IMAGE


def line(array, given, **attributes):
    """(slope, offset) where the table is a line from end to end, else None."""
    table = level_table(decode(radiograph(array, 12, **attributes)), given)
    found = line_of(table.values, table.first)
    return (
        (found.slope, found.offset)
        if found is not None and found.low is None and found.high is None
        else None
    )


def test_levels_on_a_line_are_recognised_and_others_are_not():
    assert line(ramp(16, 16), spec()) == pytest.approx((2048 / 4095, -1024))
    signed = (ramp(16, 16).astype(np.int16) - 2048).astype(np.int16)
    assert line(signed, spec()) == pytest.approx((2048 / 4095, 2048 * 2048 / 4095 - 1024))
    assert (
        line(ramp(16, 16), source(voi="first_window"), WindowCenter="2000", WindowWidth="100")
        is None
    ), "it has clamps"
    assert (
        line(
            ramp(16, 16),
            source(voi="first_window"),
            WindowCenter="2000",
            WindowWidth="100",
            VOILUTFunction="SIGMOID",
        )
        is None
    )


@pytest.mark.parametrize("recipe", ["vit_imagenet_224", "torchxrayvision_vindr_224"])
@pytest.mark.parametrize("slope", ["8e304", "1e308"])
def test_a_rescale_beyond_all_floats_is_refused_and_no_black_picture(recipe, slope):
    with pytest.raises(NotAnalysable) as refused:
        levels(radiograph(ramp(16, 16), 12, RescaleSlope=slope, RescaleIntercept="0"), spec(recipe))
    assert refused.value.reason is Reason.CORRUPT_HEADER
