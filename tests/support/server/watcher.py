"""The watcher of a folder in a forked process, as the supervisor of a host starts it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from hilum.observability import telemetry
from hilum.processes import watcher as watching
from hilum.settings import load
from hilum.store.ledger import Ledger
from testing.serving import Hilum
from tests.support.ledger.database import rows_of
from tests.support.machine.forks import FORKS, become_program


@contextmanager
def watcher(installation: Hilum, log: Path) -> Iterator[ForkServerProcess]:
    """The process, killed at the end; its log is written to `log`."""
    log.write_bytes(b"")
    running = FORKS.Process(target=_watch, args=(installation.settings_file, log), daemon=True)
    running.start()
    try:
        yield running
    finally:
        running.kill()
        running.join()


def _watch(settings_file: Path, log: Path) -> None:
    """The child."""
    become_program((Path(os.devnull), log, log))
    settings = load(settings_file)
    telemetry.configure_logging("info", "json", "watcher")
    watching.run(None, settings, Ledger(settings.ledger_url), threading.Event())


def stored(installation: Hilum) -> int:
    """Images in the ledger of an installation."""
    return len(rows_of(installation.folder / "state", "SELECT 1 FROM instance"))
