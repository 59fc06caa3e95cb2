"""From container words and decoded samples to stored values: masks, signs, and samples that do not fit. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.compiled import extremes
from hilum_preprocessing.errors import Flag, NotAnalysable, Reason
from hilum_preprocessing.header import PixelHeader

# A lossy codec overshoots far at sharp edges, in a pixel of ten thousand at most, and a little wherever a picture is white;
# a codestream of another depth exceeds far and in many.
_OVERSHOOT_SHARE: Final = 1e-3
_OVERSHOOT_OF_RANGE: Final = 64  # a 64th of it


@dataclass(frozen=True, slots=True)
class Decoded:
    """One frame: stored values (rows, columns) or (rows, columns, samples), and what was seen on the way.

    `is_rgb`: the codec has already turned luminance and chrominance into RGB. `ends`: smallest and largest stored value, where they were
    looked for.
    """

    array: NDArray[Any]
    flags: tuple[Flag, ...] = ()
    is_rgb: bool = False
    ends: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """What a codestream says of its samples, which the data set's header may contradict.

    `reach`: how far a sample may be off at most; None: a lossy codestream does not say.
    """

    precision: int
    is_signed: bool = False
    is_lossy: bool = False
    reach: int | None = None


def stored_bits(container: NDArray[Any], header: PixelHeader) -> Decoded:
    """The stored bits of each unsigned container word, sign extended (PS3.5 8.1.1); flagged when bits outside of them were set.

    Older objects keep overlays, others garbage, in the bits that are not stored. A container that is clean is not copied.
    """
    shift = header.high_bit + 1 - header.bits_stored
    spare = 8 * container.itemsize - header.bits_stored
    if header.is_signed:
        signed = f"{container.dtype.byteorder}i{container.itemsize}"
        # Up to the top, then down again: the arithmetic shift brings the sign along.
        return Decoded((container << (spare - shift)).view(signed) >> spare if spare else container.view(signed))
    mask = (1 << header.bits_stored) - 1
    ends = extremes(container) if spare and shift == 0 and container.ndim == 2 else None
    if spare == 0 or (shift == 0 and (ends[1] if ends else int(container.max())) <= mask):
        return Decoded(container, ends=ends)
    is_cleared = bool(np.any(container & np.array(~(mask << shift) & ((1 << 8 * container.itemsize) - 1), container.dtype)))
    flags = (Flag.HIGH_BITS_CLEARED,) if is_cleared else ()
    return Decoded((container >> shift) & np.array(mask, container.dtype), flags)


def from_samples(array: NDArray[Any], samples: Samples, header: PixelHeader) -> Decoded:
    """Decoded samples as stored values of the header's type. Raises NotAnalysable (codestream_mismatch) when they are no such values.

    Samples as wide as the container are container words. Narrower ones are values; unsigned ones under Pixel Representation 1 are
    their two's complement, as every DICOM toolkit reads them.
    """
    if array.shape != header.shape:
        raise NotAnalysable(Reason.CODESTREAM_MISMATCH, f"decoded to {array.shape}, header {header.shape}")
    if samples.precision == header.bits_allocated and not samples.is_lossy and not samples.is_signed:
        return stored_bits(array, header)
    values = array if samples.is_signed or not header.is_signed else _sign_extended(array, samples.precision)
    ends = extremes(values) if values.ndim == 2 else None
    fitting, is_clamped = _fitting(values, header, samples, ends)
    seen = {Flag.VALUES_CLAMPED: is_clamped, Flag.BITS_STORED_DOUBTFUL: samples.precision < header.bits_stored}
    flags = tuple(flag for flag, is_seen in seen.items() if is_seen)
    return Decoded(fitting.astype(header.dtype, copy=False), flags, ends=None if is_clamped else ends)


def _sign_extended(array: NDArray[Any], precision: int) -> NDArray[Any]:
    spare = 8 * array.itemsize - precision
    return (array << spare).view(f"i{array.itemsize}") >> spare


def _fitting(values: NDArray[Any], header: PixelHeader, samples: Samples, ends: tuple[int, int] | None) -> tuple[NDArray[Any], bool]:
    """Values within Bits Stored, and whether some had to be clamped to it."""
    low, high = (
        (-(1 << (header.bits_stored - 1)), (1 << (header.bits_stored - 1)) - 1) if header.is_signed else (0, (1 << header.bits_stored) - 1)
    )
    least, most = ends or _ends(values, low, high)
    if low <= least and most <= high:
        return values, False
    outside = np.count_nonzero((values < low) | (values > high)) / values.size
    reach = (1 << header.bits_stored) // _OVERSHOOT_OF_RANGE if samples.reach is None else samples.reach
    is_near = samples.is_lossy and (outside <= _OVERSHOOT_SHARE or (low - least <= reach and most - high <= reach))
    if not is_near:
        seen = f"samples from {least} to {most}, {header.bits_stored} bits {'signed' if header.is_signed else 'unsigned'}"
        raise NotAnalysable(Reason.CODESTREAM_MISMATCH, seen)
    return np.clip(values, low, high), True


def _ends(values: NDArray[Any], low: int, high: int) -> tuple[int, int]:
    """Smallest and largest value, as far as the type leaves them a choice: an end that it cannot go beyond is not looked for."""
    limits = np.iinfo(values.dtype)
    least = low if low <= limits.min else int(values.min())
    return least, high if limits.max <= high else int(values.max())


def without_high_bit(header: PixelHeader) -> PixelHeader:
    """The same with the stored bits at the bottom, where every codec but the uncompressed ones puts them."""
    return replace(header, high_bit=header.bits_stored - 1)
