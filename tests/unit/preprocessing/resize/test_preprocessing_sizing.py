"""Sizes that depend on the image.

Crops, sides, pads and pixels that are not square, each by its authors' own arithmetic.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hilum_preprocessing import (
    RECIPES,
    InputSpec,
    NotAnalysable,
    Reason,
    SpecError,
    decode,
    prepare_stored,
)
from hilum_preprocessing.batch import prepare_batch
from hilum_preprocessing.explain import explain
from hilum_preprocessing.spec.operations import CentreCrop, Pad, Resize, ResizeSide
from hilum_preprocessing.spec.placement import place
from hilum_preprocessing.spec.sizing import (
    MOST_PIXELS_BETWEEN,
    crop_slices,
    geometry_of,
    pad_margins,
    sized,
)
from hilum_preprocessing.tensor.geometry import apply
from tests.support.objects.radiograph import radiograph, scene, spec

SHORT_SIDE = {
    "op": "resize_side",
    "side": "short",
    "size": 512,
    "rounding": "int",
    "kernel": "pil_bilinear_aa",
}
WHOLE = {"op": "resize", "height": 512, "width": 512, "kernel": "pil_bilinear_aa"}
TARGET = {"height": 512, "width": 512, "dtype": "fp16"}
SIZES = st.tuples(st.integers(1, 4000), st.integers(1, 4000))


def side(which: str, size: int, rounding: str) -> ResizeSide:
    return ResizeSide(side=which, size=size, rounding=rounding, kernel="pil_bilinear_aa")


@given(SIZES)
@settings(max_examples=200, deadline=None)
def test_torchvision_truncates_the_longer_side(size):
    """Trap 28: transforms.Resize(512)."""
    short, long = sorted(size)
    expected = {short: 512, long: int(512 * long / short)} if short != long else {short: 512}
    assert side("short", 512, "int").size_of(size) == tuple(expected[length] for length in size)


@given(SIZES)
@settings(max_examples=200, deadline=None)
def test_chexzero_truncates_both_sides(size):
    """Trap 28."""
    ratio = float(320) / max(size)
    assert side("long", 320, "int_of_ratio").size_of(size) == tuple(
        max(1, int(length * ratio)) for length in size
    )


def test_truncating_a_ratio_may_cost_the_long_side_a_pixel():
    lost = [
        length
        for length in range(321, 4000)
        if side("long", 320, "int_of_ratio").size_of((length, 100))[0] == 319
    ]
    assert lost, "int(x * (320 / x)) is 319 for some x"
    assert pad_margins(Pad(value=0, to=320), (319, 300)) == ((0, 1), (10, 10))


@given(SIZES)
@settings(max_examples=200, deadline=None)
def test_jfhealthcare_rounds_the_shorter_side(size):
    """Trap 28: data/utils.py fix_ratio."""
    rows, columns = size
    expected = (
        (512, round(512 / (rows * 1.0 / columns)))
        if rows >= columns
        else (round(512 / (columns * 1.0 / rows)), 512)
    )
    assert side("long", 512, "round").size_of(size) == tuple(max(1, length) for length in expected)


def test_the_three_roundings_are_three():
    sizes = [(rows, columns) for rows in range(500, 560) for columns in range(300, 360)]
    for first, second in (("int", "round"), ("int", "int_of_ratio"), ("round", "int_of_ratio")):
        assert any(
            side("long", 320, first).size_of(size) != side("long", 320, second).size_of(size)
            for size in sizes
        )


@pytest.mark.parametrize("length", range(224, 300))
def test_torchvision_s_centre_crop(length):
    """Trap 27: round((x - 224) / 2), half to even."""
    kept, _ = crop_slices(CentreCrop(size=224, offset="half_gap"), (length, 224))
    assert kept.start == round((length - 224) / 2.0)


def test_the_two_centre_crops_differ():
    starts = {
        offset: [
            crop_slices(CentreCrop(size=224, offset=offset), (n, n))[0].start for n in (257, 259)
        ]
        for offset in ("halves", "half_gap")
    }
    assert starts == {"halves": [16, 17], "half_gap": [16, 18]}


def test_a_pad_to_a_size_and_a_picture_that_fills_it():
    image = torch.ones(3, 5)
    found = apply(image, [Pad(value=7.0, to=8, place="bottom_right")])
    assert found.shape == (8, 8)
    assert (found[:3, :5] == 1).all()
    assert found.sum() == 15 + 7 * 49
    assert apply(image, [Pad(value=7.0, to=5)]).shape == (5, 5)


def test_sides_are_resized_in_turn():
    """Each operation sees the size that the one before it made."""
    operations = [
        side("long", 100, "round"),
        Pad(value=0.0, to=100),
        side("short", 50, "int"),
        CentreCrop(size=40),
    ]
    found = list(sized(operations, (400, 200)))
    assert [(op.height, op.width) for op in found if isinstance(op, Resize)] == [
        (100, 50),
        (50, 50),
    ]
    assert apply(torch.rand(400, 200), operations).shape == (40, 40)


def test_an_image_smaller_than_its_crop_is_refused():
    given_spec = spec(geometry=[{"op": "centre_crop", "size": 224}])
    with pytest.raises(NotAnalysable) as refused:
        prepare_stored(decode(radiograph(scene(300, 223), 12)), given_spec)
    assert refused.value.reason is Reason.UNSUPPORTED_PIXEL_FORMAT
    assert prepare_stored(decode(radiograph(scene(300, 224), 12)), given_spec).shape == (
        1,
        224,
        224,
    )


@given(SIZES)
@settings(max_examples=60, deadline=None)
def test_every_recipe_ends_with_its_target_whatever_the_size(size):
    assume(max(size) <= 16 * min(size))
    for name in RECIPES:
        given_spec = InputSpec.from_mapping({"recipe": name})
        operations = geometry_of(given_spec, size)
        placement = place(operations, size)
        assert (placement.rows.target, placement.columns.target) == given_spec.wire_shape[1:]
        assert place(given_spec.geometry, size) == placement


def refused_as_too_large(size: tuple[int, int], given_spec: InputSpec) -> None:
    dataset = radiograph(np.resize(scene(8, 64), size), 12)
    ways = (
        prepare_stored,
        lambda stored, by: prepare_batch([stored], by),
        lambda _, by: explain(dataset, by),
    )
    for refusing in ways:
        with pytest.raises(NotAnalysable) as refused:
            refusing(decode(dataset), given_spec)
        assert refused.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize("size", [(8, 65535), (65535, 8), (1, 65535), (65535, 1), (40, 4000)])
@pytest.mark.parametrize("order", ["intensity_first", "resize_first"])
def test_a_strip_is_refused_before_it_is_drawn_out(size, order):
    """The shorter side to 512 makes gigabytes of half a megabyte."""
    changes = {
        "geometry": [SHORT_SIDE, {"op": "centre_crop", "size": 512}],
        "target": TARGET,
        "order": order,
    }
    refused_as_too_large(size, spec(source={"padding": "keep"}, **changes))


@given(st.tuples(st.integers(1, 65535), st.integers(1, 65535)))
@settings(max_examples=60, deadline=None)
def test_nothing_large_is_on_the_way_of_any_recipe(size):
    for name in RECIPES:
        try:
            operations = geometry_of(InputSpec.from_mapping({"recipe": name}), size)
        except NotAnalysable as refused:
            assert refused.reason is Reason.TOO_LARGE  # noqa: PT017 - many are refused, and many are not
        else:
            made = [place(operations[:count], size) for count in range(len(operations) + 1)]
            assert max(now.rows.target * now.columns.target for now in made) <= max(
                MOST_PIXELS_BETWEEN, size[0] * size[1]
            ), name


def test_a_strip_is_refused_before_it_is_padded():
    changes = {"geometry": [{"op": "pad", "value": 0.0}, WHOLE], "target": TARGET}
    refused_as_too_large((1, 65535), spec(**changes))
    assert prepare_stored(decode(radiograph(scene(30, 4900), 12)), spec(**changes)).shape == (
        1,
        512,
        512,
    )


def test_a_strip_is_refused_before_its_pixels_are_made_square():
    resampled = spec(source={"pixel_aspect": "resample"})
    with pytest.raises(NotAnalysable) as refused:
        geometry_of(resampled, (5000, 10), pixel_aspect=2.0)
    assert refused.value.reason is Reason.TOO_LARGE
    assert geometry_of(resampled, (4000, 10), pixel_aspect=2.0)
    assert geometry_of(spec(), (65535, 10)), "a side that only shrinks may be as long as it is"


def test_a_large_source_may_stay_as_large_as_it_is():
    padded = spec(geometry=[{"op": "pad", "value": 0.0}, WHOLE], target=TARGET)
    assert geometry_of(padded, (6000, 4800))
    assert geometry_of(padded, (9000, 9000))
    with pytest.raises(NotAnalysable, match="too_large"):
        geometry_of(padded, (9000, 8000))


# --- pixels that are not square
# -------------------------------------------------------------------------------------------


def tensor(policy: str, **attributes: object) -> torch.Tensor:
    stored = decode(radiograph(scene(200, 400), 12, **attributes))
    return prepare_stored(stored, spec(source={"pixel_aspect": policy}))


def test_pixels_that_are_not_square():
    """Trap 24: twice as high as wide, so the picture is a square."""
    tall = {"PixelAspectRatio": [2, 1]}
    square = decode(radiograph(np.repeat(scene(200, 400), 2, axis=0), 12))
    expected = prepare_stored(square, spec()).float()
    assert (tensor("resample", **tall).float() - expected).abs().mean() < 20
    assert (tensor("ignore", **tall).float() - expected).abs().mean() > 100
    assert torch.equal(tensor("ignore", **tall), tensor("ignore"))
    with pytest.raises(NotAnalysable) as refused:
        tensor("reject_if_not_square", **tall)
    assert refused.value.reason is Reason.UNSUPPORTED_PIXEL_FORMAT


@pytest.mark.parametrize("policy", ["resample", "reject_if_not_square"])
@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"PixelAspectRatio": [1, 1]},
        {"ImagerPixelSpacing": [0.139, 0.139]},
        {"PixelSpacing": [0.1389, 0.139]},
        {"PixelSpacing": [0.2, 0.2], "PixelAspectRatio": [2, 1]},
    ],
)
def test_square_pixels_are_left_alone(policy, attributes):
    """PS3.3 C.7.6.3.1.7: the ratio is for objects without a spacing."""
    assert torch.equal(tensor(policy, **attributes), tensor("ignore"))


@pytest.mark.parametrize("policy", ["resample", "reject_if_not_square"])
@pytest.mark.parametrize(
    "attributes",
    [{"PixelAspectRatio": [0, 1]}, {"PixelSpacing": [0.1, 0.0]}, {"PixelAspectRatio": [100, 1]}],
)
def test_a_spacing_that_makes_no_sense_is_refused_where_it_matters(policy, attributes):
    assert torch.equal(tensor("ignore", **attributes), tensor("ignore"))
    with pytest.raises(NotAnalysable):
        tensor(policy, **attributes)


@pytest.mark.parametrize(("aspect", "size"), [(2.0, (400, 400)), (0.5, (200, 800))])
def test_the_coarser_axis_is_enlarged_and_found_again(aspect, size):
    given_spec = spec(source={"pixel_aspect": "resample"})
    operations = geometry_of(given_spec, (200, 400), aspect)
    assert isinstance(operations[0], Resize)
    assert (operations[0].height, operations[0].width) == size
    placement = place(operations, (200, 400))
    top, left, bottom, right = placement.analysed
    assert (bottom - top) * aspect == pytest.approx(right - left), "a square of the patient"


def test_grey_levels_stay_whole_when_pixels_are_made_square():
    stored = decode(radiograph(scene(200, 400), 12, PixelAspectRatio=[2, 1]))
    found = prepare_stored(stored, spec("nih_pil_bicubic_224", source={"pixel_aspect": "resample"}))
    assert found.dtype == torch.uint8


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {
                "geometry": [
                    {
                        "op": "resize_side",
                        "side": "short",
                        "size": 224,
                        "rounding": "int",
                        "kernel": "skimage",
                    }
                ]
            },
            "depends on the image",
        ),
        (
            {
                "geometry": [
                    {
                        "op": "resize_side",
                        "side": "shorter",
                        "size": 224,
                        "rounding": "int",
                        "kernel": "skimage",
                    }
                ]
            },
            "did you mean 'short'",
        ),
        ({"geometry": [{"op": "blur", "size": 4}]}, "expected one of 3, 5, 7"),
        (
            {
                "geometry": [
                    {"op": "resize", "height": 224, "width": 224, "kernel": "cv2_area_enlarging"}
                ]
            },
            "did you mean 'cv2_area'",
        ),
        ({"source": {"pixel_aspect": "square"}}, "unknown value 'square'"),
    ],
)
def test_a_wrong_geometry_is_refused(changes, words):
    with pytest.raises(SpecError, match=words):
        spec(**changes)


def test_no_whole_levels_after_a_resize_in_float():
    first = {"op": "resize", "height": 300, "width": 300, "kernel": "skimage"}
    second = {
        "op": "resize",
        "height": 224,
        "width": 224,
        "kernel": "pil_bicubic_aa",
        "compute": "uint8_rounded",
    }
    with pytest.raises(SpecError, match="after a resize in float"):
        spec("nih_pil_bicubic_224", geometry=[first, second])
