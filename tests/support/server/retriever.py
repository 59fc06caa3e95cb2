"""The retriever in a forked process, as the supervisor of a host with listeners starts it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from hilum.backoff import Backoff
from hilum.observability import telemetry
from hilum.processes import retriever as retrieving
from hilum.retrieve.pace import source_breaker
from hilum.services.campaigns import progress
from hilum.services.launch_spec import LaunchSpec
from hilum.settings import load
from hilum.store.ledger import Ledger
from testing.serving import Hilum
from tests.support.machine.forks import FORKS, become_program

_RETRY_SECONDS = 2.0


@contextmanager
def retriever(installation: Hilum) -> Iterator[ForkServerProcess]:
    """The process, killed at the end; a retry and a rest take it seconds instead of minutes."""
    log = installation.folder / "retriever.log"
    log.touch()
    running = FORKS.Process(target=_retrieve, args=(installation.settings_file, log), daemon=True)
    running.start()
    try:
        yield running
    finally:
        running.kill()
        running.join()


def _retrieve(settings_file: Path, log: Path) -> None:
    """The child."""
    become_program((Path(os.devnull), log, log))
    progress.RETRY_SECONDS = (_RETRY_SECONDS,) * 3  # type: ignore[misc] # a constant but for this
    source_breaker._PAUSES = Backoff(1.0, 2.0)  # type: ignore[misc] # the same
    settings = load(settings_file)
    telemetry.configure_logging("info", "json", "retriever")
    spec = LaunchSpec("retriever", os.getppid(), "")
    retrieving.run(spec, settings, Ledger(settings.ledger_url), threading.Event())
