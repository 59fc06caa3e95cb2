"""Archives that log each image they send: Orthanc, and DCMTK's dcmqrscp."""

from __future__ import annotations

import hashlib
import math
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import urllib3
from pydicom import dcmread

from load_tests.campaign.archives import AE_TITLE, MOVE_TITLE, Archive

_DICOMWEB_PLUGIN = Path("/usr/share/orthanc/plugins/libOrthancDicomWeb.so")
_START_SECONDS = 30.0
_LOG_SECONDS = 0.1
# A busy machine makes tiny images "slow", and a campaign would rest for minutes.
_STEADY: Mapping[str, Any] = {"slow_down_factor": 0}
_ORTHANC_LINE = re.compile(r"[A-Z](\d{4}) (\d\d:\d\d:\d\d\.\d+)\b.*?\] ?(.*)")
_ORTHANC_SENDS = re.compile(r"Sending (?:resource|instance) ([0-9a-f-]{44}) to modality")
_WEB_SENDS = re.compile(
    r"GET /dicom-web/studies/([0-9.]+)/series/([0-9.]+)(?:/instances/([0-9.]+))?(?: |$)"
)
_DCMQRSCP_KEY = re.compile(r"\((0020,000e|0008,0018)\) UI \[([0-9.\\]+)\]")
# It logs no UID here: they are sent in the order of the request.
_DCMQRSCP_SENDS = re.compile(r"([0-9]+\.[0-9]+) Store SCU RQ: MsgID ([0-9]+),")
_SERIES = "0020,000e"
MOST_STUDIES = 500  # of a storage area of dcmqrscp
_LOG_SETTINGS = """\
log4cplus.rootLogger = DEBUG, console
log4cplus.appender.console = log4cplus::ConsoleAppender
log4cplus.appender.console.ImmediateFlush = true
log4cplus.appender.console.layout = log4cplus::PatternLayout
log4cplus.appender.console.layout.ConversionPattern = %D{%s.%q} %m%n
"""


class Missing(Exception):
    """A program of Debian is not installed."""


@dataclass(frozen=True, slots=True)
class Old:
    """One old image in a file."""

    file: Path
    patient_id: str
    study: str
    series: str
    image: str


@dataclass(frozen=True, slots=True)
class Sent:
    """An image that an archive has begun to send, and when (seconds since the epoch)."""

    at: float
    image: str


class SendingArchive(Protocol):
    """An archive with a log."""

    def source(self) -> Mapping[str, Any]:
        """Return its section of Hilum's settings."""

    def fill(self, files: Sequence[Path]) -> None:
        """Put files in."""

    def delete(self, images: Collection[Old]) -> None:
        """Delete images, as an administrator would."""

    def sent(self, images: Collection[Old]) -> list[Sent]:
        """Return what it has sent so far, in this order."""


class SendingOrthanc(Archive):
    """An Orthanc with a log that names each image it sends."""

    def __init__(self, folder: Path, ports: tuple[int, int], move_port: int, *, web: bool) -> None:
        super().__init__(folder, *ports, {MOVE_TITLE: move_port})
        self._web = web
        self._configuration |= {
            "DicomWeb": {"Enable": web, "Root": "/dicom-web/"},
            "Plugins": [str(_DICOMWEB_PLUGIN)] if web else [],
        }
        if web and not _DICOMWEB_PLUGIN.exists():
            raise Missing("Orthanc's DICOMweb plugin (Debian package orthanc-dicomweb)")

    def source(self) -> Mapping[str, Any]:
        """Return its section of Hilum's settings."""
        if self._web:
            return {
                "kind": "dicomweb",
                "url": f"{self.url}/dicom-web",
                "quiet_seconds": 5,
                **_STEADY,
            }
        return _move_source(self.dicom_port)

    def fill(self, files: Sequence[Path]) -> None:
        """Put files in, then log each image."""
        super().fill(files)
        urllib3.request("PUT", f"{self.url}/tools/log-level", body="verbose")

    def delete(self, images: Collection[Old]) -> None:
        """Delete images by REST."""
        for old in images:
            name = _orthanc_id(old.patient_id, old.study, old.series, old.image)
            urllib3.request("DELETE", f"{self.url}/instances/{name}")

    def sent(self, images: Collection[Old]) -> list[Sent]:
        """Return what it has sent so far."""
        log = self.log_file.read_text(errors="replace")
        return list(orthanc_sent(log, images))


