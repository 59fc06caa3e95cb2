"""The scan of `unindexed`, at start and by the housekeeper, for files left by a crash.

Acknowledged files become rows; the others are swept.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hilum.observability import telemetry
from hilum.receive.indexing.indexer import BATCH, index
from hilum.settings import Settings
from hilum.store.archive.archive import Archive
from hilum.store.ledger import Ledger, RecordOutcome

_log = telemetry.logger("receive")
_LEFT_BY_ANOTHER = (
    "another user has left it: `hilum check` (files) says what to do; then start again"
)


@dataclass(frozen=True, slots=True)
class Recovered:
    """The outcome of a scan."""

    swept: int
    outcomes: Counter[RecordOutcome] = field(default_factory=Counter)


def recover(
    settings: Settings, ledger: Ledger, archive: Archive, processes: Iterable[str] | None = None
) -> Recovered:
    """Sweep and index the folders of dead processes, on any host.

    Idempotent.

    `processes` None: all. The files are indexed in the order in which they came. Of two under one
    SOP Instance UID the first pixels and the last header hold. A file whose row is committed
    already is settled only; one that is no DICOM goes to quarantine. Raises SQLAlchemyError,
    OSError.
    """
    with contextlib.ExitStack() as held:
        swept = 0
        ours = list[str]()
        for process in archive.processes() if processes is None else processes:
            with contextlib.ExitStack() as one:
                try:
                    if not one.enter_context(archive.held(process)):
                        continue
                    swept += archive.sweep(process)
                # neither the others nor the server's start may wait for it
                except PermissionError as error:
                    _log.error(
                        "not_recovered",
                        process=process,
                        problem=error.strerror,
                        advice=_LEFT_BY_ANOTHER,
                    )
                    continue
                if any(True for _ in archive.unindexed(process)):  # the others may begin meanwhile
                    ours.append(process)
                    held.push(one.pop_all())
        outcomes = _index_all(archive.left_behind(ours), settings, ledger, archive)
    if swept or outcomes:
        _log.info(
            "recovered",
            swept=swept,
            **{outcome.value: count for outcome, count in outcomes.items()},
        )
    return Recovered(swept, outcomes)


def abandoned(archive: Archive, before: float) -> list[str]:
    """Return processes with complete objects whose folders have not changed since `before`.

    `before`: seconds since the epoch. `recover` finds out whether they are alive. It leaves a trace
    of each try, so it is called for these alone, not for all.
    """
    oldest = {process: next(archive.unindexed(process), None) for process in archive.processes()}
    return [
        process
        for process, file in oldest.items()
        if file is not None and _touched_at(file.parent) < before
    ]


def _touched_at(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:  # emptied and forgotten meanwhile
        return math.inf


def _index_all(
    files: list[Path], settings: Settings, ledger: Ledger, archive: Archive
) -> Counter[RecordOutcome]:
    outcomes = Counter[RecordOutcome]()
    for begin in range(0, len(files), BATCH):
        batch = files[begin : begin + BATCH]
        outcomes += index(batch, settings, ledger, archive, left_behind=set(batch))
    return outcomes
