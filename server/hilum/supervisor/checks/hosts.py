"""Faults between hosts that share a ledger and an archive, although each host is well."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Final

from hilum.settings import Settings
from hilum.store.archive.archive import Archive
from hilum.store.database.clocks import DIFFERS_SECONDS, ahead_seconds
from hilum.store.database.engines import open_reader
from hilum.supervisor.checks.check import Check

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
    """Check whether this host's clock agrees with that of a ledger that other hosts may share."""
    engine = open_reader(settings.ledger_url)
    try:
        if engine.dialect.name == "sqlite":
            return
        ahead = ahead_seconds(engine, now)
    finally:
        engine.dispose()
    if abs(ahead) <= DIFFERS_SECONDS:
        yield Check("clock", ok=True, detail="agrees with the ledger's; look on each host")
        return
    detail = (
        f"this host's clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the"
        " ledger's"
    )
    advice = (
        "Keep time by NTP on every host, the database's included: reports may be made twice, and"
        " work be taken from its host."
    )
    yield Check("clock", ok=False, detail=detail, advice=advice)
