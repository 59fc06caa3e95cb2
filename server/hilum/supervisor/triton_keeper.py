"""The thread that keeps the embedded tritonserver running.

A server that hangs while it starts, or never starts, delays nothing else. The kernel ends a
tritonserver with the thread that started it (`EmbeddedTriton`), so this thread lives until both are
stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from hilum.backoff import RESTART
from hilum.errors import ConfigurationError
from hilum.observability import telemetry
from hilum.triton.server import EmbeddedTriton

log = telemetry.logger("supervisor")


class TritonKeeper:
    """The owner of the thread. Start it once.

    `ready` is called, in the thread, whenever the server has become ready.
    """

    def __init__(self, triton: EmbeddedTriton, ready: Callable[[], None]) -> None:
        self.url = ""
        self._triton = triton
        self._ready = ready
        self._wake = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="triton", daemon=True)

    def start(self) -> None:
        """Start the thread; `url` is empty until the server has been ready once, then constant."""
        self._thread.start()

    def look(self) -> None:
        """Wake the thread if the server has ended; called when a process has ended."""
        if self._triton.poll() is not None:
            self._wake.set()

    def stop(self) -> None:
        """Stop the server, also one that has not finished starting, and wait for its end."""
        self._over.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        failures = 0
        while not self._over.is_set():
            if self._is_started(failures):
                failures = 0
                self._await_end()
            else:
                failures += 1
                self._over.wait(_pause(failures))
        self._triton.stop()

    def _is_started(self, failures: int) -> bool:
        try:
            self.url = self._triton.start(self._over.is_set)
        except (ConfigurationError, OSError) as error:
            if not self._over.is_set():
                log.error(
                    "tritonserver_does_not_start",
                    problem=str(error),
                    again_in_seconds=_pause(failures + 1),
                )
            return False
        self._ready()
        return True

    def _await_end(self) -> None:
        while not self._over.is_set() and self._triton.poll() is None:
            self._wake.wait()
            self._wake.clear()
        if not self._over.is_set():
            log.error("tritonserver_ended", status=self._triton.poll())
            telemetry.PROCESS_RESTARTS.labels("tritonserver").inc()


def _pause(failures: int) -> float:
    """Return the seconds until the next attempt after so many failures in a row.

    The attempt after the first failure comes at once.
    """
    return 0.0 if failures <= 1 else RESTART.after(failures - 1)
