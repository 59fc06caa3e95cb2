"""From a data set to stored values and the facts that the grayscale steps need.

Torch-free; holds no lock while decoding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from numpy.typing import NDArray
from pydicom.dataset import Dataset

from hilum_preprocessing.codecs import CODECS
from hilum_preprocessing.codecs.bits import Decoded
from hilum_preprocessing.codecs.colour import Grey, to_grey
from hilum_preprocessing.codecs.frames import (
    DEFAULT_MAXIMUM_PIXELS,
    decode_frame,
    reduce_frame,
    transfer_syntax_of,
)
from hilum_preprocessing.errors import Flag
from hilum_preprocessing.header.elements import says
from hilum_preprocessing.header.luts import (
    NO_VOI,
    ModalityLut,
    Voi,
    modality_of,
    padding_of,
    pixel_aspect_of,
    presentation_lut_shape_of,
    voi_of,
)
from hilum_preprocessing.header.pixel_header import PixelHeader, require_pixel_data
from hilum_preprocessing.pictures.mark import is_picture

__all__ = ["DEFAULT_MAXIMUM_PIXELS", "StoredValues", "decode"]

_LEAST_MAXIMUM_OF_16_BITS: Final = 1 << 14
"""A PNG file of 16 bits with less may hold 12 bits, as detectors give them."""


@dataclass(frozen=True, slots=True)
class StoredValues:
    """One frame as it is stored: no LUT, no inversion. May cross process boundaries.

    `array` (rows, columns) uint8, int8, uint16 or int16, within `bits_stored` bits, possibly
    read-only. `padding` are the stored values, both ends included, that are no part of the picture;
    `is_padding_unusable`: the object's padding makes no sense. `flags` hold for every
    specification; `level_doubts` has those that depend on one. `presentation_lut_shape` IDENTITY,
    INVERSE, SEQUENCE or "". `pixel_aspect`: height of a pixel over its width, None: not known.
    `reduced` r: the array is the low-pass band after r levels, and its sample k is at pixel 2^r * k
    of the picture, whose size is `size`; not in the middle of 2^r pixels. `ends`: smallest and
    largest stored value, where the decoder looked for them. `is_picture`: the values are those of a
    PNG or JPEG file, so a recipe takes them where it takes such files (`levels.picture_entry`).
    """

    array: NDArray[Any]
    bits_stored: int
    is_signed: bool
    is_monochrome1: bool
    modality: ModalityLut = None
    voi: Voi = NO_VOI
    padding: tuple[int, int] | None = None
    is_padding_unusable: bool = False
    flags: tuple[str, ...] = ()
    presentation_lut_shape: str = ""
    pixel_aspect: float | None = 1.0
    reduced: int = 0
    full_size: tuple[int, int] | None = None
    ends: tuple[int, int] | None = None
    is_picture: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """(rows, columns) of the whole picture, also after a reduced decode."""
        return self.full_size or (self.array.shape[0], self.array.shape[1])


def decode(
    dataset: Dataset,
    maximum_pixels: int = DEFAULT_MAXIMUM_PIXELS,
    *,
    frames: Literal["reject", "first"] = "reject",
    rgb: Literal["reject", "luma", "first_channel"] = "reject",
    reduce: int = 0,
    header: PixelHeader | None = None,
) -> StoredValues:
    """One frame of a data set.

    Raises NotAnalysable; nothing of the frame's size is allocated before its size is checked.
    `frames`, `rgb`: as in a specification's `source`, for several frames, and for colour and
    palettes. `reduce`: halve a wavelet picture so many times, at most `frames.reducible(dataset)`;
    more is a ValueError. `header`: the data set's, where `guard.admitted` has read it.
    """
    if header is None:
        require_pixel_data(dataset)
        header = PixelHeader.of(dataset)
    header.require(rgb=rgb, frames=frames)
    header.check_size(maximum_pixels)
    if reduce:
        return _reduced(dataset, header, reduce)
    decoded = decode_frame(dataset, header)
    if not header.is_monochrome and rgb != "reject":
        return _grey(dataset, header, decoded, rgb)
    return _with_facts(dataset, header, decoded)


def _grey(dataset: Dataset, header: PixelHeader, decoded: Decoded, rgb: Grey) -> StoredValues:
    """One channel of colour or of a palette; LUTs and padding are for intensities alone."""
    array, bits = to_grey(dataset, decoded, header, rgb)
    return StoredValues(
        array,
        bits,
        is_signed=False,
        is_monochrome1=False,
        flags=_flags(dataset, decoded.flags),
        pixel_aspect=pixel_aspect_of(dataset),
    )


def _of_picture(dataset: Dataset, header: PixelHeader, decoded: Decoded) -> StoredValues:
    """The values of a picture file, which says nothing of LUTs, windows or padding."""
    largest = int(decoded.array.max())
    is_dark = header.bits_stored == 16 and largest < _LEAST_MAXIMUM_OF_16_BITS
    doubts = (Flag.BITS_STORED_DOUBTFUL,) if is_dark else ()
    return StoredValues(
        decoded.array,
        header.bits_stored,
        is_signed=False,
        is_monochrome1=False,
        flags=_flags(dataset, (*decoded.flags, *doubts)),
        ends=decoded.ends,
        is_picture=True,
    )


def _reduced(dataset: Dataset, header: PixelHeader, reduce: int) -> StoredValues:
    facts = _with_facts(dataset, header, Decoded(reduce_frame(dataset, header, reduce)))
    flags = (*facts.flags, Flag.REDUCED_DECODE.value)
    return replace(facts, flags=flags, reduced=reduce, full_size=(header.rows, header.columns))


def _with_facts(dataset: Dataset, header: PixelHeader, decoded: Decoded) -> StoredValues:
    if not header.is_signed and is_picture(dataset):
        return _of_picture(dataset, header, decoded)
    padding = padding_of(dataset, is_signed=header.is_signed)
    return StoredValues(
        array=decoded.array,
        ends=decoded.ends,
        bits_stored=header.bits_stored,
        is_signed=header.is_signed,
        is_monochrome1=header.is_monochrome1,
        modality=modality_of(dataset),
        voi=voi_of(dataset),
        padding=padding.values,
        is_padding_unusable=padding.is_unusable,
        presentation_lut_shape=presentation_lut_shape_of(dataset),
        pixel_aspect=pixel_aspect_of(dataset),
        flags=_flags(dataset, decoded.flags),
    )


def _flags(dataset: Dataset, seen: Iterable[Flag]) -> tuple[str, ...]:
    uid = transfer_syntax_of(dataset)
    is_lossy = says(dataset, "LossyImageCompression", "01") or (
        uid in CODECS and CODECS[uid].is_lossy
    )
    # A codestream may say so, too.
    return tuple(
        dict.fromkeys(flag.value for flag in (*((Flag.LOSSY,) if is_lossy else ()), *seen))
    )
