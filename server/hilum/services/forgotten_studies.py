"""Rows of old studies leave the ledger: each batch is exported durably, then deleted."""

from __future__ import annotations

import hashlib
import importlib.util
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hilum.domain import SERVER
from hilum.services.export import ExportTarget, export
from hilum.services.export_tables.files import CSV, PARQUET
from hilum.settings import Settings
from hilum.store.archive.directory_sync import make_durable_folder
from hilum.store.audit.log import Deed
from hilum.store.queries.exports import StudySelection
from hilum.store.retention.rows import OldStudy, RowRetention, RowsKept, StudyWalk
from hilum.verbs import Thing, Verb

MONTH_SECONDS: Final = 86400.0 * 365.25 / 12
_BATCH: Final = 500  # studies of one file
_LOOK: Final = 1000


@dataclass(frozen=True, slots=True)
class ForgottenBatch:
    """One batch. `looked_at` 0: the end of the walk. `file`: the export; empty: none left."""

    looked_at: int
    studies: int = 0
    file: str = ""


@dataclass(frozen=True, slots=True)
class RowsPreview:
    """A preview of retention of rows. `kept`: studies by reason; one may have several."""

    looked_at: int
    leaving: int
    kept: Counter[RowsKept]


def rows_before(months: float, now: float) -> float | None:
    """The moment before which a study must have ended; None: rows stay."""
    return now - months * MONTH_SECONDS if months else None


class Forgetting:
    """Lets rows of old studies leave, a batch at a time. Every batch is safe to repeat."""

    def __init__(self, settings: Settings, rows: RowRetention, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._rows = rows
        self._clock = clock

    def next_batch(self, before: float, walk: StudyWalk) -> ForgottenBatch:
        """Export and delete those of the next studies that may leave. Raises OSError, Retry.

        A crash in between leaves an export of rows that are still there; they are exported again.
        After an error the walk is where it was.
        """
        ahead = replace(walk)
        found = self._rows.next_studies(before, ahead, _BATCH)
        leaving = [each for each in found if not each.kept]
        batch = ForgottenBatch(len(found))
        if leaving and (path := self._export(leaving)) is not None:
            deed = Deed(Verb.FORGET_STUDIES, SERVER).about(Thing.FILE, path.name)
            gone = self._rows.remove(leaving, before, self._clock(), deed)
            batch = ForgottenBatch(len(found), gone["study"], path.name)
        walk.after = ahead.after
        return batch

    def _export(self, leaving: Sequence[OldStudy]) -> Path | None:
        """Write the numbers of these studies. None: not all were there, as after an erasure."""
        folder = self._settings.row_exports_dir
        make_durable_folder(folder, 0o700)
        path = folder / f"studies-{_digest(leaving)}{_suffix()}"
        chosen = StudySelection(
            study_instance_uids=tuple(each.study_instance_uid for each in leaving),
            has_all_revisions=True,
            has_shadows=True,
        )
        counts = export(self._settings, chosen, ExportTarget(path, replaces=True))
        return path if counts.studies == len(leaving) else None


def preview(settings: Settings, before: float, at_most: int) -> RowsPreview:
    """Look at the oldest studies, and count those that would leave and those that stay."""
    kept = Counter[RowsKept]()
    looked_at = 0
    leaving = 0
    with closing(RowRetention(settings.ledger_url)) as rows:
        for study in _old_studies(rows, before, at_most):
            looked_at += 1
            leaving += not study.kept
            kept.update(study.kept)
    return RowsPreview(looked_at, leaving, kept)


def _old_studies(rows: RowRetention, before: float, at_most: int) -> Iterator[OldStudy]:
    walk = StudyWalk()
    left = at_most
    while left > 0 and (found := rows.next_studies(before, walk, min(_LOOK, left))):
        yield from found
        left -= len(found)


def _digest(studies: Sequence[OldStudy]) -> str:
    """The name of these very studies: an export never takes the place of one of others.

    SQLite gives a row's number again, and a crash leaves the rest of a batch.
    """
    said = "".join(f"{each.study_instance_uid} {each.last_received_at!r}\n" for each in studies)
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _suffix() -> str:
    return PARQUET if importlib.util.find_spec("duckdb") is not None else CSV
