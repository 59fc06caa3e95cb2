"""The heartbeat of a process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Self

from hilum.observability import telemetry
from hilum.services.launch_spec import process_name
from hilum.store.database.engines import AWAY, error_text
from hilum.store.ledger import Ledger

_HEARTBEAT_SECONDS = 3.0
_NAMESAKE_ADVICE = (
    "another host of this ledger has our host's name and takes our leases for its own; give each"
    " its own name and restart both"
)
log = telemetry.logger("processes")


def begin_life(ledger: Ledger, role: str) -> str:
    """Return the name under which this process will hold leases, after ending its old leases.

    The process holds none yet. Leases of that name were left by one that died with the same process
    id, as in a container started again.
    """
    name = process_name(role, os.getpid())
    try:
        ledger.end_leases(name, is_clean=False)
    except AWAY as error:
        log.warning(
            "leases_not_released",
            name=name,
            error=error_text(error),
            advice="they lapse by themselves",
        )
    return name


class Heartbeat:
    """A thread that writes to the ledger that this process is alive and whether it can work.

    The readiness probe reads it there.
    """

    def __init__(
        self,
        ledger: Ledger,
        role: str,
        readiness: Callable[[], tuple[bool, str]] = lambda: (True, ""),
    ) -> None:
        self._ledger = ledger
        self._role = role
        self._readiness = readiness
        self._name = process_name(role, os.getpid())
        self._started_at = time.time()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread, and delete the heartbeat."""
        self._stop.set()
        self._thread.join(timeout=_HEARTBEAT_SECONDS)
        self._ledger.forget_processes([self._name])

    def _beat(self) -> None:
        has_beaten = False  # an earlier owner of our name does not matter
        while not self._stop.is_set():
            is_ready, detail = self._readiness()
            try:
                is_ours = self._ledger.beat(
                    self._name,
                    self._role,
                    os.getpid(),
                    started_at=self._started_at,
                    is_ready=is_ready,
                    detail=detail,
                )
                if has_beaten and not is_ours:
                    log.error("process_name_in_use", name=self._name, advice=_NAMESAKE_ADVICE)
                has_beaten = True
            except AWAY as error:
                log.warning("heartbeat_failed", error=error_text(error))
            self._stop.wait(_HEARTBEAT_SECONDS)
