"""Old studies: drawn once, as files, and in an Orthanc that gives them back by C-MOVE."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import urllib3
from pydicom import Dataset
from pydicom.uid import generate_uid

from load_tests.peer.orthanc import Orthanc
from testing.phantoms import phantom

AE_TITLE = "ARCHIVE"
MOVE_TITLE = "HILUM_ARC"


def draw(folder: Path, studies: int, rows: int, columns: int) -> list[Path]:
    """Files of `studies` studies of two images, one below the other in a folder a study.

    Two studies are drawn; the others have their pixels and UIDs of their own.
    """
    drawn = [
        phantom.make_study(seed, views=("PA", "AP"), rows=rows, columns=columns)
        for seed in range(2)
    ]
    files: list[Path] = []
    for number in range(studies):
        place = folder / f"{number:05}"
        place.mkdir(parents=True)
        files += [
            phantom.save(image, place / f"{image.SOPInstanceUID}.dcm")
            for image in _again(drawn[number % 2])
        ]
    return files


def _again(study: Sequence[Dataset]) -> list[Dataset]:
    """The images with UIDs of their own."""
    uid = generate_uid()
    series: Mapping[str, str] = {str(image.SeriesInstanceUID): generate_uid() for image in study}
    made = []
    for image in study:
        new = copy.copy(image)
        new.file_meta = copy.deepcopy(image.file_meta)
        new.StudyInstanceUID = uid
        new.SeriesInstanceUID = series[str(image.SeriesInstanceUID)]
        new.SOPInstanceUID = generate_uid()
        new.file_meta.MediaStorageSOPInstanceUID = new.SOPInstanceUID
        made.append(new)
    return made


class Archive(Orthanc):
    """An Orthanc that holds old studies. `targets`: AE Titles of Move Destinations to ports."""

    def __init__(
        self, folder: Path, dicom_port: int, http_port: int, targets: Mapping[str, int]
    ) -> None:
        super().__init__(folder, dicom_port, http_port, stable_age_seconds=60)
        self.dicom_port = dicom_port
        self._configuration |= {
            "Name": "archive",
            "DicomAet": AE_TITLE,
            "DicomAlwaysAllowFind": True,
            "DicomAlwaysAllowMove": True,
            "SynchronousCMove": True,
            "DicomModalities": {
                title.lower(): [title, "127.0.0.1", port] for title, port in targets.items()
            },
        }

    def fill(self, files: Sequence[Path]) -> None:
        """Put files in by REST."""
        for file in files:
            answer = urllib3.request(
                "POST",
                f"{self.url}/instances",
                body=file.read_bytes(),
                headers={"Content-Type": "application/dicom"},
            )
            if answer.status != 200:
                raise OSError(f"Orthanc answers {answer.status} to {file.name}")

    def studies(self) -> list[str]:
        """Study Instance UIDs."""
        found: list[dict[str, Any]] = urllib3.request("GET", f"{self.url}/studies?expand").json()
        return [item["MainDicomTags"]["StudyInstanceUID"] for item in found]


def move(program: str, archive: Archive, study: str, destination: str) -> None:
    """Have one study sent by DCMTK's movescu."""
    subprocess.run(
        [
            *(program, "-S", "-aet", destination, "-aec", AE_TITLE, "-aem", destination),
            *("-k", "QueryRetrieveLevel=STUDY", "-k", f"StudyInstanceUID={study}"),
            *("127.0.0.1", str(archive.dicom_port)),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
