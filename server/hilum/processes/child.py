"""The common start of every child process of the supervisor."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

from sqlalchemy.exc import DatabaseError

from hilum.errors import ConfigurationError
from hilum.observability import telemetry, tracing
from hilum.services.launch_spec import LaunchSpec, die_with_parent, process_name
from hilum.settings import Settings, restore
from hilum.store.database.engines import RESTORE, is_damaged
from hilum.store.ledger import Ledger
from hilum.store.migrations.revision import require_revision

# Imported by name when the role is known, so that a listener does not load torch.
_MODULES = {
    "listener": "listener",
    "watcher": "watcher",
    "retriever": "retriever",
    "analyser": "analyser",
    "dispatcher": "dispatcher",
    "api": "web",
    "health": "web",
}
# Processes that give way to all others, from their imports on: live images go first.
_NICE = {"retriever": 10}
Run = Callable[[LaunchSpec, Settings, Ledger, threading.Event], None]
log = telemetry.logger("processes")


def main() -> int:
    """Serve until SIGTERM; return the exit status.

    It is called without garbage collection, which begins when all modules are imported.
    """
    spec = LaunchSpec(**json.load(sys.stdin))
    stop = threading.Event()
    # A terminal sends them to the whole group; the supervisor decides the order of stopping.
    # Processes that we start inherit this.
    for signum in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    _stop_on_sigterm(stop)
    die_with_parent(spec.parent_pid)
    try:
        settings = _settings_of(spec)
        require_revision(settings.ledger_url)
        with (
            contextlib.closing(_ledger(settings)) as ledger,
            _returning_leases(ledger, spec.role),
        ):
            os.nice(_NICE.get(spec.role, 0))
            run: Run = importlib.import_module(f"hilum.processes.{_MODULES[spec.role]}").run
            _trace(settings, spec, ledger)
            # otherwise each full collection visits all objects of the imports: 0.1 s during a study
            gc.freeze()
            gc.enable()
            try:
                run(spec, settings, ledger, stop)
            finally:
                tracing.close()
    except ConfigurationError as error:
        for problem in error.problems:
            log.error("cannot_start", problem=problem)
        return 2
    except DatabaseError as error:
        if not is_damaged(error):
            raise
        log.error("ledger_damaged", advice=RESTORE)
        return 2
    return 0


def _ledger(settings: Settings) -> Ledger:
    return Ledger(settings.ledger_url, direct_url=settings.ledger.direct_url)


def _trace(settings: Settings, spec: LaunchSpec, ledger: Ledger) -> None:
    if settings.tracing.endpoint:
        from hilum.observability.otlp import SpanWriter  # noqa: PLC0415 - a process without spans does not load OpenTelemetry

        writer = SpanWriter(settings.tracing.endpoint, f"{spec.role}-{spec.index}")
        tracing.begin(writer, settings.tracing.share, ledger.namespace)


def _settings_of(spec: LaunchSpec) -> Settings:
    """Restore the settings and configure the log accordingly."""
    name = f"{spec.role}-{spec.index}"
    telemetry.configure_logging("info", "json", name)  # until the settings are known
    settings = restore(spec.settings)
    telemetry.configure_logging(settings.log.level, settings.log.format, name)
    return settings


def _stop_on_sigterm(stop: threading.Event) -> None:
    """Set the event on SIGTERM, from a thread.

    A handler runs in the main thread. That thread may hold the Event's own lock at that moment, and
    would wait for itself. Nor does a handler run before the main thread wakes. It may fall asleep
    just when the signal comes, for hours.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    # with a handler, the signal's number is written to the pipe at once
    signal.signal(signal.SIGTERM, lambda *_: None)

    def await_signal() -> None:
        while signal.SIGTERM not in os.read(reader, 64):
            pass
        stop.set()

    threading.Thread(target=await_signal, name="sigterm", daemon=True).start()


@contextlib.contextmanager
def _returning_leases(ledger: Ledger, role: str) -> Iterator[None]:
    """Return the leases of a process that stops as requested, without counting an attempt."""
    yield
    ledger.end_leases(process_name(role, os.getpid()), is_clean=True)
