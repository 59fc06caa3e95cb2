"""Receivers of our documents as they stand in hospitals.

Orthanc, DCMTK's storescp, or a folder where neither is installed.

Each is a context manager; `settings` is what goes into `[destinations.<name>]`, `fetch` gets a
document back out of it.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import httpx
import pydicom

from testing.serving import REPOSITORY, Section, free_ports

DICOMWEB_PLUGIN: Final = Path("/usr/share/orthanc/plugins/libOrthancDicomWeb.so")
_START_SECONDS: Final = 30.0


class Peer(Protocol):
    """A destination under our control."""

    title: str

    @property
    def settings(self) -> Section:
        """The destination's table in the settings."""

    def fetch(self, sop_instance_uid: str) -> Path | None:
        """The received object as a Part 10 file; None: it did not arrive."""

    def where(self, sop_instance_uid: str) -> str:
        """Where a person finds it."""

    def __enter__(self) -> Self:
        """Start it."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop it."""


def best_peer(folder: Path) -> Peer:
    """Orthanc when installed, else storescp, else a folder."""
    if Orthanc.program():
        return Orthanc(folder / "orthanc")
    if shutil.which("storescp"):
        return StoreScp(folder / "storescp")
    return Folder(folder / "outbox")


class ProgramEnded(Exception):
    """A program does not listen; its log says why."""


class Program:
    """A program that listens on a port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()  # it works in another folder
        self.folder.mkdir(parents=True)
        self.log_file = self.folder / "log.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self._command: tuple[str, ...] = ()
        self._ports: tuple[int, ...] = ()

    def kill(self) -> None:
        """End it with SIGKILL, in the middle of its work."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def start_again(self) -> None:
        """Start it as before, on the same ports, with the files that it left."""
        self._start(self._command, *self._ports)

    def _start(self, command: Sequence[str], *ports: int) -> None:
        """Return when it listens. Raises ProgramEnded."""
        self._command = tuple(command)
        self._ports = ports
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=REPOSITORY)
        deadline = time.monotonic() + _START_SECONDS
        while not all(map(_listens, ports)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise ProgramEnded(
                    f"{command[0]} does not listen on {' and '.join(map(str, ports))}; see"
                    f" {self.log_file}"
                )
            time.sleep(0.05)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=20)


class Orthanc(Program):
    """An Orthanc with a database of its own.

    Its DICOM port listens on all addresses: version 1.10 cannot restrict it. `dicomweb`: with its
    plug-in.
    """

    title = "Orthanc"

    def __init__(self, folder: Path, *, dicomweb: bool = False) -> None:
        super().__init__(folder)
        self._dicomweb = dicomweb
        self.dicom_port, self.http_port = free_ports(2)
        self._http = f"http://127.0.0.1:{self.http_port}"

    @staticmethod
    def program() -> str | None:
        """Debian installs it in sbin, which is not on everybody's PATH."""
        return shutil.which("Orthanc") or shutil.which("Orthanc", path="/usr/sbin")

    @property
    def settings(self) -> Section:
        """Our destination."""
        return {
            "kind": "dicom",
            "host": "127.0.0.1",
            "port": self.dicom_port,
            "ae_title": "ORTHANC",
            "accept_untrained": True,
        }

    @property
    def dicomweb_url(self) -> str:
        """The root of its DICOMweb service."""
        return f"{self._http}/dicom-web"

    def count(self) -> int:
        """How many instances it holds."""
        return int(httpx.get(f"{self._http}/statistics", timeout=10).json()["CountInstances"])

    def __enter__(self) -> Self:
        """Start it with a configuration of its own."""
        configuration = {
            "Name": "Hilum demo",
            "StorageDirectory": str(self.folder / "storage"),
            "IndexDirectory": str(self.folder / "index"),
            "DicomAet": "ORTHANC",
            "DicomPort": self.dicom_port,
            "HttpPort": self.http_port,
            "RemoteAccessAllowed": False,
            "Plugins": [str(DICOMWEB_PLUGIN)] if self._dicomweb else [],
            "DicomWeb": {"Enable": self._dicomweb, "Root": "/dicom-web/"},
        }
        path = self.folder / "orthanc.json"
        path.write_text(json.dumps(configuration), encoding="utf-8")
        self._start([self.program() or "Orthanc", str(path)], self.http_port, self.dicom_port)
        return self

    def fetch(self, sop_instance_uid: str) -> Path | None:
        """By Orthanc's REST."""
        found = self._lookup(sop_instance_uid)
        if found is None:
            return None
        target = self.folder / f"{sop_instance_uid}.dcm"
        target.write_bytes(httpx.get(f"{self._http}/instances/{found}/file", timeout=10).content)
        return target

    def where(self, sop_instance_uid: str) -> str:
        """Orthanc's page of the instance."""
        return f"{self._http}/app/explorer.html#instance?uuid={self._lookup(sop_instance_uid)}"

    def _lookup(self, sop_instance_uid: str) -> str | None:
        answers = httpx.post(
            f"{self._http}/tools/lookup", content=sop_instance_uid, timeout=10
        ).json()
        return next((item["ID"] for item in answers if item["Type"] == "Instance"), None)


class StoreScp(Program):
    """DCMTK's storescp, which writes one file an object."""

    title = "DCMTK storescp"
    _port = 0

    @property
    def settings(self) -> Section:
        """Our destination."""
        return {
            "kind": "dicom",
            "host": "127.0.0.1",
            "port": self._port,
            "ae_title": "STORESCP",
            "accept_untrained": True,
        }

    def __enter__(self) -> Self:
        """Start it on a free port."""
        (self._port,) = free_ports(1)
        received = self.folder / "received"
        received.mkdir()
        self._start(
            [
                "storescp",
                "--output-directory",
                str(received),
                "--aetitle",
                "STORESCP",
                str(self._port),
            ],
            self._port,
        )
        return self

    def fetch(self, sop_instance_uid: str) -> Path | None:
        """The file that holds it."""
        return find_document(self.folder / "received", sop_instance_uid)

    def where(self, sop_instance_uid: str) -> str:
        """Its path."""
        return str(self.fetch(sop_instance_uid))


class Folder:
    """A folder destination: no peer at all."""

    title = "folder"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)

    @property
    def settings(self) -> Section:
        """Our destination."""
        return {"kind": "folder", "path": str(self.folder), "accept_untrained": True}

    def __enter__(self) -> Self:
        """Nothing to start."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Nothing runs."""

    def fetch(self, sop_instance_uid: str) -> Path | None:
        """The file that holds it."""
        return find_document(self.folder, sop_instance_uid)

    def where(self, sop_instance_uid: str) -> str:
        """Its path."""
        return str(self.fetch(sop_instance_uid))


def find_document(folder: Path, sop_instance_uid: str) -> Path | None:
    """The DICOM file below `folder` with this SOP Instance UID."""
    return next(
        (
            path
            for path in sorted(folder.rglob("*"))
            if path.is_file() and _uid_of(path) == sop_instance_uid
        ),
        None,
    )


def _uid_of(path: Path) -> str | None:
    try:
        value: Any = pydicom.dcmread(path, specific_tags=["SOPInstanceUID"]).get("SOPInstanceUID")
    except pydicom.errors.InvalidDicomError:
        return None
    return str(value)


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
