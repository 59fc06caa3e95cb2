"""JPEG 2000 and High-Throughput JPEG 2000, at full or at a reduced resolution.

Torch-free; the decoders hold no lock.

OpenJPEG and OpenJPH refuse a codestream that is cut within a packet. Of one that is cut between
two, OpenJPEG is asked with bytes behind it (`extended`). Neither can see a damaged bit within a
code-block: the codestream has no checksum.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import imagecodecs
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hilum_preprocessing.codecs.bits import Decoded, Samples, from_samples, without_high_bit
from hilum_preprocessing.codecs.codestream import (
    J2kHeader,
    TilePart,
    compare,
    extended,
    raw,
    read_header,
    tile_parts,
    without_padding,
)
from hilum_preprocessing.codecs.unraised import dropped_exceptions
from hilum_preprocessing.errors import Flag, NotAnalysable, Reason
from hilum_preprocessing.header.encapsulation import Codestream
from hilum_preprocessing.header.pixel_header import PixelHeader

# In pixels of this depth an undershoot of the low-pass band cannot be told from white.
_WORD_BITS: Final = 16
# It takes any buffer, although its annotation names bytes.
_JPEG2K: Final[Callable[..., Any]] = imagecodecs.jpeg2k_decode
_HTJ2K: Final[Callable[..., Any]] = imagecodecs.htj2k_decode


def decode_j2k(codestream: Codestream, header: PixelHeader) -> Decoded:
    """At full resolution, by OpenJPEG. Raises NotAnalysable."""
    return _whole(raw(codestream), header, _openjpeg)


def decode_htj2k(codestream: Codestream, header: PixelHeader) -> Decoded:
    """At full resolution. Raises NotAnalysable.

    By OpenJPH where the wavelet is reversible. Else by OpenJPEG, slower: an overshoot comes out of
    OpenJPH wrapped around.
    """
    codestream = raw(codestream)
    return _whole(
        codestream, header, _openjph if read_header(codestream).is_reversible else _openjpeg
    )


def reduce_j2k(codestream: Codestream, header: PixelHeader, reduce: int) -> NDArray[Any]:
    """(ceil(rows / 2^r), ceil(columns / 2^r)) of the low-pass band; sample k is at pixel 2^r * k.

    Raises NotAnalysable.
    """
    codestream, found, parts = _checked(raw(codestream), header, reduce, levels_of_j2k)
    array = _openjpeg_reduced(codestream, found, reduce)
    _require_packets(found, extended(codestream, parts))
    # Pillow shifts samples up to the 8 or 16 bits of its mode.
    return _clamped(
        array >> (8 * array.itemsize - found.precision),
        header,
        partial(_fits, found, codestream, header, decode_j2k),
    )


def reduce_htj2k(codestream: Codestream, header: PixelHeader, reduce: int) -> NDArray[Any]:
    """The same for High-Throughput JPEG 2000, by OpenJPH.

    OpenJPH lets an undershoot wrap around to 65,2xx.
    """
    codestream, found, parts = _checked(raw(codestream), header, reduce, levels_of_htj2k)
    _require_packets(found, codestream, extended(codestream, parts))
    array = _unwrapped(_openjph(codestream, skipres=(reduce, reduce)), header)
    return _clamped(array, header, partial(_fits, found, codestream, header, decode_htj2k))


def levels_of_j2k(codestream: Codestream, header: PixelHeader) -> int:
    """How often the picture can be halved.

    0 where the low-pass band is no picture of the same values on an even grid.
    """
    found = read_header(raw(codestream))
    is_plain = header.is_monochrome and not header.is_signed and not found.is_signed
    is_told_apart = found.precision >= header.bits_stored and header.bits_stored < _WORD_BITS
    return found.levels if is_plain and is_told_apart and found.is_even else 0


def levels_of_htj2k(codestream: Codestream, header: PixelHeader) -> int:
    """The same, and 0 where pixels fill their bytes.

    A wrapped value could not be told from white there.
    """
    is_wide = read_header(raw(codestream)).precision > 8 and header.dtype.itemsize == 2
    return levels_of_j2k(codestream, header) if is_wide else 0


def _whole(
    codestream: Codestream, header: PixelHeader, decoder: Callable[[Codestream], NDArray[Any]]
) -> Decoded:
    found = read_header(codestream)
    compare(found, header)
    parts = tile_parts(codestream, found)
    codestream = without_padding(codestream, parts)
    array = decoder(codestream)
    _require_packets(
        found, *([codestream] if decoder is _openjph else []), extended(codestream, parts)
    )
    samples = Samples(found.precision, found.is_signed, is_lossy=not found.is_reversible)
    decoded = from_samples(array, samples, without_high_bit(header))
    return replace(decoded, is_rgb=found.has_mct)


def _checked(
    codestream: Codestream,
    header: PixelHeader,
    reduce: int,
    levels_of: Callable[[Codestream, PixelHeader], int],
) -> tuple[Codestream, J2kHeader, list[TilePart]]:
    found = read_header(codestream)
    compare(found, header)
    parts = tile_parts(codestream, found)
    if reduce > (levels := levels_of(codestream, header)):
        raise ValueError(
            f"reduce {reduce}: the codestream has {levels} levels that can be left out"
        )
    return without_padding(codestream, parts), found, parts


def _fits(
    found: J2kHeader,
    codestream: Codestream,
    header: PixelHeader,
    decode: Callable[[Codestream, PixelHeader], Decoded],
) -> bool:
    """Whether the picture stays within Bits Stored at full resolution.

    Raises NotAnalysable as `decode` does.
    """
    return (
        found.precision <= header.bits_stored
        or Flag.HIGH_BITS_CLEARED not in decode(codestream, header).flags
    )


def _require_packets(found: J2kHeader, *codestreams: Codestream) -> None:
    """Raises NotAnalysable (truncated_pixel_data) where a packet is missing.

    OpenJPEG decodes little then, to find it.
    """
    is_for_pillow = found.is_even and found.components in (1, 3) and found.precision <= _WORD_BITS
    for codestream in codestreams:
        try:
            (
                _openjpeg_reduced(codestream, found, found.levels)
                if is_for_pillow
                else _openjpeg(codestream)
            )
        except NotAnalysable:
            raise NotAnalysable(
                Reason.TRUNCATED_PIXEL_DATA, "packets of the JPEG 2000 codestream are missing"
            ) from None


def _unwrapped(words: NDArray[np.uint16], header: PixelHeader) -> NDArray[np.int32]:
    """Values less than half the range below 2^16 are undershoots.

    An overshoot of 15 bits reaches beyond the sign of int16.
    """
    lowest = (1 << _WORD_BITS) - (1 << header.bits_stored) // 2
    values = words.astype(np.int32)
    values[words >= lowest] -= 1 << _WORD_BITS
    return values


def _clamped(array: NDArray[Any], header: PixelHeader, fits: Callable[[], bool]) -> NDArray[Any]:
    """Clamp the overshoots of the low-pass band; they are less than half its range.

    A larger one means that the header states too few bits. For a smaller one the whole picture
    decides (`fits`), where the codestream is deeper than the header.
    """
    span = 1 << header.bits_stored
    least = int(array.min())
    most = int(array.max())
    if least < -span // 2 or most > span + span // 2 or (most >= span and not fits()):
        raise NotAnalysable(
            Reason.CODESTREAM_MISMATCH,
            f"samples from {least} to {most}, {header.bits_stored} bits unsigned",
        )
    within: NDArray[Any] = np.clip(array, 0, span - 1).astype(header.dtype)
    return within


def _openjpeg(codestream: Codestream) -> NDArray[Any]:
    try:
        return np.asarray(_JPEG2K(codestream))
    except (imagecodecs.Jpeg2kError, ValueError):
        raise NotAnalysable(
            Reason.UNDECODABLE, "the JPEG 2000 decoder refused the codestream"
        ) from None


def _openjpeg_reduced(codestream: Codestream, found: J2kHeader, reduce: int) -> NDArray[Any]:
    """By Pillow, since imagecodecs cannot.

    It rounds the reduced size to the nearest, OpenJPEG up, and it refuses a size that differs.
    """
    side = 1 << reduce
    try:
        with Image.open(io.BytesIO(codestream), formats=["JPEG2000"]) as image:
            # No other way in.
            image._size = (  # noqa: SLF001
                -(-found.columns // side) * side,
                -(-found.rows // side) * side,
            )
            # Of a JPEG 2000 image this is a number, until it is loaded.
            image.reduce = reduce  # type: ignore[assignment, method-assign]
            image.load()
            return np.asarray(image)
    except (OSError, ValueError, SyntaxError):
        raise NotAnalysable(
            Reason.UNDECODABLE, "the JPEG 2000 decoder refused the codestream"
        ) from None


def _openjph(codestream: Codestream, **options: Any) -> NDArray[Any]:  # noqa: ANN401 - the decoder's own
    """By imagecodecs, with the errors that it drops.

    imagecodecs 2026.1.14 drops errors that OpenJPH raises while lines are pulled, and returns the
    rest of the picture as zeros.
    """
    with dropped_exceptions() as dropped:
        try:
            array = _HTJ2K(codestream, **options)
        except (imagecodecs.Htj2kError, ValueError):
            raise NotAnalysable(
                Reason.UNDECODABLE, "the HTJ2K decoder refused the codestream"
            ) from None
    if dropped:
        raise NotAnalysable(Reason.UNDECODABLE, "the HTJ2K decoder gave up within the picture")
    return np.asarray(array)
