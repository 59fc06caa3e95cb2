"""Synthetic chest radiographs as DICOM objects.

Complete and valid, ours to publish, the same for the same seed.

`make_study` and `make_instance` return pydicom data sets with file meta; `save` writes them; `python -m testing.phantoms.phantom FILE`
writes one and prints its Study Instance UID. DX (for presentation or processing), CR, and Secondary
Capture with Modality CR (8 bits, as the public RSNA files are); little endian or JPEG Baseline.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import (
    UID,
    DigitalXRayImageStorageForProcessing,
    ExplicitVRLittleEndian,
    JPEGBaseline8Bit,
)

from testing.phantoms import anatomy, canvas
from testing.phantoms.phantom_modules import (
    IMPLEMENTATION_UID,
    Intent,
    Modality,
    add_cr,
    add_dx,
    add_image,
    add_patient_and_study,
    add_secondary_capture,
    add_series,
    add_window,
    uid_for,
)

__all__ = ["make_instance", "make_study", "save", "uid_for"]

Overrides = Mapping[str, Any]


def make_study(
    seed: int = 0,
    modality: Modality = "DX",
    views: Sequence[str] = ("PA", "LATERAL"),
    *,
    rows: int = 1024,
    columns: int = 1024,
    bits: int = 12,
    photometric: str = "MONOCHROME2",
    transfer_syntax_uid: str = ExplicitVRLittleEndian,
    overrides: Overrides | None = None,
    presentation_intent: Intent = "FOR PRESENTATION",
) -> list[Dataset]:
    """One study of one patient, a series and an instance for each view.

    UIDs depend on seed, modality and view only.
    """
    return [
        make_instance(
            seed,
            view,
            modality=modality,
            rows=rows,
            columns=columns,
            bits=bits,
            photometric=photometric,
            transfer_syntax_uid=transfer_syntax_uid,
            overrides=overrides,
            presentation_intent=presentation_intent,
            number=number,
        )
        for number, view in enumerate(views, start=1)
    ]


def make_instance(
    seed: int = 0,
    view: str = "PA",
    *,
    modality: Modality = "DX",
    rows: int = 1024,
    columns: int = 1024,
    bits: int = 12,
    photometric: str = "MONOCHROME2",
    transfer_syntax_uid: str = ExplicitVRLittleEndian,
    overrides: Overrides | None = None,
    presentation_intent: Intent = "FOR PRESENTATION",
    number: int = 1,
) -> Dataset:
    """One image.

    `view` is PA, AP or LATERAL. Secondary Capture and JPEG Baseline are always 8 bits.

    `overrides` maps keywords to values set last of all; None removes the attribute.
    """
    stored_bits = 8 if modality == "SC" or transfer_syntax_uid == JPEGBaseline8Bit else bits
    ds = Dataset()
    add_patient_and_study(ds, seed)
    add_series(ds, seed, modality, view, number)
    add_image(ds, seed, modality, view, presentation_intent)
    spacing = [f"{canvas.FIELD_CM * 10 / rows:.6f}"] * 2
    if modality == "DX":
        add_dx(ds, view, photometric, spacing, presentation_intent)
    elif modality == "CR":
        add_cr(ds, spacing)
    else:
        add_secondary_capture(ds, spacing)
    if ds.SOPClassUID != DigitalXRayImageStorageForProcessing:
        add_window(ds, stored_bits)
    stored = _stored_values(anatomy.draw(view, rows, columns, seed), stored_bits, photometric)
    _add_pixels(ds, stored, stored_bits, photometric, transfer_syntax_uid)
    _override(ds, overrides or {})
    _add_file_meta(ds, transfer_syntax_uid)
    return ds


def save(dataset: Dataset, path: str | Path) -> Path:
    """Write a Part 10 file (PS3.10)."""
    dataset.save_as(path, enforce_file_format=True)
    return Path(path)


def _stored_values(image: NDArray[np.float32], bits: int, photometric: str) -> NDArray[Any]:
    """Brightness in [0, 1] → stored values.

    MONOCHROME1 displays the smallest value white (PS3.3 C.7.6.3.1.2).
    """
    brightness = 1 - image if photometric == "MONOCHROME1" else image
    return (brightness * np.float32(2**bits - 1) + np.float32(0.5)).astype(
        np.uint8 if bits <= 8 else np.uint16
    )


def _add_pixels(
    ds: Dataset, stored: NDArray[Any], bits: int, photometric: str, transfer_syntax_uid: str
) -> None:
    ds.SamplesPerPixel = 1
    ds.PhotometricInterpretation = photometric
    ds.Rows, ds.Columns = stored.shape
    ds.BitsAllocated = 8 * stored.dtype.itemsize
    ds.BitsStored = bits
    ds.HighBit = bits - 1
    ds.PixelRepresentation = 0
    if transfer_syntax_uid != JPEGBaseline8Bit:
        ds.LossyImageCompression = "00"
        ds.add_new(
            "PixelData",
            "OB" if bits <= 8 and transfer_syntax_uid == ExplicitVRLittleEndian else "OW",
            _even(stored.tobytes()),
        )
        return
    codestream = imagecodecs.jpeg8_encode(stored, level=92)
    ds.LossyImageCompression = "01"
    ds.LossyImageCompressionMethod = "ISO_10918_1"
    ds.LossyImageCompressionRatio = f"{stored.nbytes / len(codestream):.2f}"
    ds.add_new("PixelData", "OB", encapsulate([bytes(codestream)]))
    ds["PixelData"].is_undefined_length = True


def _even(data: bytes) -> bytes:
    return data + b"\0" * (len(data) % 2)


def _override(ds: Dataset, overrides: Overrides) -> None:
    for keyword, value in overrides.items():
        if value is not None:
            setattr(ds, keyword, value)
        elif keyword in ds:
            delattr(ds, keyword)


def _add_file_meta(ds: Dataset, transfer_syntax_uid: str) -> None:
    meta = FileMetaDataset()
    meta.FileMetaInformationVersion = b"\x00\x01"
    meta.MediaStorageSOPClassUID = UID(ds.get("SOPClassUID", ""))
    meta.MediaStorageSOPInstanceUID = UID(ds.get("SOPInstanceUID", ""))
    meta.TransferSyntaxUID = UID(transfer_syntax_uid)
    meta.ImplementationClassUID = IMPLEMENTATION_UID
    meta.ImplementationVersionName = "HILUM_PHANTOM"
    ds.file_meta = meta


def main(arguments: Sequence[str]) -> int:
    """Write one image to the path that is given; print its Study Instance UID.

    A number behind the path draws another patient in another study.
    """
    if len(arguments) not in {1, 2} or not all(text.isdigit() for text in arguments[1:]):
        print("usage: python -m testing.phantoms.phantom FILE [NUMBER]", file=sys.stderr)
        return 2
    image = make_instance(int(arguments[1]) if len(arguments) == 2 else 0)
    save(image, arguments[0])
    print(image.StudyInstanceUID)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
