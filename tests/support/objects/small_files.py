"""DICOM files of a few hundred bytes, and a store that keeps what it is given."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.filewriter import dcmwrite
from pydicom.uid import ComputedRadiographyImageStorage, ExplicitVRLittleEndian

from hilum.retrieve.source import PartOutcome

CR = ComputedRadiographyImageStorage


def data_set(image: str = "1.2.3.4", study: str = "1.2", series: str = "1.2.3") -> Dataset:
    """The header of an image with four bytes of pixels."""
    made = Dataset()
    made.SOPClassUID = CR
    made.SOPInstanceUID = image
    made.StudyInstanceUID = study
    made.SeriesInstanceUID = series
    made.StudyDate = "20190102"
    made.Modality = "CR"
    made.PatientName = "Private^Name"
    made.PatientID = "SECRET"
    made.Rows = made.Columns = 2
    made.BitsAllocated = made.BitsStored = 8
    made.PixelData = b"\1\2\3\4"
    made["PixelData"].VR = "OB"
    return made


def encoded(made: Dataset, syntax: str = ExplicitVRLittleEndian, **meta: Any) -> bytes:
    """A Part 10 file. `meta`: values of group 0002 instead of those of the data set; None: left out."""
    made.file_meta = FileMetaDataset()
    values: Mapping[str, Any] = {
        "MediaStorageSOPClassUID": made.get("SOPClassUID", ""),
        "MediaStorageSOPInstanceUID": made.get("SOPInstanceUID", ""),
        "TransferSyntaxUID": syntax,
        **meta,
    }
    for keyword, value in values.items():
        if value is not None:
            setattr(made.file_meta, keyword, value)
    target = BytesIO()
    dcmwrite(target, made, enforce_file_format=False)
    written = target.getvalue()
    return written if written[128:132] == b"DICM" else bytes(128) + b"DICM" + written


def dicom_file(image: str = "1.2.3.4", study: str = "1.2", series: str = "1.2.3") -> bytes:
    """A small DICOM file."""
    return encoded(data_set(image, study, series))


def deflated_file(made: Dataset) -> bytes:
    """The same in Deflated Explicit VR Little Endian, written by hand."""
    plain = encoded(made)
    start = plain.index(b"\x08\x00\x16\x00UI")
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    body = deflate.compress(plain[start:]) + deflate.flush()
    meta = plain[:start].replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.1.2.1.99")
    # Its length is two bytes more.
    at = meta.index(b"\x02\x00\x10\x00UI") + 6
    return meta[:at] + (22).to_bytes(2, "little") + meta[at + 2 :] + body


def write(path: Path, content: bytes) -> Path:
    """A file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@dataclass
class KeptPart:
    """One object on its way into a `KeptObjects`."""

    store: KeptStore
    origin: str
    content: bytes = b""

    def write(self, piece: bytes) -> None:
        self.content += piece
        self.store.on_write(self.origin)

    def end(self) -> PartOutcome:
        with self.store.lock:
            self.store.objects[self.origin] = self.content
        return PartOutcome("", self.store.problem)

    def abandon(self) -> None:
        with self.store.lock:
            self.store.abandoned.append(self.origin)


@dataclass
class KeptStore:
    """Keeps objects by origin. `on_write` is called at each piece."""

    problem: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    abandoned: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, origin: str = "") -> KeptPart:
        with self.lock:
            self.begun.append(origin)
        return KeptPart(self, origin)

    def on_write(self, origin: str) -> None:
        """For tests that change something in the middle of a file."""
