"""The mark of a data set whose pixels are those of a PNG or JPEG file. Torch-free.

The SC Equipment module (PS3.3 C.8.6.1) names the device that made a Secondary Capture of something
else. Two of its attributes have fixed values here. No other device writes them.
"""

from __future__ import annotations

from typing import Final

from pydicom.dataset import Dataset
from pydicom.uid import SecondaryCaptureImageStorage

from hilum_preprocessing.header.elements import says

DEVICE_MANUFACTURER: Final = "Hilum"
DEVICE_MODEL: Final = "Picture file as recipe input"
WORKSTATION: Final = "WSD"
"""Conversion Type of a picture file (PS3.3 C.8.6.1.1.1)."""

_MARKS: Final = (
    ("SecondaryCaptureDeviceManufacturerModelName", DEVICE_MODEL.upper()),
    ("SecondaryCaptureDeviceManufacturer", DEVICE_MANUFACTURER.upper()),
    ("SOPClassUID", SecondaryCaptureImageStorage),
    ("ConversionType", WORKSTATION),
    ("PhotometricInterpretation", "MONOCHROME2"),
)


def is_picture(dataset: Dataset) -> bool:
    """Return whether the pixels are those of a picture file.

    All marks have to be there. One that is missing or changed makes an ordinary Secondary Capture.
    Never raises.
    """
    return all(says(dataset, keyword, wanted) for keyword, wanted in _MARKS)
