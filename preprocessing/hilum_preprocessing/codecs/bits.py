"""From container words and decoded samples to stored values.

Masks, signs, and samples that do not fit. Torch-free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.codecs.depth import (
    OVERSHOOT_OF_RANGE,
    OVERSHOOT_SHARE,
    as_values,
    settled,
    value_range,
)
from hilum_preprocessing.codecs.representation import (
    require_byte_order,
    require_no_sign,
    require_sign,
)
from hilum_preprocessing.errors import Flag, NotAnalysable, Reason
from hilum_preprocessing.header.pixel_header import PixelHeader
from hilum_preprocessing.resize.compiled import extremes


@dataclass(frozen=True, slots=True)
class Decoded:
    """One frame: stored values (rows, columns) or (rows, columns, samples), and its flags.

    `is_rgb`: the codec has already turned luminance and chrominance into RGB. `ends`: smallest and
    largest stored value, where the codec looked for them.
    """

    array: NDArray[Any]
    flags: tuple[Flag, ...] = ()
    is_rgb: bool = False
    ends: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """The codestream's own description of its samples; the header may contradict it.

    `reach`: how far a sample may be off at most; None: a lossy codestream does not say.
    """

    precision: int
    is_signed: bool = False
    is_lossy: bool = False
    reach: int | None = None


def stored_bits(container: NDArray[Any], header: PixelHeader) -> Decoded:
    """The stored bits of each unsigned container word, sign extended (PS3.5 8.1.1).

    Words that fit are not copied. Where bits outside of the stored ones are set, `depth` decides:
    flagged, or NotAnalysable (depth_contradicted).
    """
    values = as_values(container, header)
    if header.bits_stored == 8 * container.itemsize:
        return _filling(container, values, header)
    if header.high_bit == header.bits_stored - 1:
        ends = _plane_extremes(values)
        if _is_within(ends or _ends(values, header), header):
            require_no_sign(values, header)
            return Decoded(values, ends=ends)
    return Decoded(*settled(container, header))


def _filling(container: NDArray[Any], values: NDArray[Any], header: PixelHeader) -> Decoded:
    """Words without spare bits, which nothing but the picture can contradict."""
    if header.is_judged:
        require_byte_order(container)
    require_sign(container, values, header)
    require_no_sign(values, header)
    return Decoded(values)


def from_samples(array: NDArray[Any], samples: Samples, header: PixelHeader) -> Decoded:
    """Decoded samples as stored values of the header's type.

    Raises NotAnalysable (codestream_mismatch) when they are no such values.

    Samples as wide as the container are container words. Narrower ones are values; unsigned ones
    under Pixel Representation 1 are their two's complement, as every DICOM toolkit reads them.
    """
    if array.shape != header.shape:
        raise NotAnalysable(
            Reason.CODESTREAM_MISMATCH, f"decoded to {array.shape}, header {header.shape}"
        )
    if _are_container_words(samples, header):
        return stored_bits(array, header)
    values = array
    if header.is_signed and not samples.is_signed:
        values = _two_s_complement(array, samples.precision, header)
    ends = _plane_extremes(values)
    fitting, is_clamped = _fitting(values, header, samples, ends)
    require_no_sign(fitting, header)
    return Decoded(
        fitting.astype(header.dtype, copy=False),
        _flags(samples, header, is_clamped=is_clamped),
        ends=None if is_clamped else ends,
    )


def _are_container_words(samples: Samples, header: PixelHeader) -> bool:
    is_as_wide = samples.precision == header.bits_allocated
    return is_as_wide and not samples.is_lossy and not samples.is_signed


def _flags(samples: Samples, header: PixelHeader, *, is_clamped: bool) -> tuple[Flag, ...]:
    seen = {
        Flag.VALUES_CLAMPED: is_clamped,
        Flag.BITS_STORED_DOUBTFUL: samples.precision < header.bits_stored,
    }
    return tuple(flag for flag, is_seen in seen.items() if is_seen)


def _two_s_complement(array: NDArray[Any], precision: int, header: PixelHeader) -> NDArray[Any]:
    spare = 8 * array.itemsize - precision
    values = (array << spare).view(f"i{array.itemsize}") >> spare
    if int(array.max()) >> precision - 1:
        require_sign(array, values, replace(header, bits_stored=precision, high_bit=precision - 1))
    return values


def _fitting(
    values: NDArray[Any], header: PixelHeader, samples: Samples, ends: tuple[int, int] | None
) -> tuple[NDArray[Any], bool]:
    """Values within Bits Stored, and whether some had to be clamped to it."""
    least, most = ends or _ends(values, header)
    if _is_within((least, most), header):
        return values, False
    low, high = value_range(header)
    if not _is_overshoot(values, header, samples, max(low - least, most - high)):
        sign = "signed" if header.is_signed else "unsigned"
        raise NotAnalysable(
            Reason.CODESTREAM_MISMATCH,
            f"samples from {least} to {most}, {header.bits_stored} bits {sign}",
        )
    return np.clip(values, low, high), True


def _is_overshoot(
    values: NDArray[Any], header: PixelHeader, samples: Samples, furthest: int
) -> bool:
    """Whether a lossy codec explains the values beyond Bits Stored: they are few, or near.

    `furthest`: how far the furthest one is beyond.
    """
    if not samples.is_lossy:
        return False
    reach = samples.reach
    if reach is None:
        reach = (1 << header.bits_stored) // OVERSHOOT_OF_RANGE
    if furthest <= reach:
        return True
    low, high = value_range(header)
    outside = np.count_nonzero((values < low) | (values > high))
    return bool(outside / values.size <= OVERSHOOT_SHARE)


def _plane_extremes(values: NDArray[Any]) -> tuple[int, int] | None:
    """Smallest and largest value of one sample a pixel, by compiled code."""
    return extremes(values) if values.ndim == 2 else None


def _is_within(ends: tuple[int, int], header: PixelHeader) -> bool:
    """Whether Bits Stored can hold all values from the smallest to the largest."""
    low, high = value_range(header)
    return low <= ends[0] and ends[1] <= high


def _ends(values: NDArray[Any], header: PixelHeader) -> tuple[int, int]:
    """Smallest and largest value, as far as the type leaves them a choice.

    An end that cannot be outside of Bits Stored is not looked for.
    """
    low, high = value_range(header)
    limits = np.iinfo(values.dtype)
    least = low if low <= limits.min else int(values.min())
    return least, high if limits.max <= high else int(values.max())


def without_high_bit(header: PixelHeader) -> PixelHeader:
    """The same with the stored bits at the bottom.

    Every codec but the uncompressed ones puts them there.
    """
    return replace(header, high_bit=header.bits_stored - 1)
