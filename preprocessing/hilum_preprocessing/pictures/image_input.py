"""A PNG or JPEG file as the input of a recipe. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import ExplicitVRLittleEndian, JPEGBaseline8Bit, SecondaryCaptureImageStorage

from hilum_preprocessing.codecs.frames import DEFAULT_MAXIMUM_PIXELS
from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.pictures.jpeg_file import START, read_jpeg
from hilum_preprocessing.pictures.mark import DEVICE_MANUFACTURER, DEVICE_MODEL, WORKSTATION
from hilum_preprocessing.pictures.pixels import PicturePixels
from hilum_preprocessing.pictures.png import SIGNATURE, read_png

_ORIGIN: Final[Mapping[str, object]] = {
    "SOPClassUID": SecondaryCaptureImageStorage,
    "ImageType": ["DERIVED", "SECONDARY"],
    # The file does not say whether it was CR or DX.
    "Modality": "OT",
    "ConversionType": WORKSTATION,
    "SecondaryCaptureDeviceManufacturer": DEVICE_MANUFACTURER,
    "SecondaryCaptureDeviceManufacturerModelName": DEVICE_MODEL,
    "SamplesPerPixel": 1,
    "PhotometricInterpretation": "MONOCHROME2",
    "PixelRepresentation": 0,
}


BEGINNING_BYTES: Final = max(len(SIGNATURE), len(START))
"""As many bytes of a file tell whether it is PNG or JPEG."""


def is_picture_file(beginning: bytes) -> bool:
    """Return whether a file that begins so is PNG or JPEG."""
    return beginning.startswith((SIGNATURE, START))


@dataclass(frozen=True, slots=True)
class ImageInput:
    """A PNG or JPEG file, and the view where it is known.

    `view`: as View Position has it, such as PA, AP or LL; empty: unknown.
    """

    data: bytes
    view: str = ""

    def data_set(self, maximum_pixels: int = DEFAULT_MAXIMUM_PIXELS) -> Dataset:
        """The data set that preprocessing reads, with the pixels of the file as they are.

        It names no patient and has no UIDs but its SOP Class UID. Raises NotAnalysable: neither
        PNG nor JPEG, or a file whose gray levels would be a guess. JPEG Baseline of one component
        is not decoded here, so that damage of its data shows when it is.
        """
        pixels = _pixels(self.data, maximum_pixels)
        dataset = _described(pixels)
        if self.view:
            dataset.ViewPosition = self.view
        return dataset


def _pixels(data: bytes, maximum_pixels: int) -> PicturePixels:
    if data.startswith(SIGNATURE):
        return read_png(data, maximum_pixels)
    if data.startswith(START):
        return read_jpeg(data, maximum_pixels)
    raise NotAnalysable(Reason.UNDECODABLE, "the file is neither PNG nor JPEG")


def _described(pixels: PicturePixels) -> Dataset:
    dataset = Dataset()
    described = {
        **_ORIGIN,
        "Rows": pixels.rows,
        "Columns": pixels.columns,
        "BitsAllocated": pixels.bits,
        "BitsStored": pixels.bits,
        "HighBit": pixels.bits - 1,
        **({"LossyImageCompression": "01"} if pixels.is_lossy else {}),
    }
    for keyword, value in described.items():
        setattr(dataset, keyword, value)
    dataset.file_meta = FileMetaDataset()
    if pixels.codestream is not None:
        _hold_codestream(pixels.codestream, dataset)
    elif pixels.array is not None:
        _hold_words(pixels.array, dataset)
    return dataset


def _hold_codestream(codestream: bytes, dataset: Dataset) -> None:
    dataset.file_meta.TransferSyntaxUID = JPEGBaseline8Bit
    dataset.PixelData = encapsulate([codestream])
    dataset["PixelData"].VR = "OB"
    dataset["PixelData"].is_undefined_length = True


def _hold_words(array: NDArray[Any], dataset: Dataset) -> None:
    """In little endian, of an even length (PS3.5 8.1.1)."""
    words = np.ascontiguousarray(array, f"<u{array.itemsize}").tobytes()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.PixelData = words + b"\0" * (len(words) % 2)
    dataset["PixelData"].VR = "OB" if array.itemsize == 1 else "OW"
