"""Facts of this host for its heartbeat, and the faults among all hosts."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from hilum.domain import (
    SILENT_ARCHIVE,
    Host,
    HostFacts,
    HostFault,
    HostProblem,
    host_problems,
    is_namesake,
)
from hilum.errors import ConfigurationError
from hilum.observability import telemetry
from hilum.services.host_report import host_facts, machine, needs_archive
from hilum.services.launch_spec import process_name
from hilum.settings import Settings
from hilum.store.archive.archive import Archive
from hilum.store.archive.archives import open_archive
from hilum.store.archive.consistency import archive_of
from hilum.store.ledger import Ledger
from hilum.store.rollouts.advertised_releases import SUPERVISOR
from hilum.supervisor.clock_monitor import ClockMonitor

_LOOK_SECONDS: Final = 15.0
_SILENT_SECONDS: Final = 60.0
_WATCH_SECONDS: Final = 9.0  # three heartbeats of another host
_RECENT_SECONDS: Final = 60.0
_log = telemetry.logger("supervisor")


@dataclass(slots=True)
class ArchiveWatch:
    """A thread that looks at the archive, whose file system may not answer for hours."""

    ledger_url: str
    archive: Archive
    _found: str | None = None
    _looked_at: float = field(default_factory=time.monotonic)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="archive watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let the thread end; one that waits for a file system ends with the process."""
        self._stop.set()

    @property
    def found(self) -> str | None:
        """The last answer; None: none yet; silent: the last look failed, or takes too long."""
        late = time.monotonic() - self._looked_at > _SILENT_SECONDS
        return SILENT_ARCHIVE if late else self._found

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._found = archive_of(self.ledger_url, self.archive)
            except OSError as error:
                self._found = SILENT_ARCHIVE
                _log.warning("archive_not_seen", problem=error.strerror or type(error).__name__)
            except SQLAlchemyError:
                pass  # the ledger is away, which the heartbeat logs; the last answer stays
            self._looked_at = time.monotonic()
            self._stop.wait(_LOOK_SECONDS)


class HostMonitor:
    """The facts of this host, and the faults among all hosts, which are logged when they change."""

    def __init__(self, settings: Settings, role: str) -> None:
        self.started_at = time.time()
        self.problem = ""
        self._settings = settings
        self._role = role
        self._clock = ClockMonitor(settings.ledger.clock_tolerance_seconds)
        self._archive = (
            ArchiveWatch(settings.ledger_url, open_archive(settings))
            if needs_archive(role)
            else None
        )
        self._next_look = float("-inf")
        self._taken_until = float("-inf")
        self._has_beaten = False
        self._said: frozenset[tuple[HostFault, str]] = frozenset()

    def start(self) -> None:
        """Begin to look at the archive."""
        if self._archive is not None:
            self._archive.start()

    def stop(self) -> None:
        """Look no more."""
        if self._archive is not None:
            self._archive.stop()

    def facts(self, ledger: Ledger) -> HostFacts:
        """Return the facts of this moment. Raises one of `AWAY`."""
        self._clock.look(ledger)
        archive = None if self._archive is None else self._archive.found
        return host_facts(self._settings, self._role, self._clock.reading, archive)

    def look(self, ledger: Ledger, *, is_ours: bool) -> None:
        """Compare the hosts if it is time to. Raises one of `AWAY`.

        `is_ours`: whether the last heartbeat under our name was ours. In containers process numbers
        may be equal, too; then two machines write one row.
        """
        if self._has_beaten and not is_ours:
            self._taken_until = time.monotonic() + _SILENT_SECONDS
        self._has_beaten = True
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_SECONDS
        hosts = ledger.hosts()
        own = _own(hosts, self.started_at)
        self.problem = name_problem(hosts, own)
        if time.monotonic() < self._taken_until:
            self.problem = "another machine has the name and the process number of this one"
        found = host_problems(hosts, self._settings.ledger.clock_tolerance_seconds)
        self._say([item for item in found if item.key == own.key])

    def _say(self, found: Sequence[HostProblem]) -> None:
        """Log new faults of this host, and their end. The clock has its own events."""
        now = {(item.fault, item.detail): item for item in found if item.fault != HostFault.CLOCK}
        for key, item in now.items():
            if key not in self._said:
                _log.error(
                    "host_problem", fault=item.fault, problem=item.detail, advice=item.advice
                )
        if self._said and not now:
            _log.info("host_problems_over")
        self._said = frozenset(now)


def name_problem(hosts: Sequence[Host], own: Host) -> str:
    """Return why this server must not work: another machine had its name before. Else empty."""
    earlier = [host for host in hosts if host.is_alive and is_namesake(own, host)]
    return f"another machine has the name {own.host}, and had it before" if earlier else ""


def _own(hosts: Sequence[Host], started_at: float) -> Host:
    name = process_name(SUPERVISOR, os.getpid())
    host = next((each.host for each in hosts if each.name == name), os.uname().nodename)
    facts = HostFacts(machine=machine())
    return Host(name, host, os.getpid(), started_at, started_at, 0.0, facts)


def require_own_name(ledger: Ledger, stop: threading.Event) -> None:
    """Raise ConfigurationError if another machine works under the name of this host.

    The two would end each other's leases. Its heartbeat is watched, because a host that died has
    left one, and clocks may differ.
    """
    own = _own((), math.inf)
    before = {
        host.name: host.beat_at
        for host in _namesakes(ledger, own)
        if host.age_seconds < _RECENT_SECONDS
    }
    if not before:
        return
    _log.warning(
        "name_watched",
        seconds=_WATCH_SECONDS,
        problem=f"another machine was {own.host} a moment ago",
    )
    stop.wait(_WATCH_SECONDS)
    if any(host.beat_at != before.get(host.name, host.beat_at) for host in _namesakes(ledger, own)):
        advice = (
            "Give each host a name of its own (hostnamectl, or the container's hostname); `hilum"
            " hosts` shows them."
        )
        raise ConfigurationError(
            [f"site: another machine works under the name of this host, {own.host}. {advice}"]
        )
    ledger.forget_processes(before)  # else it would count as alive for seconds more


def _namesakes(ledger: Ledger, own: Host) -> list[Host]:
    return [host for host in ledger.hosts() if is_namesake(own, host)]
