"""The peer as a part under test: started, waited for, accounted and stopped like Hilum."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from testing.serving import REPOSITORY, free_ports


class PeerEnded(Exception):
    """The peer ended by itself, or was not ready in time; holds the end of its log."""


class PeerSystem:
    """Orthanc and two workers, one of the VARIANTS, with its state in `folder`.

    A context manager; ready on entry.
    """

    def __init__(
        self,
        folder: Path,
        variant: str,
        material: Path,
        precision: str,
        pacs: tuple[int, str],
        stable_age_seconds: int = 1,
    ) -> None:
        self.dicom_port, self.http_port = free_ports(2)
        self.log = folder / "peer.log"
        self._folder = folder
        port, ae_title = pacs
        self._options = {
            "folder": folder,
            "material": material,
            "variant": variant,
            "precision": precision,
            "dicom-port": self.dicom_port,
            "http-port": self.http_port,
            "pacs": f"127.0.0.1:{port}",
            "pacs-ae-title": ae_title,
            "stable-age": stable_age_seconds,
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Root of its processes."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        """Start it. Raises PeerEnded."""
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "load_tests.peer.serve"]
        command += [
            word for name, value in self._options.items() for word in (f"--{name}", str(value))
        ]
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        try:
            self._wait_until_ready(120)
        except PeerEnded:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop, however the block ended."""
        self.stop()

    def stop(self) -> None:
        """SIGTERM; after 30 s SIGKILL for the whole group."""
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def log_end(self, lines: int = 15) -> str:
        """The last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _wait_until_ready(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not (self._folder / "ready").exists():
            if (
                self._process is None
                or self._process.poll() is not None
                or time.monotonic() > deadline
            ):
                raise PeerEnded(f"the peer is not ready.\n{self.log_end()}")
            time.sleep(0.1)


def peer_role(command: Sequence[str], parent_role: str) -> str:
    """Role of a process of the peer.

    Orthanc, worker, or poller: their parent, with multiprocessing's tracker.
    """
    del parent_role
    if command and Path(command[0]).name == "Orthanc":
        return "orthanc"
    if "spawn_main" in " ".join(command):
        return "worker"
    return "poller"
