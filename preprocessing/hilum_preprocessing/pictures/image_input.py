"""A PNG or JPEG file as the input of a recipe. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import ExplicitVRLittleEndian, JPEGBaseline8Bit, SecondaryCaptureImageStorage

from hilum_preprocessing.codecs.frames import DEFAULT_MAXIMUM_PIXELS
from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.pictures.jpeg_file import START, read_jpeg
from hilum_preprocessing.pictures.mark import DEVICE_MANUFACTURER, DEVICE_MODEL, WORKSTATION
from hilum_preprocessing.pictures.pixels import PicturePixels
from hilum_preprocessing.pictures.png import SIGNATURE, read_png

_MEDICAL_IMAGE: Final = "DERIVED", "SECONDARY"
# The file does not say whether it was CR or DX.
_OTHER: Final = "OT"


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
    dataset.SOPClassUID = SecondaryCaptureImageStorage
    dataset.ImageType = list(_MEDICAL_IMAGE)
    dataset.Modality = _OTHER
    dataset.ConversionType = WORKSTATION
    dataset.SecondaryCaptureDeviceManufacturer = DEVICE_MANUFACTURER
    dataset.SecondaryCaptureDeviceManufacturerModelName = DEVICE_MODEL
    dataset.SamplesPerPixel = 1
    dataset.PhotometricInterpretation = "MONOCHROME2"
    dataset.Rows = pixels.rows
    dataset.Columns = pixels.columns
    dataset.BitsAllocated = pixels.bits
    dataset.BitsStored = pixels.bits
    dataset.HighBit = pixels.bits - 1
    dataset.PixelRepresentation = 0
    if pixels.is_lossy:
        dataset.LossyImageCompression = "01"
    _hold(pixels, dataset)
    return dataset


def _hold(pixels: PicturePixels, dataset: Dataset) -> None:
    """Add Pixel Data: the codestream as it is, or words in little endian."""
    dataset.file_meta = FileMetaDataset()
    if pixels.codestream is not None:
        dataset.file_meta.TransferSyntaxUID = JPEGBaseline8Bit
        dataset.PixelData = encapsulate([pixels.codestream])
        dataset["PixelData"].VR = "OB"
        dataset["PixelData"].is_undefined_length = True
        return
    assert pixels.array is not None, "one of the two is there"
    words = np.ascontiguousarray(pixels.array, f"<u{pixels.bits // 8}").tobytes()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.PixelData = words + b"\0" * (len(words) % 2)
    dataset["PixelData"].VR = "OB" if pixels.bits == 8 else "OW"
