"""The scan at start: what a crash left in `unindexed` becomes rows, or is swept if it was never acknowledged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hilum import telemetry
from hilum.receive.indexer import BATCH, index
from hilum.settings import Settings
from hilum.store.archive import Archive
from hilum.store.ledger import Ledger, RecordOutcome

_log = telemetry.logger("receive")


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a scan found."""

    swept: int
    outcomes: Counter[RecordOutcome] = field(default_factory=Counter)


def recover(settings: Settings, ledger: Ledger, archive: Archive, processes: Iterable[str] | None = None) -> Recovered:
    """Sweep and index the folders of those of these processes (None: of all) that are dead, on whichever host they were. Idempotent.

    A file whose row is committed already is settled only; one that is no DICOM goes to quarantine. Raises SQLAlchemyError, OSError.
    """
    swept, outcomes = 0, Counter[RecordOutcome]()
    for process in archive.processes() if processes is None else processes:
        with archive.held(process) as is_ours:
            if is_ours:
                swept += archive.sweep(process)
                outcomes += _index_all(archive.left_behind(process), settings, ledger, archive)
    if swept or outcomes:
        _log.info("recovered", swept=swept, **{outcome.value: count for outcome, count in outcomes.items()})
    return Recovered(swept, outcomes)


def _index_all(files: list[Path], settings: Settings, ledger: Ledger, archive: Archive) -> Counter[RecordOutcome]:
    outcomes = Counter[RecordOutcome]()
    for begin in range(0, len(files), BATCH):
        outcomes += index(files[begin : begin + BATCH], settings, ledger, archive)
    return outcomes
