"""The peer's door: an Orthanc of its own, set up for speed as the Orthanc Book advises."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import urllib3

AE_TITLE = "PEER"
_LARGEST_PDU_BYTES = 131072  # the most that Orthanc takes


class OrthancEnded(Exception):
    """Orthanc did not start; its log says why."""


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


class Orthanc:
    """A context manager; ready on entry."""

    def __init__(
        self, folder: Path, dicom_port: int, http_port: int, stable_age_seconds: int
    ) -> None:
        self.url = f"http://127.0.0.1:{http_port}"
        self._folder = folder
        self._configuration = configuration(folder, dicom_port, http_port, stable_age_seconds)
        self._process: subprocess.Popen[bytes] | None = None

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
        """Start it. Raises OrthancEnded."""
        self._folder.mkdir(parents=True)
        path = self._folder / "orthanc.json"
        path.write_text(json.dumps(self._configuration, indent=1), encoding="utf-8")
        with (self._folder / "orthanc.log").open("wb") as log:
            self._process = subprocess.Popen(
                [self.program() or "Orthanc", str(path)], stdout=log, stderr=log
            )
        self._wait_until_it_answers()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=30)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + 30
        while not _answers(self.url):
            if (
                self._process is None
                or self._process.poll() is not None
                or time.monotonic() > deadline
            ):
                raise OrthancEnded(f"Orthanc does not answer; see {self._folder / 'orthanc.log'}")
            time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        return urllib3.request("GET", f"{url}/system", retries=False, timeout=2).status == 200
    except urllib3.exceptions.HTTPError:
        return False
