"""Real DICOM peers for tests, started on free loopback ports.

Orthanc as the PACS, DCMTK's storescp as the plain receiver.

A test that needs a program which is not installed skips with the name of its Debian package; with
CI=true it fails instead.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from testing.serving import free_ports

COMPREHENSIVE_3D_SR = "1.2.840.10008.5.1.4.1.1.88.34"
_DEBIAN_SBIN = "/usr/sbin"  # Orthanc lives there, and a user's PATH seldom names it
_START_SECONDS = 90.0


def require_program(name: str, package: str) -> str:
    """Path of a program; skips the test without it, or fails it with CI=true."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}{os.pathsep}{_DEBIAN_SBIN}")
    if found is None:
        missing(f"{name} is not installed (Debian package {package})")
    assert found is not None
    return found


def missing(reason: str) -> None:
    """Skip with this reason; a CI machine has every part, so there it is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def free_port() -> int:
    """A loopback TCP port without a listener a moment ago."""
    return free_ports(1)[0]


def wait_for_port(
    port: int, process: subprocess.Popen[bytes] | None = None, seconds: float = _START_SECONDS
) -> None:
    """Return when the port accepts a connection.

    Raises when the process ended or the time is over.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with status {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"nothing listens on 127.0.0.1:{port} after {seconds:.0f} s")


