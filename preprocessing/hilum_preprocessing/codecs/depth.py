"""Words with more in them than the stored bits: an overlay, garbage, or a deeper picture.

Older objects keep overlays there, and some writers garbage: cleared, the picture is right. Or the
header understates the depth of the pixels: cleared, the picture wraps around, and is another one.
The places where neighbouring pixels differ in those bits tell the two apart. An overlay has its
edges anywhere, and the picture goes on beneath them; a picture that is deeper jumps by its whole
range there, and goes on without a jump where the bits are left in. Torch-free.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.codecs.bit_edges import bit_edges
from hilum_preprocessing.codecs.representation import require_sign
from hilum_preprocessing.errors import Flag, NotAnalysable, Reason
from hilum_preprocessing.header.pixel_header import PixelHeader

# Share of the words with a bit set at the bottom, compared with a picture full of noise.
_DENSE_SHARE: Final = 0.8
# A lossy codec overshoots far at sharp edges, in one pixel of ten thousand at most, and a little in
# white areas. A picture of another depth exceeds the range far and in many pixels.
OVERSHOOT_SHARE: Final = 1e-3
OVERSHOOT_OF_RANGE: Final = 64  # a 64th of it

Settled = tuple[NDArray[Any], tuple[Flag, ...]]

_CLEARED: Final = (Flag.HIGH_BITS_CLEARED,)


def settled(container: NDArray[Any], header: PixelHeader) -> Settled:
    """Stored values of unsigned words that have bits set outside of the stored ones, and flags.

    Cleared where those bits are an overlay, announced or not, or the same everywhere; clamped where
    a few pixels exceed by a 64th of the range; moved down where all words are left-justified
    although High Bit does not say so, and left where they are in the opposite case. Raises
    NotAnalysable (depth_contradicted) elsewhere.
    """
    cleared = _field(container, header)
    if not header.is_judged:
        return cleared, _CLEARED
    if (moved := _right_justified(container, header)) is not None:
        return moved, (Flag.BITS_STORED_DOUBTFUL,)
    words = _without_announced(container, header)
    whole = _down(as_values(words, header), header)
    if _may_lack_extension(whole, header):
        has_room = header.high_bit + 1 < 8 * words.itemsize
        require_sign(whole if has_room else _down(words, header), cleared, header)
        is_touched = _has_bits_below(container, header) or not np.array_equal(words, container)
        return cleared, _CLEARED if is_touched else ()
    if _is_same_above(words, header):
        require_sign(_down(words, header) & _stored_mask(words, header), cleared, header)
        return cleared, _CLEARED
    if bit_edges(whole, cleared, header).are_of_an_overlay and cleared.min() != cleared.max():
        return cleared, _CLEARED
    return _moved_or_clamped(container, words, header)


def _is_same_above(words: NDArray[Any], header: PixelHeader) -> bool:
    """Whether the bits above the stored ones are the same in every word."""
    above = words >> header.high_bit + 1
    return bool(above.min() == above.max())


def _moved_or_clamped(container: NDArray[Any], words: NDArray[Any], header: PixelHeader) -> Settled:
    if (clamped := _overshooting(container, header)) is not None:
        return clamped, (Flag.VALUES_CLAMPED,)
    if (moved := _left_justified(words, header)) is not None:
        return moved, (Flag.BITS_STORED_DOUBTFUL,)
    seen_header = f"Bits Stored {header.bits_stored}, High Bit {header.high_bit}"
    raise NotAnalysable(
        Reason.DEPTH_CONTRADICTED, f"pixels use {_used_bits(words, header)} bits; {seen_header}"
    )


def _used_bits(words: NDArray[Any], header: PixelHeader) -> int:
    """As many as the values need, with their sign where they have one."""
    if not header.is_signed:
        return int(words.max()).bit_length()
    values = words.view(_signed(words))
    return max(int(values.max()), ~int(values.min())).bit_length() + 1


def value_range(header: PixelHeader) -> tuple[int, int]:
    """Smallest and largest value that Bits Stored can hold."""
    half = 1 << header.bits_stored - 1
    return (-half, half - 1) if header.is_signed else (0, 2 * half - 1)


def _field(container: NDArray[Any], header: PixelHeader) -> NDArray[Any]:
    """The stored bits of each word, sign extended (PS3.5 8.1.1)."""
    shift = header.high_bit + 1 - header.bits_stored
    if header.is_signed:
        spare = 8 * container.itemsize - header.bits_stored
        # Up to the top, then down again: the arithmetic shift brings the sign along.
        return np.asarray(as_values(container << (spare - shift), header) >> spare)
    return np.asarray((container >> shift) & _stored_mask(container, header))


def _stored_mask(words: NDArray[Any], header: PixelHeader) -> NDArray[Any]:
    """As many ones as there are stored bits, at the bottom of a word."""
    return np.array((1 << header.bits_stored) - 1, words.dtype)


def _down(words: NDArray[Any], header: PixelHeader) -> NDArray[Any]:
    """With the stored bits at the bottom, and those above them left in."""
    shift = header.high_bit + 1 - header.bits_stored
    return words >> shift if shift else words


def as_values(words: NDArray[Any], header: PixelHeader) -> NDArray[Any]:
    """The same words, read with a sign where the header gives one."""
    return words.view(_signed(words)) if header.is_signed else words


def _signed(words: NDArray[Any]) -> str:
    return f"{words.dtype.byteorder}i{words.itemsize}"


def _without_announced(container: NDArray[Any], header: PixelHeader) -> NDArray[Any]:
    """Announced overlays above the stored bits taken out, as if they had never been there.

    The same array where there are none.
    """
    above = (1 << 8 * container.itemsize) - (1 << header.high_bit + 1)
    mask = np.array(header.overlay_bits & above, container.dtype)
    if not mask:
        return container
    cleared: NDArray[Any] = container & ~mask
    if not header.is_signed:
        return cleared
    is_negative = (container >> header.high_bit & 1).astype(bool)
    extended: NDArray[Any] = np.where(is_negative, cleared | mask, cleared)
    return extended


def _may_lack_extension(whole: NDArray[Any], header: PixelHeader) -> bool:
    """Whether all words fit with or without their sign extended.

    The standard demands neither (PS3.5 8.1.1).
    """
    low = value_range(header)[0]
    return int(whole.min()) >= low and int(whole.max()) < 1 << header.bits_stored


def _has_bits_below(container: NDArray[Any], header: PixelHeader) -> bool:
    below = (1 << header.high_bit + 1 - header.bits_stored) - 1
    return bool(below and np.any(container & np.array(below, container.dtype)))


def _overshooting(container: NDArray[Any], header: PixelHeader) -> NDArray[Any] | None:
    """The overshoot of interpolation and lossy codecs: below 0 it is two's complement."""
    low, high = value_range(header)
    values = container.view(_signed(container))
    reach = (1 << header.bits_stored) // OVERSHOOT_OF_RANGE
    if (
        header.high_bit != header.bits_stored - 1
        or values.min() < low - reach
        or values.max() > high + reach
    ):
        return None
    if np.count_nonzero((values < low) | (values > high)) > OVERSHOOT_SHARE * values.size:
        return None
    within: NDArray[Any] = np.clip(values, low, high).astype(header.dtype)
    return within


