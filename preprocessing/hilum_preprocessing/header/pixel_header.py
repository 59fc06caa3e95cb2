"""The attributes that describe the pixels: Image Pixel module, PS3.3 C.7.6.3. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, Self

import numpy as np
from pydicom.dataset import Dataset

from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.header.elements import element, integer, required, tag_of, word
from hilum_preprocessing.header.overlays import overlay_bits

_MONOCHROME: Final = frozenset({"MONOCHROME1", "MONOCHROME2"})
_COLOUR: Final = frozenset({"RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT"})
_PALETTE: Final = "PALETTE COLOR"
# By Samples per Pixel, PS3.3 C.7.6.3.1.2.
_PHOTOMETRIC_OF: Final = {1: _MONOCHROME | {_PALETTE}, 3: _COLOUR}


@dataclass(frozen=True, slots=True)
class PixelHeader:
    """The data set's description of its Pixel Data.

    `samples` a pixel; `is_planar`: RRR…GGG…BBB… and not pixel by pixel. `overlay_bits`: a mask of
    the bits of a word in which, by the header, overlays are kept. `is_judged`: words that do not
    fit into Bits Stored are judged by `depth`; else they are always masked.
    """

    rows: int
    columns: int
    bits_allocated: int
    bits_stored: int
    high_bit: int
    is_signed: bool
    photometric: str = "MONOCHROME2"
    samples: int = 1
    frames: int = 1
    is_planar: bool = False
    overlay_bits: int = 0
    is_judged: bool = True

    @classmethod
    def of(cls, dataset: Dataset) -> Self:
        """Read and checked.

        Raises NotAnalysable: missing attributes, a pixel format that does not exist.
        """
        photometric = word(dataset, "PhotometricInterpretation")
        if not photometric:
            required(dataset, "PhotometricInterpretation")
        bits_allocated = integer(dataset, "BitsAllocated")
        bits_stored = integer(dataset, "BitsStored")
        samples = integer(dataset, "SamplesPerPixel")
        header = cls(
            rows=integer(dataset, "Rows"),
            columns=integer(dataset, "Columns"),
            bits_allocated=bits_allocated,
            bits_stored=bits_stored,
            # PS3.5 8.1.1: High Bit is one less than Bits Stored; older objects put it higher, so it
            # is read and not assumed.
            high_bit=integer(dataset, "HighBit", default=bits_stored - 1),
            is_signed=integer(dataset, "PixelRepresentation") == 1,
            photometric=photometric,
            samples=samples,
            frames=max(1, _not_negative(integer(dataset, "NumberOfFrames", default=1))),
            # PS3.3 C.7.6.3: it applies to several samples a pixel, and has no meaning for one.
            is_planar=samples > 1 and integer(dataset, "PlanarConfiguration", default=0) == 1,
            overlay_bits=overlay_bits(dataset, bits_allocated),
        )
        header._check()
        return header

    @property
    def is_monochrome1(self) -> bool:
        """Its smallest value is white."""
        return self.photometric == "MONOCHROME1"

    @property
    def is_palette(self) -> bool:
        """Whether stored values are indices of a palette, and no intensities.

        PS3.3 C.7.6.3.1.2: a palette has one sample, too.
        """
        return self.photometric == _PALETTE

    @property
    def is_monochrome(self) -> bool:
        """One sample a pixel, which is an intensity."""
        return self.samples == 1 and self.photometric in _MONOCHROME

    @property
    def pixels(self) -> int:
        """Rows times Columns."""
        return self.rows * self.columns

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, columns), or (rows, columns, samples)."""
        return (
            (self.rows, self.columns)
            if self.samples == 1
            else (self.rows, self.columns, self.samples)
        )

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of one sample, as stored values in memory."""
        return np.dtype(f"{'i' if self.is_signed else 'u'}{max(8, self.bits_allocated) // 8}")

    @property
    def size_bytes(self) -> int:
        """Length of one uncompressed frame."""
        # PS3.3 C.7.6.3.1.2: YBR_FULL_422 stores two chrominance values for two pixels, so two
        # samples a pixel and not three.
        stored = 2 if self.photometric == "YBR_FULL_422" else self.samples
        return (self.pixels * stored * self.bits_allocated + 7) // 8

    def require(
        self,
        *,
        rgb: Literal["reject", "luma", "first_channel"] = "reject",
        frames: Literal["reject", "first"] = "reject",
    ) -> None:
        """Raises NotAnalysable for pixels that the specification refuses.

        Colour, several frames, or pixels that are no 8 or 16 bits.
        """
        if not self.is_monochrome and rgb == "reject":
            raise self._not_monochrome()
        if self.frames > 1 and frames == "reject":
            raise NotAnalysable(Reason.MULTI_FRAME, f"{self.frames} frames")
        if self.bits_allocated not in (8, 16):
            raise self._unsupported()

    def check_size(self, maximum_pixels: int, frames: int = 1) -> None:
        """Raises NotAnalysable (too_large): asked before anything of that size is allocated."""
        if self.pixels * frames > maximum_pixels:
            seen = f"{self.rows} x {self.columns} pixels" + (
                f", {frames} frames" if frames > 1 else ""
            )
            raise NotAnalysable(Reason.TOO_LARGE, f"{seen}, limit {maximum_pixels}")

    def _check(self) -> None:
        if self.rows < 1 or self.columns < 1:
            raise NotAnalysable(Reason.CORRUPT_HEADER, f"Rows {self.rows}, Columns {self.columns}")
        is_possible = 1 <= self.bits_stored <= self.high_bit + 1 <= self.bits_allocated
        if self.bits_allocated not in (1, 8, 16, 32) or not is_possible:
            raise self._unsupported()
        if self.photometric not in _PHOTOMETRIC_OF.get(self.samples, ()):
            raise self._not_monochrome()

    def _not_monochrome(self) -> NotAnalysable:
        seen = f"{self.samples} samples per pixel, or neither MONOCHROME1 nor MONOCHROME2"
        return NotAnalysable(Reason.NOT_MONOCHROME, seen)

    def _unsupported(self) -> NotAnalysable:
        seen = (
            f"Bits Allocated {self.bits_allocated}, Bits Stored {self.bits_stored}, High Bit"
            f" {self.high_bit}"
        )
        return NotAnalysable(Reason.UNSUPPORTED_PIXEL_FORMAT, seen)


def require_pixel_data(dataset: Dataset) -> None:
    """Raises NotAnalysable when there is no Pixel Data, or floating point pixels instead.

    PS3.3 C.7.6.24, parametric maps.
    """
    if tag_of("FloatPixelData") in dataset or tag_of("DoubleFloatPixelData") in dataset:
        raise NotAnalysable(Reason.UNSUPPORTED_PIXEL_FORMAT, "floating point pixels")
    pixels = element(dataset, "PixelData")
    if pixels is None:
        raise NotAnalysable(Reason.NO_PIXEL_DATA, "Pixel Data is missing or empty")
    if not isinstance(pixels, bytes | bytearray | memoryview):
        raise NotAnalysable(Reason.CORRUPT_HEADER, "Pixel Data is no bytes")


def _not_negative(frames: int) -> int:
    if frames < 0:
        raise NotAnalysable(Reason.CORRUPT_HEADER, f"Number of Frames {frames}")
    return frames
