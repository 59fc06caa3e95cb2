"""Archives that are queried and give images back: Orthanc in two forms, and DCMTK's dcmqrscp."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pydicom
from pydicom.dataset import Dataset
from pydicom.uid import ExplicitVRLittleEndian

from testing.peers import DICOMWEB_PLUGIN
from tests.support.objects.radiograph import radiograph
from tests.support.peers.peers import Orthanc, Peer, free_port, missing, require_program

ARCHIVE_TITLE: Final = "ARCHIVE"
CALLING_TITLE: Final = "HILUM"
MOVE_TITLE: Final = "HILUM_ARC"
CR: Final = "1.2.840.10008.5.1.4.1.1.1"
DX: Final = "1.2.840.10008.5.1.4.1.1.1.1"
BASIC_TEXT_SR: Final = "1.2.840.10008.5.1.4.1.1.88.11"
_STORE_SECONDS: Final = 120.0


def orthanc_archive(
    move_port: int = 0,
    *,
    limit: int = 0,
    synchronous: bool = True,
    dicomweb: bool = False,
    **settings: Any,
) -> Orthanc:
    """Orthanc as a hospital's archive; enter it as a context.

    `move_port`: loopback port of MOVE_TITLE; 0: it is not registered. `limit`: LimitFindResults and
    LimitFindInstances, 0: none. `synchronous`: False, as most hospitals have it: a C-MOVE is
    answered before anything is sent. `dicomweb`: QIDO-RS and WADO-RS below /dicom-web/; the test
    skips where the plugin is not installed.
    """
    configuration: dict[str, Any] = {
        "LimitFindResults": limit,
        "LimitFindInstances": limit,
        "SynchronousCMove": synchronous,
        "DicomAlwaysAllowEcho": True,
        "DicomAlwaysAllowStore": True,
        "DicomAlwaysAllowFind": True,
        "DicomAlwaysAllowGet": True,
        "DicomAlwaysAllowMove": True,
        "DicomModalities": {"hilum": [MOVE_TITLE, "127.0.0.1", move_port]} if move_port else {},
        "DicomWeb": {"Enable": dicomweb, "Root": "/dicom-web/"},
    }
    if not dicomweb:
        configuration["Plugins"] = []
    return Orthanc(ARCHIVE_TITLE, **{**configuration, **settings})


def require_dicomweb() -> None:
    """Skip the test where Orthanc's DICOMweb plug-in is not installed; fail it when CI=true."""
    if not DICOMWEB_PLUGIN.exists():
        missing("libOrthancDicomWeb.so is not installed (Debian package orthanc-dicomweb)")


class DcmQrScp(Peer):
    """DCMTK's dcmqrscp with one storage area; `move_port` is the loopback port of MOVE_TITLE."""

    def __init__(self, move_port: int = 0) -> None:
        self._program = require_program("dcmqrscp", "dcmtk")
        self._store_scu = require_program("storescu", "dcmtk")
        super().__init__()
        self.ae_title = ARCHIVE_TITLE
        self.dicom_port = free_port()
        self._move_port = move_port or 11190
        self.area = self.folder / "area"
        self.area.mkdir()

    def _ports(self) -> list[int]:
        return [self.dicom_port]

    def _command(self) -> list[str]:
        file = self.folder / "dcmqrscp.cfg"
        file.write_text(
            "\n".join(
                (
                    f"NetworkTCPPort = {self.dicom_port}",
                    "MaxPDUSize = 131072",
                    "MaxAssociations = 4",
                    "HostTable BEGIN",
                    f"hilum = ({MOVE_TITLE}, 127.0.0.1, {self._move_port})",
                    "HostTable END",
                    "VendorTable BEGIN",
                    "VendorTable END",
                    "AETable BEGIN",
                    f"{self.ae_title} {self.area} RW (500, 1024mb) ANY",
                    "AETable END",
                    "",
                )
            ),
            encoding="ascii",
        )
        return [self._program, "-v", "-c", str(file)]

    def store(self, *contents: bytes) -> None:
        """Put Part 10 files in by C-STORE."""
        folder = self.folder / "outgoing"
        folder.mkdir(exist_ok=True)
        for number, content in enumerate(contents):
            (folder / f"{number}.dcm").write_bytes(content)
        subprocess.run(
            [
                *(self._store_scu, "-aec", self.ae_title, "+sd", "-R"),
                *("127.0.0.1", str(self.dicom_port), str(folder)),
            ],
            check=True,
            capture_output=True,
            timeout=_STORE_SECONDS,
        )
        for file in folder.iterdir():
            file.unlink()

    def files(self) -> list[Path]:
        """The objects that it keeps."""
        return [path for path in self.area.iterdir() if path.name.endswith(".dcm")]


