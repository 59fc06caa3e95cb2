"""From a cell of the tensor back to the image.

Through crop, pad and resize, checked against what they do to pixels.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hilum_preprocessing import InputSpec
from hilum_preprocessing.spec.operations import CentreCrop, GeometryOp, Pad, Resize
from hilum_preprocessing.spec.placement import place
from hilum_preprocessing.tensor.geometry import apply

GRID = (7, 7)
TO_224 = Resize(height=224, width=224, kernel="pil_bilinear_aa")
GEOMETRIES: dict[str, list[GeometryOp]] = {
    "squash": [TO_224],
    "crop": [CentreCrop(), TO_224],
    "pad": [Pad(value=0.0), TO_224],
    "pad_bottom_right": [Pad(value=0.0, place="bottom_right"), TO_224],
    "resize_then_crop": [Resize(height=256, width=256, kernel="torch_aa"), CentreCrop(size=224)],
    "crop_then_pad": [CentreCrop(size=500), Pad(value=0.0), TO_224],
    "crop_then_resize_skimage": [CentreCrop(), Resize(height=224, width=224, kernel="skimage")],
}
SIZES = [(700, 500), (500, 700), (600, 600), (901, 437)]


def brightest_cell(image: np.ndarray, operations: list[GeometryOp]) -> tuple[int, int]:
    """Where a network that answers to brightness alone would have its peak."""
    tensor = apply(torch.from_numpy(image), operations).numpy()
    cells = tensor.reshape(
        GRID[0], tensor.shape[0] // GRID[0], GRID[1], tensor.shape[1] // GRID[1]
    ).mean((1, 3))
    return tuple(int(index) for index in np.unravel_index(cells.argmax(), GRID))


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("size", SIZES)
def test_a_bright_square_is_found_within_its_cell(name, size):
    """Trap 46."""
    operations = GEOMETRIES[name]
    placement = place(operations, size)
    top, left, bottom, right = placement.analysed
    for share in (0.1, 0.37, 0.5, 0.83):
        centre = (top + share * (bottom - top), left + (1 - share) * (right - left))
        image = np.zeros(size, np.float32)
        image[int(centre[0]) - 6 : int(centre[0]) + 6, int(centre[1]) - 6 : int(centre[1]) + 6] = (
            1.0
        )
        box = placement.box_of(brightest_cell(image, operations), GRID)
        assert box is not None
        # The square may lie across the border of two cells: its centre is then half a square
        # outside.
        assert box[0] - 6 <= centre[0] <= box[2] + 6
        assert box[1] - 6 <= centre[1] <= box[3] + 6


@pytest.mark.parametrize("size", SIZES)
def test_what_a_crop_takes_away_is_not_analysed(size):
    placement = place(GEOMETRIES["crop"], size)
    short = min(size)
    top, left, bottom, right = placement.analysed
    assert (bottom - top, right - left) == (short, short)
    assert (top, left) == tuple(length // 2 - short // 2 for length in size)
    boxes = [placement.box_of((row, column), GRID) for row in range(7) for column in range(7)]
    assert all(box is not None and box[0] >= top - 1e-9 and box[3] <= right + 1e-9 for box in boxes)


def test_a_margin_that_was_cropped_stays_unseen_though_a_pad_fills_its_place():
    """300 x 100 to 200 x 100, padded to 200 x 200.

    The padding's columns lie where there is no image, the cropped rows where there is.
    """
    placement = place([CentreCrop(size=200), Pad(value=0.0)], (300, 100))
    assert placement.analysed == (50.0, 0.0, 250.0, 100.0)
    assert placement.box_of((0, 0), (4, 4)) is None
    assert placement.box_of((0, 1), (4, 4)) == (50.0, 0.0, 100.0, 50.0)


def test_the_size_of_a_cell_in_the_image():
    placement = place(
        InputSpec.from_mapping({"recipe": "torchxrayvision_224"}).geometry, (2500, 2048)
    )
    height, width = placement.cell_size(GRID)
    assert (round(height, 1), round(width, 1)) == (292.6, 292.6)
    assert place(GEOMETRIES["squash"], (1400, 700)).cell_size(GRID) == (200.0, 100.0)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(GEOMETRIES)),
    st.tuples(st.integers(8, 3000), st.integers(8, 3000)),
    st.floats(0, 1),
)
def test_there_and_back_is_where_we_were(name, size, share):
    placement = place(GEOMETRIES[name], size)
    for axis, length in ((placement.rows, size[0]), (placement.columns, size[1])):
        source = share * length
        assert axis.to_source(axis.to_target(source)) == pytest.approx(source, abs=1e-6)
        assert 0 <= axis.start < axis.stop <= length
        assert (
            0 - 1e-6
            <= axis.to_target(axis.start)
            <= axis.to_target(axis.stop)
            <= axis.target + 1e-6
        )


def test_the_way_back_needs_no_torch():
    code = "import sys, hilum_preprocessing.spec.placement; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
