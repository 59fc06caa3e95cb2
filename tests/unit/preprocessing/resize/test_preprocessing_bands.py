"""Banded products are the dense ones, the cache is bounded, and stored values come through without a copy or a changed bit."""

from __future__ import annotations

import warnings
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.levels.extent import counts, extent
from hilum_preprocessing.levels.lines import Line, line_of
from hilum_preprocessing.levels.tables import LevelTable
from hilum_preprocessing.resize.axes import Axis
from hilum_preprocessing.resize.bands import MATRICES, bands
from hilum_preprocessing.resize.bounded import BoundedCache
from hilum_preprocessing.resize.kernels import HALF, as_pillow_integers, taps
from hilum_preprocessing.resize.resample import pixels_of, resize
from hilum_preprocessing.spec.operations import Resize
from hilum_preprocessing.tensor.stored_pixels import pixels_of_stored, stored_extremes, words_of
from tests.support.objects.matrices import dense

CPU = torch.device("cpu")
KERNELS = ["skimage", "pil_bilinear_aa", "pil_bicubic_aa", "pil_lanczos", "cv2_linear", "nearest"]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(kernel=st.sampled_from(KERNELS), n_in=st.integers(1, 400), n_out=st.integers(1, 90))
def test_the_blocks_hold_the_whole_matrix(kernel, n_in, n_out):
    made = bands(Axis(kernel, n_in, n_out), "float", CPU)
    samples = torch.zeros(n_in, made.before + n_in + made.after)
    samples[:, made.before : made.before + n_in] = torch.eye(n_in)
    product = torch.bmm(made.weights, made.windows(samples)).reshape(made.outputs, n_in)[:n_out]
    expected = dense(taps(kernel, n_in, n_out), n_in)
    assert np.abs(product.numpy() - expected).max() < 1e-6
    assert np.abs(made.sums.numpy() - expected.sum(axis=1)).max() < 1e-6


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    kernel=st.sampled_from(KERNELS),
    before=st.tuples(st.integers(1, 300), st.integers(1, 300)),
    after=st.tuples(st.integers(1, 60), st.integers(1, 60)),
)
def test_a_resize_is_the_dense_product(kernel, before, after):
    picture = np.random.default_rng(0).uniform(-1024, 1024, before)
    found = resize(pixels_of(torch.from_numpy(picture)), Resize(*after, kernel=kernel))
    down, across = (
        dense(taps(kernel, n_in, n_out), n_in) for n_in, n_out in zip(before, after, strict=True)
    )
    assert np.abs(found.numpy() - down @ picture @ across.T).max() < 0.01


@pytest.mark.parametrize(("n_in", "parts"), [(2048, 2), (40_000, 1)])
def test_whole_weights_are_kept_to_the_last_bit(n_in, parts):
    """In two float32 halves while their sums are exact, else in float64."""
    made = bands(Axis("pil_bicubic_aa", n_in, 224), "pillow", CPU)
    assert made.whole_parts == parts
    held = (
        made.weights[:, :8].double() * HALF + made.weights[:, 8:].double()
        if parts == 2
        else made.weights
    )
    expected = as_pillow_integers(taps("pil_bicubic_aa", n_in, 224)).weights.sum(axis=1)
    assert np.array_equal(held.sum(dim=2).reshape(-1)[:224].numpy(), expected)
    if parts == 2:
        sums = 255 * torch.stack(
            [made.weights[:, :8].abs().sum(2), made.weights[:, 8:].abs().sum(2)]
        )
        assert sums.max() < 2**24


def test_half_precision_keeps_within_a_third_of_a_grey_level():
    """What a GPU may trade for speed: one 8-bit level is 8 of 2048."""
    picture = torch.from_numpy(
        np.random.default_rng(1).uniform(-1024, 1024, (500, 400)).astype(np.float32)
    )
    op = Resize(56, 48, kernel="skimage", clip_to_input=True)
    exact, half = resize(pixels_of(picture), op), resize(pixels_of(picture), op, "fp16")
    assert 0 < (exact - half).abs().max() < 8 / 3