def _left_justified(words: NDArray[Any], header: PixelHeader) -> NDArray[Any] | None:
    """Words whose stored bits are on top.

    They use the highest bit of their container, and none of the bits at its bottom, as many as are
    spare.
    """
    if header.high_bit != header.bits_stored - 1:
        return None
    spare = 8 * words.itemsize - header.bits_stored
    values = as_values(words, header)
    top = 1 << 8 * words.itemsize - (2 if header.is_signed else 1)
    is_used = int(values.max()) >= top or int(values.min()) < -top
    used_bits = int(np.bitwise_or.reduce(words, axis=None))
    is_empty_below = not used_bits & ((1 << spare) - 1)
    return values >> spare if is_used and is_empty_below else None


def _right_justified(container: NDArray[Any], header: PixelHeader) -> NDArray[Any] | None:
    """Words whose stored bits are at the bottom, although High Bit says otherwise.

    They fit into Bits Stored as they are, and their lowest bits hold a picture's detail.
    """
    shift = header.high_bit + 1 - header.bits_stored
    if not shift or header.overlay_bits & ((1 << shift) - 1):
        return None
    values = as_values(container, header)
    low, high = value_range(header)
    if int(values.min()) < low or int(values.max()) > high:
        return None
    return values if _has_detail_below(container, shift) else None


def _has_detail_below(words: NDArray[Any], shift: int) -> bool:
    """Whether the lowest bits are set nearly as often as those of a picture with noise."""
    detail = np.count_nonzero(words & np.array((1 << shift) - 1, words.dtype))
    least_share = _DENSE_SHARE * (1 - 2.0**-shift)
    return bool(detail > 0 and detail >= least_share * np.count_nonzero(words))
