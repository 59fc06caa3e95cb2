"""Wavelet codestreams at a lower resolution: the traps that raise no error."""

from __future__ import annotations

import io

import imagecodecs
import numpy as np
import pytest
from PIL import Image
from pydicom.uid import HTJ2K, JPEG2000, HTJ2KLossless, JPEG2000Lossless, JPEGLSLossless

from hilum_preprocessing import Flag, NotAnalysable, Reason, decode, reducible
from tests.support.objects.encoders import ENCODERS, enclosed, encoded
from tests.support.objects.radiograph import radiograph, scene


def edges(bits: int) -> np.ndarray:
    """A collimator: black, then white, with edges in the middle of blocks of every size."""
    array = np.zeros((160, 144), np.uint16)
    array[21:139, 19:123] = (1 << bits) - 1
    return array


@pytest.mark.parametrize("reduce", [1, 2, 3])
@pytest.mark.parametrize(
    ("uid", "bits"),
    [
        *((JPEG2000Lossless, bits) for bits in (8, 10, 12, 15)),
        *((JPEG2000, bits) for bits in (12, 15)),
        *((HTJ2KLossless, bits) for bits in (9, 12, 15)),
        *((HTJ2K, bits) for bits in (12, 15)),
    ],
)
def test_nothing_overshoots_at_edges(uid, bits, reduce):
    """Trap 14: the low-pass band undershoots, which unsigned words show as 65,2xx."""
    array = edges(bits).astype(np.uint8 if bits == 8 else np.uint16)
    stored = decode(encoded(array, uid, bits), reduce=reduce)
    assert stored.array.dtype == array.dtype
    assert stored.array.max() == (1 << bits) - 1
    assert stored.array.min() == 0
    inside = stored.array[(40 >> reduce) : (120 >> reduce), (40 >> reduce) : (110 >> reduce)]
    assert inside.min() > (1 << bits) * 0.97
    rows, columns = (np.arange(length) << reduce for length in stored.array.shape)
    is_black = (rows[:, None] < 21 - (1 << reduce)) | (columns[None, :] < 19 - (1 << reduce))
    assert stored.array[is_black].max() < (1 << bits) / 2


def test_a_codestream_deeper_than_its_header_is_not_clamped_to_it():
    for uid in (JPEG2000Lossless, HTJ2KLossless):
        array = scene(64, 48, 12)
        with pytest.raises(NotAnalysable) as refused:
            decode(enclosed(ENCODERS[uid].encode(array, 12), array, uid, 10), reduce=1)
        assert refused.value.reason is Reason.CODESTREAM_MISMATCH


@pytest.mark.parametrize(("uid", "bits"), [(JPEG2000Lossless, 10), (JPEG2000Lossless, 12)])
def test_pillow_s_shift_is_taken_back(uid, bits):
    """Trap 13: a codestream of 12 bits comes back four bits up, one of 10 six."""
    array = scene(64, 48, bits)
    codestream = ENCODERS[uid].encode(array, bits)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(codestream))), array << (16 - bits))
    level = np.full((64, 48), 3 << (bits - 3), np.uint16)
    assert np.array_equal(decode(encoded(level, uid, bits), reduce=1).array, level[:32, :24])


@pytest.mark.parametrize("reduce", [1, 2, 3])
@pytest.mark.parametrize("uid", [JPEG2000Lossless, HTJ2KLossless])
def test_samples_lie_on_the_even_grid(uid, reduce):
    """Trap 15: sample k shows pixel 2^r * k, not the middle of 2^r pixels.

    A ramp tells the two apart.
    """
    step = 2
    array = np.ascontiguousarray(np.broadcast_to(np.arange(96) * step, (80, 96)).astype(np.uint16))
    stored = decode(encoded(array, uid, 12), reduce=reduce)
    assert (stored.reduced, stored.size, stored.flags) == (reduce, (80, 96), (Flag.REDUCED_DECODE,))
    inner = slice(2, -2)
    expected = array[:: 1 << reduce, :: 1 << reduce][inner, inner].astype(int)
    assert np.abs(stored.array[inner, inner] - expected).max() <= step
    middle = expected + step * ((1 << reduce) - 1) / 2
    assert (
        np.abs(stored.array[inner, inner] - expected).mean()
        < np.abs(stored.array[inner, inner] - middle).mean()
    )


@pytest.mark.parametrize(("rows", "columns"), [(45, 38), (64, 64), (33, 71)])
@pytest.mark.parametrize("reduce", [1, 2])
@pytest.mark.parametrize("uid", [JPEG2000Lossless, HTJ2KLossless])
def test_odd_sizes_round_up(uid, rows, columns, reduce):
    array = scene(rows, columns, 12)
    side = 1 << reduce
    assert decode(encoded(array, uid, 12), reduce=reduce).array.shape == (
        -(-rows // side),
        -(-columns // side),
    )


def test_more_levels_than_the_codestream_has():
    """Trap 16."""
    array = scene(64, 48, 12)
    dataset = enclosed(
        bytes(imagecodecs.jpeg2k_encode(array, codecformat="J2K", bitspersample=12, resolutions=2)),
        array,
        JPEG2000,
        12,
    )
    assert reducible(dataset) == 1
    assert decode(dataset, reduce=1).array.shape == (32, 24)
    with pytest.raises(ValueError, match="1 levels"):
        decode(dataset, reduce=2)


def test_what_cannot_be_reduced():
    array = scene(64, 48, 12)
    assert reducible(encoded(array, JPEG2000Lossless, 12)) > 0
    assert (
        reducible(enclosed(ENCODERS[HTJ2KLossless].encode(array, 12), array, HTJ2KLossless, 12)) > 0
    )
    assert reducible(encoded(array.astype(np.uint8), HTJ2KLossless, 8)) == 0, "8 bits in 8, too"
    assert reducible(encoded(array.astype(np.int16), JPEG2000Lossless, 12)) == 0, "signed"
    assert reducible(encoded(scene(64, 48, 16), HTJ2KLossless, 16)) == 0, (
        "16 bits: an undershoot looks like white"
    )
    assert reducible(encoded(array, JPEGLSLossless, 12)) == 0
    assert reducible(radiograph(array)) == 0
    with pytest.raises(ValueError, match="one resolution"):
        decode(encoded(array, JPEGLSLossless, 12), reduce=1)


@pytest.mark.parametrize("uid", [JPEG2000Lossless, JPEG2000, HTJ2KLossless, HTJ2K])
def test_a_cut_fails_at_a_lower_resolution_too(uid):
    """Pillow and OpenJPH would read the first levels and never miss the rest."""
    array = scene(64, 48, 12)
    whole = ENCODERS[uid].encode(array, 12)
    for length in range(120, len(whole) - 3, len(whole) // 20):
        with pytest.raises(NotAnalysable) as refused:
            decode(enclosed(whole[:length], array, uid, 12), reduce=1)
        assert refused.value.reason is Reason.TRUNCATED_PIXEL_DATA