def test_a_cache_forgets_what_was_used_longest_ago():
    cache: BoundedCache[int, bytes] = BoundedCache(100, len)
    for key in (1, 2, 3):
        cache.get(key, lambda: bytes(30))
    cache.get(1, lambda: pytest.fail("it is there"))
    cache.get(4, lambda: bytes(30))
    made: list[int] = []
    for key in (1, 3, 4, 2):
        cache.get(key, lambda key=key: made.append(key) or bytes(30))
    assert made == [2]
    cache.get(5, lambda: bytes(101))
    assert (len(cache), cache.held_bytes) == (3, 90), "what is larger than the limit is not kept"


def test_a_hundred_thousand_shapes_do_not_fill_the_memory():
    """Trap 47.

    Matrices of 3000 shapes are made; what is held for the others is as large as theirs.
    """
    MATRICES.clear()
    for side in range(200, 3200):
        bands(Axis("skimage", side, 16), "float", CPU)
    largest = bands(Axis("skimage", 3200, 16), "float", CPU).held_bytes
    assert MATRICES.held_bytes <= MATRICES.limit_bytes
    assert MATRICES.held_bytes == sum(value.held_bytes for value in MATRICES._values.values())
    cache: BoundedCache[int, int] = BoundedCache(MATRICES.limit_bytes, lambda size: size)
    for shape in range(100_000):
        cache.get(shape, lambda: largest)
    assert cache.held_bytes <= MATRICES.limit_bytes
    assert len(cache) < 100_000
    assert bands(Axis("skimage", 65535, 224), "float", CPU).held_bytes < 4_000_000


# --- stored values
# -------------------------------------------------------------------------------------------------------


def table(levels: np.ndarray, first: int = 0) -> LevelTable:
    return LevelTable(first, levels.astype(np.float64), slice(0, len(levels)))


@pytest.mark.parametrize("slope", [0.5001, -3.0])
@pytest.mark.parametrize(
    ("low", "high"), [(None, None), (700.3, None), (None, 3000.0), (1000.0, 2000.5)]
)
@pytest.mark.parametrize("first", [0, -2048])
def test_a_clamped_line_is_found_in_its_table(slope, low, high, first):
    stored = np.arange(first, first + 4096, dtype=np.float64)
    ends = [None if end is None else end + first for end in (low, high)]
    levels = slope * (np.clip(stored, *ends) if low or high else stored) + 17
    line = line_of(levels, first)
    assert line is not None
    assert (line.low is None, line.high is None) == (low is None, high is None)
    found = slope_of(line, stored)
    assert np.abs(found - levels).max() < 1e-9


def slope_of(line: Line, stored: np.ndarray) -> np.ndarray:
    clipped = (
        stored if line.low is None and line.high is None else np.clip(stored, line.low, line.high)
    )
    return line.slope * clipped + line.offset


def test_what_is_no_line_is_not_taken_for_one():
    stored = np.arange(4096.0)
    curved = np.tanh((stored - 2000) / 1000)
    assert line_of(curved, 0) is None
    assert line_of(np.rint(stored / 16), 0) is None
    assert line_of(np.where(stored == 3000, 2999.999, stored), 0) is None
    assert line_of(np.where(stored < 2000, 0.0, 1.0), 0) is None
    assert line_of(np.abs(stored - 2048)[:4097], 0) is None, "as high at both ends"
    assert line_of(np.array([2.0, 1.0, 0.0, 1.0, 2.0]), 0) is None
    assert line_of(np.array([7.0]), 5) == line_of(np.array([7.0, 7.0]), 5) == Line(0.0, 7.0)


