"""The guard by pixels: chest radiographs pass, their negatives and what is no radiograph are noticed, nothing is ever inverted."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from hilum_preprocessing import (
    NotAnalysable,
    PixelLimits,
    Reason,
    StoredValues,
    check_pixels,
    decode,
    look,
    pixel_flags,
)
from hilum_preprocessing.errors import Flag
from hilum_preprocessing.guard import pixels as pixel_guard
from hilum_preprocessing.resize.compiled import loaded
from testing.phantoms import phantom

LIMITS = PixelLimits()
DATA = os.environ.get("HILUM_TEST_DATA")


def flags(stored: StoredValues) -> tuple[str, ...]:
    return pixel_flags(look(stored), LIMITS)


def of(array: np.ndarray, bits: int = 12, **facts: bool) -> StoredValues:
    return StoredValues(
        array=array, bits_stored=bits, **{"is_signed": False, "is_monochrome1": False, **facts}
    )  # type: ignore[arg-type]


def negative(stored: StoredValues) -> StoredValues:
    return replace(stored, array=(1 << stored.bits_stored) - 1 - stored.array)


@pytest.mark.parametrize("size", [(1, 1), (1, 2), (3, 5), (96, 96), (150, 131)])
def test_the_span_is_that_of_numpys_percentiles(size: tuple[int, int]) -> None:
    array = np.random.default_rng(size[0]).integers(
        0, 4096, size, np.uint16
    )  # small enough that every pixel is a sample
    low, high = np.percentile(array, (1, 99))
    assert look(of(array)).span == pytest.approx((high - low) / 4095, rel=1e-12, abs=1e-12)


@pytest.mark.skipif(loaded()[0] is None, reason=f"the guard looks {loaded()[1]}")
@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    dtype=st.sampled_from(["u1", "i1", "u2", "i2"]),
    bits=st.integers(9, 16),
    shape=st.tuples(st.integers(1, 400), st.integers(1, 400)),
    shades=st.sampled_from([1, 2, 5, 1 << 16]),
    is_monochrome1=st.booleans(),
    is_mirrored=st.booleans(),
)
def test_compiled_statistics_are_numpys(
    dtype, bits, shape, shades, is_monochrome1, is_mirrored
) -> None:
    """To the bit where the compiler has no fused multiplications.

    One that has them is within rounding.
    """
    bits = bits if dtype[1] == "2" else 8
    lowest = -(1 << (bits - 1)) if dtype[0] == "i" else 0
    spread = (
        np.random.default_rng(bits)
        .normal(1 << (bits - 1), 1 << (bits - 3), shape)
        .clip(0, (1 << bits) - 1)
        .astype(int)
    )
    array = ((spread if shades == 1 << 16 else spread % shades) + lowest).astype(dtype)
    stored = of(
        array[:, ::-1] if is_mirrored else array,
        bits,
        is_signed=dtype[0] == "i",
        is_monochrome1=is_monochrome1,
    )
    found, wanted = astuple(look(stored)), astuple(pixel_guard._by_numpy(stored))
    assert found == (
        wanted if platform.machine() == "x86_64" else pytest.approx(wanted, rel=1e-9, abs=1e-9)
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_drawn_chest_passes_and_its_negative_is_noticed(seed: int) -> None:
    stored = decode(phantom.make_instance(seed, rows=512, columns=448))
    assert flags(stored) == ()
    assert Flag.LOOKS_INVERTED in flags(negative(stored))


def test_monochrome1_says_how_its_values_are_meant() -> None:
    stored = decode(phantom.make_instance(3, rows=512, columns=448))
    assert flags(replace(negative(stored), is_monochrome1=True)) == ()
    assert Flag.LOOKS_INVERTED in flags(replace(stored, is_monochrome1=True))


def test_signed_values_are_seen_as_the_same_picture() -> None:
    stored = decode(phantom.make_instance(4, rows=512, columns=448))
    shifted = (stored.array.astype(np.int32) - 2048).astype(np.int16)
    seen = look(replace(stored, array=shifted, is_signed=True))
    assert seen == look(stored)


@pytest.mark.parametrize(
    ("array", "flag"),
    [
        (np.tile(np.arange(100, 130, dtype=np.uint16), (200, 7)), Flag.LOW_CONTRAST),
        (np.tile(np.array([0, 3000], np.uint16), (200, 100)), Flag.FEW_LEVELS),
        (np.full((200, 200), 4095, np.uint16), Flag.SATURATED),
        (np.tile(np.linspace(0, 4095, 200).astype(np.uint16), (200, 1)), Flag.ASYMMETRIC),
        (np.zeros((100, 400), np.uint16), Flag.UNUSUAL_ASPECT),
        (np.zeros((400, 100), np.uint16), Flag.UNUSUAL_ASPECT),
    ],
)
def test_what_is_no_radiograph_is_noticed(array: np.ndarray, flag: Flag) -> None:
    assert flag in flags(of(array))


@pytest.mark.parametrize("shape", [(1, 1), (1, 5000), (3, 2), (2, 3)])
def test_tiny_pictures_have_statistics_too(shape: tuple[int, int]) -> None:
    seen = look(of(np.arange(shape[0] * shape[1], dtype=np.uint16).reshape(shape) % 4096))
    assert all(
        np.isfinite(value)
        for value in (seen.span, seen.entropy, seen.saturation, seen.symmetry, seen.spine_contrast)
    )


def test_a_site_may_refuse_what_it_flags() -> None:
    stored = negative(decode(phantom.make_instance(1, rows=512, columns=448)))
    with pytest.raises(NotAnalysable, match="looks_inverted") as refused:
        check_pixels(stored, LIMITS, ("looks_inverted", "saturated"))
    assert refused.value.reason is Reason.IMPLAUSIBLE_PIXELS
    before = stored.array.copy()
    assert Flag.LOOKS_INVERTED in check_pixels(stored, LIMITS)
    assert (stored.array == before).all(), "a doubt is a flag; nothing is inverted"


def _real_radiographs() -> Iterator[np.ndarray]:
    for path in sorted(Path(DATA or "", "nih_png").glob("*.png")):
        yield np.asarray(Image.open(path).convert("L"))


@pytest.mark.skipif(not DATA, reason="HILUM_TEST_DATA does not name a folder of test radiographs")
def test_the_rates_that_the_defaults_claim() -> None:
    seen = [(flags(of(array, 8)), flags(of(255 - array, 8))) for array in _real_radiographs()]
    assert len(seen) == 66
    assert [positive for positive, _ in seen if positive] == []
    assert sum(Flag.LOOKS_INVERTED in negative for _, negative in seen) == 63