def stop_process(process: subprocess.Popen[bytes], seconds: float = 10.0) -> None:
    """SIGTERM, then SIGKILL."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Peer:
    """A program with a private folder, alive inside a `with` block.

    `start` and `stop` may also be called in between.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hilum-peer-"))
        self.log_file = self.folder / "log.txt"
        self.process: subprocess.Popen[bytes] | None = None

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _ports(self) -> list[int]:
        raise NotImplementedError

    def start(self) -> None:
        """Start the program and wait until its ports answer."""
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )
        for port in self._ports():
            wait_for_port(port, self.process)

    def stop(self) -> None:
        """Stop the program; its folder stays until the `with` block ends."""
        if self.process is not None:
            stop_process(self.process)
            self.process = None

    def log(self) -> str:
        """Everything the program has printed."""
        return (
            self.log_file.read_text(encoding="utf-8", errors="replace")
            if self.log_file.exists()
            else ""
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class Orthanc(Peer):
    """Orthanc with an empty private database; `settings` overrides its configuration."""

    def __init__(self, ae_title: str = "ORTHANC", **settings: Any) -> None:
        self._program = require_program("Orthanc", "orthanc")
        super().__init__()
        self.ae_title = ae_title
        self.dicom_port, self.http_port = free_port(), free_port()
        self._settings = settings

    def _ports(self) -> list[int]:
        return [self.http_port, self.dicom_port]

    def _command(self) -> list[str]:
        plugin = Path("/usr/share/orthanc/plugins/libOrthancDicomWeb.so")
        configuration = {
            "Name": "hilum-test",
            "StorageDirectory": str(self.folder / "storage"),
            "IndexDirectory": str(self.folder / "storage"),
            "DicomAet": self.ae_title,
            "DicomPort": self.dicom_port,
            "DicomCheckCalledAet": False,
            "HttpPort": self.http_port,
            "RemoteAccessAllowed": False,
            "AuthenticationEnabled": False,
            "DicomThreadsCount": 4,
            "Plugins": [str(plugin)] if plugin.exists() else [],
            **self._settings,
        }
        file = self.folder / "orthanc.json"
        file.write_text(json.dumps(configuration), encoding="utf-8")
        return [self._program, "--verbose", str(file)]

    def request(self, path: str, method: str = "GET", body: bytes | None = None) -> bytes:
        """One call of Orthanc's REST API."""
        call = urllib.request.Request(
            f"http://127.0.0.1:{self.http_port}{path}", data=body, method=method
        )
        with urllib.request.urlopen(call, timeout=30) as answer:
            return bytes(answer.read())

    def get(self, path: str) -> Any:
        """Decoded JSON of one GET."""
        return json.loads(self.request(path))

    def instances(self) -> list[str]:
        """Orthanc's identifiers of all stored instances."""
        return list(self.get("/instances"))

    def file(self, identifier: str) -> bytes:
        """The stored Part 10 file."""
        return self.request(f"/instances/{identifier}/file")

    def find(self, sop_instance_uid: str) -> list[str]:
        """Orthanc's identifiers of this SOP Instance: one, or none."""
        found = json.loads(self.request("/tools/lookup", "POST", sop_instance_uid.encode()))
        return [str(item["ID"]) for item in found if item["Type"] == "Instance"]

    def store(self, content: bytes) -> dict[str, Any]:
        """Put a Part 10 file in by REST."""
        return dict(json.loads(self.request("/instances", "POST", content)))


class StoreScp(Peer):
    """DCMTK's storescp. It writes the received data sets bit by bit (`+B`) into `received`.

    `refuse_sr=True` accepts CR, DX, SC and Verification only, as a PACS does that knows no Comprehensive 3D SR; `takes` are classes
    that it accepts besides, by DCMTK's names (`EnhancedSRStorage`).
    `port` fixes the port, so that a test can have it down and then up. `extra` are further storescp options
    (`--abort-after`, `--sleep-after 3`, `--refuse`).
    """

    def __init__(
        self,
        ae_title: str = "STORESCP",
        *,
        refuse_sr: bool = False,
        port: int | None = None,
        extra: tuple[str, ...] = (),
        takes: tuple[str, ...] = (),
    ) -> None:
        self._program = require_program("storescp", "dcmtk")
        super().__init__()
        self.ae_title = ae_title
        self.port = port or free_port()
        self.refuse_sr = refuse_sr or bool(takes)
        self._takes = takes
        self.extra = extra
        self.received = self.folder / "received"
        self.received.mkdir()

    def _ports(self) -> list[int]:
        return [self.port]

    def _command(self) -> list[str]:
        negotiation = (
            ["--config-file", str(self._profile()), "IMAGES"] if self.refuse_sr else ["+xa"]
        )
        options = ["-v", "--fork", "+B", "-aet", self.ae_title, "-od", str(self.received), "-dhl"]
        return [self._program, *options, *negotiation, *self.extra, str(self.port)]

    def _profile(self) -> Path:
        """An association negotiation profile without the SR classes that were not asked for (format.

        DCMTK's asconfig.txt).
        """
        classes = (
            "VerificationSOPClass",
            "ComputedRadiographyImageStorage",
            "DigitalXRayImageStorageForPresentation",
            "SecondaryCaptureImageStorage",
            *self._takes,
        )
        lines = [
            "[[TransferSyntaxes]]",
            "[Uncompressed]",
            "TransferSyntax1 = LocalEndianExplicit",
            "TransferSyntax2 = LittleEndianImplicit",
        ]
        lines += [
            "[[PresentationContexts]]",
            "[Images]",
            *(
                f"PresentationContext{n} = {name}\\Uncompressed"
                for n, name in enumerate(classes, 1)
            ),
        ]
        lines += ["[[Profiles]]", "[Images]", "PresentationContexts = Images"]
        file = self.folder / "storescp.cfg"
        file.write_text("\n".join(lines) + "\n", encoding="ascii")
        return file

    def files(self) -> list[Path]:
        """Received files in order of their names."""
        return sorted(path for path in self.received.iterdir() if path.is_file())

    def associations(self) -> int:
        """Associations that storescp acknowledged since the start."""
        return self.log().count("Association Acknowledged")


@pytest.fixture(scope="module")
def refuser() -> Iterator[StoreScp]:
    """A receiver that refuses every report."""
    with StoreScp(refuse_sr=True) as running:
        yield running


@pytest.fixture(scope="module")
def down_port() -> int:
    """A port on which nothing listens."""
    return free_port()
