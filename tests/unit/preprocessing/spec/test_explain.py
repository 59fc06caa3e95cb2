"""The picture of what each step did: it says what happened, and shows where the model looks."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from hilum_preprocessing import InputSpec, NotAnalysable, Reason, StoredValues
from hilum_preprocessing.explain import _kept, explain
from hilum_preprocessing.spec.placement import place
from hilum_preprocessing.spec.sizing import geometry_of
from testing.phantoms import phantom
from tests.support.objects.radiograph import radiograph

CROPPED = InputSpec.from_mapping({"recipe": "torchxrayvision_224"})
SQUASHED = InputSpec.from_mapping({"recipe": "vit_imagenet_half_224"})
PANEL, GAP, TOP = 360, 16, 56  # of the drawing: see hilum_preprocessing.explain


def panel(picture: Image.Image, number: int) -> np.ndarray:
    left = GAP + (number - 1) * (PANEL + GAP)
    return np.asarray(picture)[TOP : TOP + PANEL, left : left + PANEL]


def test_the_margins_that_a_crop_removes_are_dark_and_the_rest_is_framed() -> None:
    bright = np.tile(np.linspace(3000, 4095, 400).astype(np.uint16), (800, 1))
    third = panel(explain(radiograph(bright, 12), CROPPED), 3)
    middle, edge = third[PANEL // 2, PANEL // 2 - 30], third[20, PANEL // 2 - 30]
    assert middle.mean() > 2.5 * edge.mean(), "a third of the light: outside of the crop"
    assert (third == (200, 60, 20)).all(axis=2).sum() > 300, "the frame"


def test_polarity_is_seen_between_stored_values_and_levels() -> None:
    dataset = radiograph(
        np.tile(np.arange(0, 4000, 10, dtype=np.uint16), (400, 1)),
        12,
        PhotometricInterpretation="MONOCHROME1",
    )
    picture = explain(dataset, SQUASHED)
    stored, levels = panel(picture, 1), panel(picture, 2)
    assert stored[100, 20].mean() < stored[100, 340].mean()
    assert levels[100, 20].mean() > levels[100, 340].mean()


@pytest.mark.parametrize("shape", [(3, 3), (40, 1200), (1200, 40)])
def test_odd_shapes_can_be_drawn(shape: tuple[int, int]) -> None:
    array = (
        (np.arange(shape[0] * shape[1], dtype=np.uint32) * 499 % 4096)
        .astype(np.uint16)
        .reshape(shape)
    )
    assert (
        explain(radiograph(array, 12), SQUASHED).size
        == explain(phantom.make_instance(1, rows=64, columns=64), SQUASHED).size
    )


def test_what_is_not_analysed_is_not_drawn() -> None:
    with pytest.raises(NotAnalysable) as refused:
        explain(
            phantom.make_instance(1, rows=64, columns=64, overrides={"Modality": "CT"}), CROPPED
        )
    assert refused.value.reason is Reason.WRONG_MODALITY


def test_after_a_reduced_decode_the_crop_is_where_it_was() -> None:
    """Rows 2000 to 4000 of 6000; every second one is there, and the histogram is of those."""
    y = np.linspace(0, 4000, 6000).astype(np.uint16)
    stored = StoredValues(
        np.tile(y[::4, None], (1, 500)),
        12,
        is_signed=False,
        is_monochrome1=False,
        reduced=2,
        full_size=(6000, 2000),
    )
    placement = place(geometry_of(CROPPED, stored.size), stored.size)
    kept = _kept(stored.array, placement, 4)
    assert kept.shape == (500, 500)
    assert (kept[0, 0], kept[-1, 0]) == (y[2000], y[3996])
