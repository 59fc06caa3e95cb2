"""The attributes that describe the pixels: Image Pixel module, PS3.3 C.7.6.3. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pydicom.dataset import Dataset

from hilum_preprocessing.elements import element, integer, required, word
from hilum_preprocessing.errors import NotAnalysable, Reason


@dataclass(frozen=True, slots=True)
class PixelHeader:
    """One frame of one monochrome sample a pixel."""

    rows: int
    columns: int
    bits_allocated: int
    bits_stored: int
    high_bit: int
    is_signed: bool
    is_monochrome1: bool

    @classmethod
    def of(cls, dataset: Dataset) -> Self:
        """Read and checked. Raises NotAnalysable: colour, several frames, missing attributes, a pixel format that does not exist."""
        photometric = _monochrome(dataset)
        _single_frame(dataset)
        bits_stored = integer(dataset, "BitsStored")
        header = cls(
            rows=integer(dataset, "Rows"),
            columns=integer(dataset, "Columns"),
            bits_allocated=integer(dataset, "BitsAllocated"),
            bits_stored=bits_stored,
            # PS3.5 8.1.1: High Bit is one less than Bits Stored; older objects put it higher, so it is read and not assumed.
            high_bit=integer(dataset, "HighBit", default=bits_stored - 1),
            is_signed=integer(dataset, "PixelRepresentation") == 1,
            is_monochrome1=photometric == "MONOCHROME1",
        )
        header._check()
        return header

    @property
    def pixels(self) -> int:
        """Rows times Columns."""
        return self.rows * self.columns

    @property
    def size_bytes(self) -> int:
        """Length of the uncompressed frame."""
        return self.pixels * self.bits_allocated // 8

    def _check(self) -> None:
        if self.rows < 1 or self.columns < 1:
            raise NotAnalysable(Reason.CORRUPT_HEADER, f"Rows {self.rows}, Columns {self.columns}")
        is_possible = 1 <= self.bits_stored <= self.high_bit + 1 <= self.bits_allocated
        if self.bits_allocated not in (8, 16) or not is_possible:
            seen = f"Bits Allocated {self.bits_allocated}, Bits Stored {self.bits_stored}, High Bit {self.high_bit}"
            raise NotAnalysable(Reason.UNSUPPORTED_PIXEL_FORMAT, seen)

    def check_size(self, maximum_pixels: int) -> None:
        """Raises NotAnalysable (too_large): asked before anything of that size is allocated."""
        if self.pixels > maximum_pixels:
            raise NotAnalysable(Reason.TOO_LARGE, f"{self.rows} x {self.columns} pixels, limit {maximum_pixels}")


def require_pixel_data(dataset: Dataset) -> None:
    """Raises NotAnalysable when there is no Pixel Data, or floating point pixels instead (PS3.3 C.7.6.24, parametric maps)."""
    if "FloatPixelData" in dataset or "DoubleFloatPixelData" in dataset:
        raise NotAnalysable(Reason.UNSUPPORTED_PIXEL_FORMAT, "floating point pixels")
    if element(dataset, "PixelData") is None:
        raise NotAnalysable(Reason.NO_PIXEL_DATA, "Pixel Data is missing or empty")


def _monochrome(dataset: Dataset) -> str:
    required(dataset, "PhotometricInterpretation")
    photometric = word(dataset, "PhotometricInterpretation")
    samples = integer(dataset, "SamplesPerPixel")
    if samples != 1 or photometric not in ("MONOCHROME1", "MONOCHROME2"):
        # PS3.3 C.7.6.3.1.2: a palette has one sample, too, but its stored values are indices and no intensities.
        raise NotAnalysable(Reason.NOT_MONOCHROME, f"{samples} samples per pixel, or neither MONOCHROME1 nor MONOCHROME2")
    return photometric


def _single_frame(dataset: Dataset) -> None:
    frames = integer(dataset, "NumberOfFrames", default=1)
    if frames > 1:
        raise NotAnalysable(Reason.MULTI_FRAME, f"{frames} frames")
    if frames < 0:
        raise NotAnalysable(Reason.CORRUPT_HEADER, f"Number of Frames {frames}")
