"""Faults between hosts that share a ledger and an archive, although each host is well."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from hilum.domain import Host, HostFault, host_problems
from hilum.services import roles
from hilum.services.host_report import host_facts
from hilum.settings import Settings
from hilum.store.archive.archive import Archive
from hilum.store.archive.archives import open_archive
from hilum.store.archive.consistency import archive_of
from hilum.store.database.clocks import read_clock
from hilum.store.database.engines import open_reader
from hilum.store.installation import heartbeats
from hilum.store.queries.views import LedgerViews
from hilum.supervisor.checks.check import Check

_NTP: Final = (
    "Keep time by NTP on every host, the database's included: reports may be made twice, and work"
    " be taken from its host."
)
_PATIENCE_SECONDS: Final = 300.0
_TURNS: Final = 3  # of the housekeeper; in them it takes the files of a host that is gone


def waiting(settings: Settings) -> Iterator[Check]:
    """Check for images that were acknowledged long ago and have no row.

    No process reads or reports them, and `hilum find` does not find them.
    """
    # With an object store this is the spool of this host.
    if not (archive := Archive(settings.archive_dir)).is_there:
        return
    now = time.time()
    received_at = _times_of_unindexed(archive)
    longest = now - min((min(times) for times in received_at.values()), default=now)
    if longest < max(_PATIENCE_SECONDS, _TURNS * settings.retention.check_seconds):
        yield Check("unindexed", ok=True, detail="no acknowledged image waits for its row for long")
        return
    count = sum(map(len, received_at.values()))
    names = ", ".join(sorted(received_at))
    detail = (
        f"{count} acknowledged image{'s'[: count > 1]} without a row, the oldest for"
        f" {longest / 60:.0f} min, from {names}"
    )
    advice = (
        "A server with listeners takes them within retention.check_seconds: start one. Else its log"
        " says not_indexed, or unreadable."
    )
    yield Check("unindexed", ok=False, detail=detail, advice=advice)


def _times_of_unindexed(archive: Archive) -> dict[str, list[float]]:
    """Return when the files without a row were received, by the process that received them."""
    received_at = dict[str, list[float]]()
    for file in archive.unindexed():
        with contextlib.suppress(FileNotFoundError):  # it has its row
            moment = file.stat().st_mtime
            received_at.setdefault(file.parent.name, []).append(moment)
    return received_at


def clock(settings: Settings, now: Callable[[], float] = time.time) -> Iterator[Check]:
    """Check whether this host's clock agrees with that of a ledger that other hosts may share.

    SQLite has no clock of its own: there the newest heartbeat must not be in the future.
    """
    engine = open_reader(settings.ledger_url)
    try:
        reading = read_clock(engine, now)
        with engine.connect() as connection:
            newest = heartbeats.newest(connection)
    finally:
        engine.dispose()
    if reading is None:
        yield _clock_of_sqlite(newest - now(), settings.ledger.clock_tolerance_seconds)
        return
    ahead = reading.certain_seconds
    if abs(ahead) <= settings.ledger.clock_tolerance_seconds:
        detail = (
            f"agrees with the ledger's, {reading.offset_seconds:+.2f} s measured in"
            f" {reading.round_trip_seconds * 1000:.0f} ms; look on each host"
        )
        yield Check("clock", ok=True, detail=detail)
        return
    detail = (
        f"this host's clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the"
        " ledger's"
    )
    yield Check("clock", ok=False, detail=detail, advice=_NTP)


def _clock_of_sqlite(ahead_seconds: float, tolerance_seconds: float) -> Check:
    if ahead_seconds <= tolerance_seconds:
        return Check("clock", ok=True, detail="no heartbeat lies in the future")
    detail = f"the last heartbeat lies {ahead_seconds:.0f} s in the future: the clock was set back"
    advice = "Set the clock right (NTP). If it is right now, start the server: it frees what waits."
    return Check("clock", ok=False, detail=detail, advice=advice)


def other_hosts(settings: Settings) -> Iterator[Check]:
    """Check for faults among the servers that run, and this host before its start.

    This host counts with its settings of now, also where it has a server that runs with others.
    """
    with contextlib.closing(LedgerViews(settings.ledger_url)) as views:
        known = views.hosts()
    alive = [host for host in known if host.is_alive]
    here = _this_host(settings, alive)
    others = [host for host in alive if host.key != here.key]
    tolerance = settings.ledger.clock_tolerance_seconds
    found = [
        problem
        for problem in host_problems([*others, here], tolerance)
        if (problem.key, problem.fault) != (here.key, HostFault.CLOCK)  # it has its own check
    ]
    for problem in found:
        whose = "this host" if problem.key == here.key else problem.host
        detail = f"{whose}: {problem.detail}"
        yield Check(f"host {problem.fault}", ok=False, detail=detail, advice=problem.advice)
    if not found:
        names = ", ".join(sorted({host.host for host in alive})) or "no server runs now"
        yield Check("hosts", ok=True, detail=names)


def _this_host(settings: Settings, alive: Sequence[Host]) -> Host:
    """Return this host as it would start now, with the archive that its server has seen."""
    now = time.time()
    here = Host(
        name="this host",
        host=socket.gethostname(),
        pid=os.getpid(),
        started_at=now,
        beat_at=now,
        age_seconds=0.0,
        facts=host_facts(settings, roles.ALL, None, None),
    )
    running = [host for host in alive if host.key == here.key]
    archive = next((host.facts.archive for host in running), None)
    if not running and any(host.facts.archive for host in alive):
        archive = archive_of(settings.ledger_url, open_archive(settings))
    return replace(here, facts=replace(here.facts, archive=archive))