class SendingDcmQrScp:
    """DCMTK's dcmqrscp with one storage area and a log with times."""

    def __init__(self, folder: Path, port: int, move_port: int) -> None:
        self._folder = folder
        self._port = port
        self._move_port = move_port
        self._area = folder / "area"
        self._area.mkdir(parents=True)
        self._log = folder / "dcmqrscp.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it."""
        tables = {
            "HostTable": f"hilum = ({MOVE_TITLE}, 127.0.0.1, {self._move_port})",
            "VendorTable": "",
            "AETable": f"{AE_TITLE} {self._area} RW ({MOST_STUDIES}, 1024mb) ANY",
        }
        lines = [f"NetworkTCPPort = {self._port}", "MaxPDUSize = 131072", "MaxAssociations = 8"]
        for name, row in tables.items():
            lines += [f"{name} BEGIN", *([row] if row else []), f"{name} END"]
        (self._folder / "dcmqrscp.cfg").write_text("\n".join([*lines, ""]), encoding="ascii")
        (self._folder / "log.cfg").write_text(_LOG_SETTINGS, encoding="ascii")
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop it."""
        self._stop()

    def source(self) -> Mapping[str, Any]:
        """Return its section of Hilum's settings."""
        return _move_source(self._port)

    def fill(self, files: Sequence[Path]) -> None:
        """Put files in by C-STORE, a folder at a time."""
        for folder in sorted({file.parent.parent for file in files}):
            command = [_program("storescu"), "-aec", AE_TITLE, "+sd", "+r", "-R"]
            subprocess.run(
                [*command, "127.0.0.1", str(self._port), str(folder)],
                check=True,
                capture_output=True,
            )

    def delete(self, images: Collection[Old]) -> None:
        """Delete images, and make its index again."""
        self._stop()
        gone = {old.image for old in images}
        for file in self._area.glob("*.dcm"):
            if dcmread(file, stop_before_pixels=True).SOPInstanceUID in gone:
                file.unlink()
        (self._area / "index.dat").unlink()
        files = sorted(str(file) for file in self._area.glob("*.dcm"))
        for first in range(0, len(files), 200):
            some = files[first : first + 200]
            subprocess.run([_program("dcmqridx"), str(self._area), *some], check=True)
        self._start()

    def sent(self, images: Collection[Old]) -> list[Sent]:
        """Return what it has sent so far."""
        series: dict[str, list[str]] = {}
        for old in images:
            series.setdefault(old.series, []).append(old.image)
        found: list[Sent] = []
        asked: list[str] = []
        is_request = False
        for line in self._log.read_text(errors="replace").splitlines():
            if line.endswith("Move SCP Request Identifiers:"):
                is_request = True
                asked = []
            elif is_request and (uid := _DCMQRSCP_KEY.search(line)):
                # in the order of the tags, so the images come before their series
                is_request = uid[1] != _SERIES
                asked = asked or (uid[2].split("\\") if is_request else series[uid[2]])
            elif sends := _DCMQRSCP_SENDS.match(line):
                found.append(Sent(float(sends[1]), asked[int(sends[2]) - 1]))
        return found

    def _start(self) -> None:
        settings = ["--log-config", str(self._folder / "log.cfg")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [_program("dcmqrscp"), *settings, "-c", str(self._folder / "dcmqrscp.cfg")],
                stdout=log,
                stderr=log,
                env={"TZ": "UTC", "PATH": "/usr/bin"},
            )
        end = time.monotonic() + _START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
            else:
                return

    def _stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=_START_SECONDS)
            self._process = None


def _program(name: str) -> str:
    found = shutil.which(name, path="/usr/bin")
    if found is None:
        raise Missing(f"{name} (Debian package dcmtk)")
    return found


def _move_source(port: int) -> Mapping[str, Any]:
    return {
        "kind": "c-move",
        "host": "127.0.0.1",
        "port": port,
        "ae_title": AE_TITLE,
        "move_ae_title": MOVE_TITLE,
        "quiet_seconds": 5,
        **_STEADY,
    }


def _orthanc_id(*identifiers: str) -> str:
    """Return the name that Orthanc gives an object: from its identifiers, the patient's first."""
    digest = hashlib.sha1("|".join(identifiers).encode(), usedforsecurity=False).hexdigest()
    return "-".join(digest[first : first + 8] for first in range(0, 40, 8))


def orthanc_sent(log: str, images: Collection[Old]) -> Iterator[Sent]:
    """Return what an Orthanc has sent by its log: by C-MOVE to a modality, or by WADO-RS."""
    series: dict[str, list[str]] = {}
    known: dict[str, Sequence[str]] = {}
    for old in images:
        series.setdefault(old.series, []).append(old.image)
        known[_orthanc_id(old.patient_id, old.study, old.series)] = series[old.series]
        known[_orthanc_id(old.patient_id, old.study, old.series, old.image)] = [old.image]
    year = datetime.now(UTC).year
    for line in log.splitlines():
        found = _ORTHANC_LINE.match(line)
        if found is None:
            continue
        sends: Sequence[str] = ()
        if moved := _ORTHANC_SENDS.search(found[3]):
            sends = known[moved[1]]
        elif web := _WEB_SENDS.search(found[3]):
            sends = [web[3]] if web[3] else series[web[2]]
        at = _moment(year, found[1], found[2])
        yield from (Sent(at, image) for image in sends)


def sent_again(sent: Sequence[Sent], received: Mapping[str, float]) -> list[Sent]:
    """Return what was sent once more although it had been received, by UID at that time.

    An archive may log a request some milliseconds after its answer has begun.
    """
    known: set[str] = set()
    found: list[Sent] = []
    for item in sent:
        if item.image in known and item.at > received.get(item.image, math.inf) + _LOG_SECONDS:
            found.append(item)
        known.add(item.image)
    return found


def _moment(year: int, day: str, clock: str) -> float:
    """Return the time of a line of Orthanc's log, which is local."""
    return datetime.strptime(f"{year}{day} {clock}", "%Y%m%d %H:%M:%S.%f").astimezone().timestamp()
