"""The peer's door: an Orthanc of its own, set up for speed as the Orthanc Book advises."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Self

from testing.peers import Program

AE_TITLE = "PEER"
_LARGEST_PDU_BYTES = 131072  # the most that Orthanc takes


def configuration(
    folder: Path, dicom_port: int, http_port: int, stable_age_seconds: int
) -> dict[str, Any]:
    """Everything that differs from Orthanc's defaults, or that the measurement rests on."""
    return {
        "Name": "peer",
        "StorageDirectory": str(folder / "storage"),
        "IndexDirectory": str(folder / "index"),
        "DicomAet": AE_TITLE,
        "DicomPort": dicom_port,
        "HttpPort": http_port,
        "RemoteAccessAllowed": False,
        "Plugins": [],
        "StableAge": stable_age_seconds,
        "KeepAlive": True,
        "TcpNoDelay": True,
        "HttpCompressionEnabled": False,
        "StorageCompression": False,
        "MaximumPduLength": _LARGEST_PDU_BYTES,
    }


class Orthanc(Program):
    """A context manager; ready on entry."""

    def __init__(
        self, folder: Path, dicom_port: int, http_port: int, stable_age_seconds: int
    ) -> None:
        super().__init__(folder)
        self.url = f"http://127.0.0.1:{http_port}"
        self._wanted = (http_port, dicom_port)
        self._configuration = configuration(self.folder, dicom_port, http_port, stable_age_seconds)

    @staticmethod
    def program() -> str | None:
        """Debian installs it in sbin, which is not on everybody's PATH."""
        return shutil.which("Orthanc") or shutil.which("Orthanc", path="/usr/sbin")

    @classmethod
    def version(cls) -> str:
        """Its number."""
        answer = subprocess.run(
            [cls.program() or "Orthanc", "--version"], capture_output=True, text=True, check=True
        )
        return answer.stdout.split()[1]

    def __enter__(self) -> Self:
        """Start it. Raises ProgramEnded."""
        path = self.folder / "orthanc.json"
        path.write_text(json.dumps(self._configuration, indent=1), encoding="utf-8")
        self._start([self.program() or "Orthanc", str(path)], *self._wanted)
        return self