TABLES = {
    "line": lambda stored: 0.5 * stored - 3,
    "window": lambda stored: np.clip(stored * 0.7, 100, 1200),
    "curve": lambda stored: 1000 * np.sqrt(np.abs(stored)),
    "hill": lambda stored: 1000 - np.abs(stored - (stored[0] + stored[-1]) / 2),
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    ("dtype", "bits"), [("u1", 8), ("u2", 12), ("u2", 16), ("i2", 12), ("i2", 16), ("i1", 8)]
)
def test_levels_are_those_of_the_table(kind, dtype, bits):
    first = -(1 << (bits - 1)) if dtype.startswith("i") else 0
    array = np.random.default_rng(0).integers(first, first + (1 << bits), (37, 53)).astype(dtype)
    made = table(TABLES[kind](np.arange(first, first + (1 << bits), dtype=np.float64)), first)
    expected = made.values[array.astype(int) - first]
    for is_uint8 in (False, True):
        pixels = pixels_of_stored(
            array,
            words_of(array, CPU),
            made,
            (int(array.min()), int(array.max())),
            is_uint8=is_uint8,
        )
        found = torch.empty(array.shape)
        pixels.fill(found, slice(0, 37))
        found = found * pixels.line[0] + pixels.line[1]
        assert np.abs(found.numpy() - expected).max() <= 1e-6 * np.abs(made.values).max()
        assert pixels.extremes(None) == (expected.min(), expected.max())


def test_half_precision_sees_levels_and_no_raw_counts():
    """Trap 35: 65535 is infinite in fp16."""
    array = np.linspace(0, 65535, 90 * 70).astype(np.uint16).reshape(90, 70)
    made = table(np.arange(65536.0) / 32 - 1024)
    pixels = pixels_of_stored(array, words_of(array, CPU), made, (0, 65535), "fp16")
    found = resize(pixels, Resize(8, 8, kernel="torch_aa"), "fp16")
    assert torch.isfinite(found).all()
    exact = resize(
        pixels_of_stored(array, words_of(array, CPU), made, (0, 65535)),
        Resize(8, 8, kernel="torch_aa"),
    )
    assert (found - exact).abs().max() < 2


@pytest.mark.parametrize(
    ("dtype", "ends"),
    [
        ("u2", (3, 65000)),
        ("u2", (40000, 60000)),
        ("u2", (5, 4000)),
        ("i2", (-9, 12)),
        ("u1", (1, 250)),
    ],
)
def test_smallest_and_largest_stored_value(dtype, ends):
    array = np.full((50, 70), sum(ends) // 2, dtype)
    array[20, 30], array[40, 60] = ends
    assert stored_extremes(array) == ends
    assert stored_extremes(array[10:45, 20:65]) == ends


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2"])
@pytest.mark.parametrize(
    "padding", [None, (0, 0), (-5, 20), (90, 127), (100, 100), (127, 127), (-128, -120), (30, 31)]
)
def test_the_extent_leaves_padding_out(dtype, padding):
    low, high = (-128, 127) if dtype.startswith("i") else (0, 127)
    array = np.random.default_rng(2).integers(low, high + 1, (150, 90)).astype(dtype)
    array[:, :40] = 0 if padding is None else max(low, padding[0])
    kept = array if padding is None else array[(array < padding[0]) | (array > padding[1])]
    assert extent(array, padding) == (kept.min(), kept.max())
    assert extent(array, padding, (int(array.min()), int(array.max()))) == (kept.min(), kept.max())


@pytest.mark.parametrize(("dtype", "first"), [("u1", 0), ("i2", -2048)])
def test_stored_values_are_counted(dtype, first):
    array = np.random.default_rng(3).integers(first, first + 200, (150, 33)).astype(dtype)
    found = counts(array, first, 4096)
    assert found.sum() == array.size
    assert {first + index: count for index, count in enumerate(found.tolist()) if count} == Counter(
        array.ravel().tolist()
    )


def test_nothing_but_padding_is_no_picture():
    with pytest.raises(NotAnalysable) as ended:
        extent(np.array([[3, 4], [5, 4]], np.uint16), (3, 5))
    assert ended.value.reason is Reason.CONSTANT_IMAGE


def test_read_only_memory_is_neither_copied_nor_warned_of():
    content = np.arange(600, dtype=np.uint16).tobytes()
    array = np.frombuffer(content, np.uint16).reshape(20, 30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        words = words_of(array, CPU)
    assert words.data_ptr() == array.__array_interface__["data"][0]
    assert np.array_equal(words.numpy(), array)
