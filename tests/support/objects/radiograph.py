"""Chest radiographs around given pixels.

The smallest data set that the preprocessing accepts, for tests that need exact values.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from numpy.typing import NDArray
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import (
    UID,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    JPEGBaseline8Bit,
    SecondaryCaptureImageStorage,
)

from hilum_preprocessing import InputSpec, NotAnalysable, Reason, decode


def radiograph(array: NDArray[Any], bits_stored: int | None = None, **attributes: Any) -> Dataset:
    """Secondary Capture, CHEST, PA, around stored values (H, W) uint8, uint16 or int16.

    An attribute None is left out.
    """
    ds = Dataset()
    ds.SOPClassUID, ds.Modality = SecondaryCaptureImageStorage, "CR"
    ds.BodyPartExamined, ds.ViewPosition = "CHEST", "PA"
    ds.SamplesPerPixel, ds.PhotometricInterpretation = 1, "MONOCHROME2"
    ds.Rows, ds.Columns = array.shape
    ds.BitsAllocated = 8 * array.itemsize
    ds.BitsStored = bits_stored or ds.BitsAllocated
    ds.HighBit = ds.BitsStored - 1
    ds.PixelRepresentation = int(array.dtype.kind == "i")
    ds.PixelData = np.ascontiguousarray(array).tobytes()
    ds["PixelData"].VR = "OW"
    for keyword, value in attributes.items():
        if value is None:
            delattr(ds, keyword)
        else:
            setattr(ds, keyword, value)
    return under(ds, ExplicitVRLittleEndian)


def under(dataset: Dataset, transfer_syntax_uid: str) -> Dataset:
    """The data set with this Transfer Syntax UID in its file meta.

    The pixels are left as they are.
    """
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = UID(transfer_syntax_uid)
    return dataset


def jpeg_radiograph(
    array: NDArray[np.uint8], codestream: bytes | None = None, **attributes: Any
) -> Dataset:
    """The same under JPEG Baseline, in one fragment.

    `codestream` instead of what the array encodes to.
    """
    ds = radiograph(array, **attributes)
    ds.PixelData = encapsulate([codestream or jpeg(array)])
    return under(ds, JPEGBaseline8Bit)


def jpeg(array: NDArray[np.uint8]) -> bytes:
    """A JPEG Baseline codestream of the array."""
    return bytes(imagecodecs.jpeg8_encode(array, level=95))


def ramp(rows: int, columns: int, bits: int = 12) -> NDArray[np.uint16]:
    """Stored values rising from 0 to 2^bits - 1, row by row."""
    return (
        np.linspace(0, 2**bits - 1, rows * columns).round().astype(np.uint16).reshape(rows, columns)
    )


def scene(rows: int, columns: int, bits: int = 12, seed: int = 0) -> NDArray[np.uint16]:
    """A picture with large shapes, fine noise and hard edges.

    What tells one resizer from another.
    """
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:rows, 0:columns] / max(rows, columns)
    smooth = 0.5 + 0.3 * np.sin(7 * x) * np.cos(5 * y) + 0.05 * rng.standard_normal((rows, columns))
    smooth[rows // 8 : rows // 5, columns // 8 : columns // 3] = 1.0
    smooth[:, : columns // 20] = 0.0
    return (np.clip(smooth, 0, 1) * (2**bits - 1)).astype(np.uint16)


def spec(recipe: str = "torchxrayvision_224", **changes: Any) -> InputSpec:
    """A recipe's specification with whole sections, or the fields within `source`, replaced."""
    fields = InputSpec.from_mapping({"recipe": recipe}).to_mapping()
    for name, value in changes.items():
        fields[name] = {**fields[name], **value} if isinstance(value, dict) else value
    return InputSpec.from_mapping(fields)


def saved(path: Path, dataset: Dataset, transfer_syntax_uid: str | None = None) -> Path:
    """As a file of that Transfer Syntax; pixels of the data set are little endian before."""
    if transfer_syntax_uid == ExplicitVRBigEndian and dataset.BitsAllocated == 16:
        dataset.PixelData = np.frombuffer(dataset.PixelData, "<u2").astype(">u2").tobytes()
    if dataset.BitsAllocated == 8:
        dataset["PixelData"].VR = "OB"
    if transfer_syntax_uid is not None:
        under(dataset, transfer_syntax_uid)
    dataset.file_meta.MediaStorageSOPClassUID, dataset.file_meta.MediaStorageSOPInstanceUID = (
        dataset.SOPClassUID,
        "1.2.3",
    )
    content = io.BytesIO()
    dataset.save_as(content, enforce_file_format=True)
    path.write_bytes(content.getvalue())
    return path


def reason_of(dataset: Dataset, **options: Any) -> Reason:
    """Why the pixels of a data set cannot be decoded."""
    with pytest.raises(NotAnalysable) as refused:
        decode(dataset, **options)
    return refused.value.reason
