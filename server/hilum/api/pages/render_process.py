"""The web process's side of the rendering of pictures.

One process runs at a time. It starts with the first request and is ended when it hangs.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from hilum.api.pages import render_worker
from hilum.errors import Retry, WorkerDied
from hilum.observability import telemetry

FAILED: Final = "painting_failed"
_START_SECONDS = 60.0
_PICTURE_SECONDS = 15.0
_LARGEST_ANSWER: Final = 64 << 20
_WAITING: Final = (
    6  # requests that may wait for the one process; each holds one of the server's threads
)
_ENVIRONMENT: Final = (
    "PATH",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
)  # not the token, not the ledger's password
log = telemetry.logger("api")


@dataclass(frozen=True, slots=True)
class NoPicture:
    """Why there is no picture: a reason, and a detail."""

    reason: str
    detail: str = ""


class Painter:
    """One painting process and the pipe to it. Thread-safe."""

    def __init__(self, seconds: float = _PICTURE_SECONDS) -> None:
        self._seconds = seconds
        self._turn = threading.Lock()
        self._waiting = threading.BoundedSemaphore(_WAITING)
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None

    def paint(self, source: Path | bytes, maximum_pixels: int) -> bytes | NoPicture:
        """Return a PNG, or the reason without one. Raises Retry when too many ask at once."""
        if not self._waiting.acquire(blocking=False):
            raise Retry("too many pictures are asked for at once", after_seconds=2)
        try:
            with self._turn:
                return self._paint(
                    render_worker.PaintRequest(source, maximum_pixels, int(self._seconds) + 2)
                )
        finally:
            self._waiting.release()

    def _paint(self, order: render_worker.PaintRequest) -> bytes | NoPicture:
        try:
            answer = self._ask(order)
        except WorkerDied:
            log.warning(
                "render_process_died",
                advice=(
                    "the object crashed or hung its decoder, or memory is short; the page says so"
                ),
            )
            return NoPicture(FAILED)
        return answer[1:] if answer[:1] == render_worker.PNG else _no_picture(answer[1:])

    def _ask(self, order: render_worker.PaintRequest) -> bytes:
        """Raises WorkerDied if the process crashes or takes longer than allowed.

        It is gone then.
        """
        try:
            pipe = self._ready_pipe()
            pipe.send(order)
            return _receive(pipe, self._seconds)
        except (EOFError, OSError, WorkerDied) as error:
            self.stop()
            raise WorkerDied from error

    def _ready_pipe(self) -> Connection:
        """Return the pipe to a live process.

        A process that has ended after an idle time is replaced.
        """
        if (
            self._pipe is not None
            and self._process is not None
            and self._process.poll() is None
            and not self._pipe.poll(0)
        ):
            return self._pipe
        self.stop()
        self._pipe, theirs = multiprocessing.Pipe()
        command = [sys.executable, "-m", "hilum.api.pages.render_worker", str(theirs.fileno())]
        kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        nothing = subprocess.DEVNULL  # tracebacks and libraries' warnings quote headers
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command,
            pass_fds=[theirs.fileno()],
            env=kept,
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
        )
        theirs.close()
        _receive(self._pipe, _START_SECONDS)
        return self._pipe

    def stop(self) -> None:
        """End the process at once, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None


def _receive(pipe: Connection, seconds: float) -> bytes:
    if not pipe.poll(seconds):
        raise WorkerDied
    return pipe.recv_bytes(_LARGEST_ANSWER)


def _no_picture(answer: bytes) -> NoPicture:
    """Return the answer of a process that a file may have taken over, only in the right form."""
    try:
        said = json.loads(answer)
        return NoPicture(str(said["reason"])[:40], str(said["detail"])[:200])
    except (ValueError, KeyError, TypeError):
        return NoPicture(FAILED)