@dataclass(frozen=True, slots=True)
class ArchivedSeries:
    """A series of synthetic images in an archive."""

    study_instance_uid: str
    series_instance_uid: str
    sop_instance_uids: tuple[str, ...]


def archived_image(
    study: str,
    series: str,
    image: str,
    *,
    day: str = "20190102",
    time: str | None = "101500",
    modality: str = "DX",
    sop_class_uid: str = DX,
    accession: str = "",
    rows: int = 64,
    **attributes: Any,
) -> bytes:
    """A small chest radiograph as a Part 10 file. `time` None: without a StudyTime."""
    pixels = np.arange(rows * rows, dtype=np.uint16).reshape(rows, rows) % 4096
    timed = {} if time is None else {"StudyTime": time}
    dataset = radiograph(
        pixels,
        12,
        SOPClassUID=sop_class_uid,
        SOPInstanceUID=image,
        StudyInstanceUID=study,
        SeriesInstanceUID=series,
        StudyDate=day,
        Modality=modality,
        AccessionNumber=accession,
        PatientID=f"P{study.rpartition('.')[2]}",
        PatientName="Old^Study",
        StudyID="1",
        SeriesNumber="1",
        InstanceNumber="1",
        **timed,
        **attributes,
    )
    return part10(dataset)


def archived_report(study: str, series: str, image: str, *, day: str = "20190102") -> bytes:
    """A Basic Text SR in a study, as a class that a receiver of images does not take."""
    dataset = Dataset()
    dataset.SOPClassUID = BASIC_TEXT_SR
    dataset.SOPInstanceUID = image
    dataset.StudyInstanceUID = study
    dataset.SeriesInstanceUID = series
    dataset.StudyDate = day
    dataset.StudyTime = "101500"
    dataset.Modality = "SR"
    dataset.PatientID = f"P{study.rpartition('.')[2]}"
    dataset.PatientName = "Old^Study"
    dataset.AccessionNumber = ""
    dataset.StudyID = "1"
    dataset.SeriesNumber = "2"
    dataset.InstanceNumber = "1"
    return part10(dataset)


def archived_series(study: str, images: int, *, number: int = 1) -> ArchivedSeries:
    """The UIDs of a series with so many images."""
    series = f"{study}.{number}"
    return ArchivedSeries(study, series, tuple(f"{series}.{n}" for n in range(1, images + 1)))


def contents_of(series: Iterable[ArchivedSeries], **options: Any) -> Sequence[bytes]:
    """The Part 10 files of these series; `options` as of `archived_image`."""
    return [
        archived_image(item.study_instance_uid, item.series_instance_uid, image, **options)
        for item in series
        for image in item.sop_instance_uids
    ]


def read_part10(content: bytes) -> Dataset:
    """The data set of a Part 10 file."""
    return pydicom.dcmread(io.BytesIO(content))


def part10(dataset: Dataset) -> bytes:
    """The data set as a Part 10 file in Explicit VR Little Endian."""
    dataset.ensure_file_meta()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
    stream = io.BytesIO()
    dataset.save_as(stream, enforce_file_format=True)
    return stream.getvalue()
