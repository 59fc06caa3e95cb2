"""Synthetic radiographs that tell one preprocessing from another.

Odd sizes, all depths, both polarities, signs, windows, equal borders.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage

SIGNED = "signed"
"""In the name of cases with negative stored values: not every author's code has a meaning for them."""


def cases() -> Iterator[tuple[str, Dataset]]:
    """Name and data set of each."""
    yield "601x487 12 bit", data_set(scene(601, 487, 12), 12)
    yield "487x601 8 bit", data_set(scene(487, 601, 8), 8)
    yield "1024x1024 8 bit", data_set(scene(1024, 1024, 8), 8)
    yield (
        "701x699 10 bit MONOCHROME1",
        data_set(scene(701, 699, 10), 10, PhotometricInterpretation="MONOCHROME1"),
    )
    yield "333x513 16 bit", data_set(scene(333, 513, 16), 16)
    yield "801x660 12 bit, equal borders", data_set(framed(scene(801, 660, 12)), 12)
    yield "231x200 12 bit, smaller than its target", data_set(scene(231, 200, 12), 12)
    window = {
        "RescaleSlope": "2",
        "RescaleIntercept": "0",
        "WindowCenter": "4100",
        "WindowWidth": "5000",
    }
    yield (
        "640x513 12 bit MONOCHROME1, slope 2, window",
        data_set(scene(640, 513, 12), 12, PhotometricInterpretation="MONOCHROME1", **window),
    )
    window = {"WindowCenter": "2000", "WindowWidth": "3000"}
    yield (
        "513x640 12 bit MONOCHROME1, window",
        data_set(scene(513, 640, 12), 12, PhotometricInterpretation="MONOCHROME1", **window),
    )
    signed = (scene(450, 383, 12).astype(np.int16) - 2048).astype(np.int16)
    yield (
        f"450x383 {SIGNED} 12 bit",
        data_set(signed, 12, RescaleSlope="1", RescaleIntercept="2048"),
    )


@cache
def scene(rows: int, columns: int, bits: int) -> NDArray[Any]:
    """Stored values with large shapes, fine noise and hard edges, over most of the range."""
    rng = np.random.default_rng(rows * columns + bits)
    y, x = np.mgrid[0:rows, 0:columns] / max(rows, columns)
    picture = (
        0.5 + 0.3 * np.sin(7 * x) * np.cos(5 * y) + 0.04 * rng.standard_normal((rows, columns))
    )
    picture[rows // 8 : rows // 5, columns // 8 : columns // 3] = 0.97
    picture[:, : columns // 20] = 0.02
    stored: NDArray[Any] = (np.clip(picture, 0.01, 0.99) * (2**bits - 1)).astype(
        np.uint8 if bits == 8 else np.uint16
    )
    return stored


def framed(picture: NDArray[Any]) -> NDArray[Any]:
    """With collimated borders, all of one value."""
    framed = np.zeros_like(picture)
    top = picture.shape[0] // 10
    left = picture.shape[1] // 8
    framed[top:-top, left:-left] = picture[top:-top, left:-left]
    return framed


def data_set(stored: NDArray[Any], bits_stored: int, **attributes: str) -> Dataset:
    """The smallest one that is read as a frontal chest radiograph."""
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.SOPClassUID = SecondaryCaptureImageStorage
    dataset.Modality = "CR"
    dataset.BodyPartExamined = "CHEST"
    dataset.ViewPosition = "PA"
    dataset.SamplesPerPixel = 1
    dataset.PhotometricInterpretation = "MONOCHROME2"
    dataset.Rows, dataset.Columns = stored.shape
    dataset.BitsAllocated = 8 * stored.itemsize
    dataset.BitsStored = bits_stored
    dataset.HighBit = bits_stored - 1
    dataset.PixelRepresentation = int(stored.dtype.kind == "i")
    # Signed values fill their container: bits beyond Bits Stored repeat the sign.
    dataset.PixelData = np.ascontiguousarray(stored).tobytes()
    dataset["PixelData"].VR = "OW"
    for keyword, value in attributes.items():
        setattr(dataset, keyword, value)
    return dataset
