"""The archive itself as a source: studies that are stored already, read by another release."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hilum.domain import ExpectedImage
from hilum.retrieve.source import (
    Answers,
    FetchReport,
    FetchRequest,
    ObjectStore,
    ProbeLine,
    Query,
    SourceError,
)
from hilum.store.campaigns.campaigns import PlanPart
from hilum.store.queries.stored_series import StoredSelection, StoredSeries


@dataclass(frozen=True, slots=True)
class ArchiveSource:
    """See `retrieve.source.ImageSource`. Nothing can be fetched: images are here, or have left."""

    def probe(self) -> Sequence[ProbeLine]:
        """Return one line."""
        return [ProbeLine("archive", "images that are stored already", is_ok=True)]

    def find(self, query: Query) -> Answers:
        """Raise SourceError: the plan reads the ledger."""
        raise SourceError(f"the archive takes no query at level {query.level}", is_final=True)

    def images(self, study_instance_uid: str, series_instance_uid: str) -> Sequence[ExpectedImage]:
        """Raise SourceError: the plan lists the images."""
        raise SourceError(
            f"series {series_instance_uid} of study {study_instance_uid} is not in the plan",
            is_final=True,
        )

    def fetch(
        self,
        wanted: FetchRequest,
        store: ObjectStore,  # noqa: ARG002 - the interface's
        stop: threading.Event,  # noqa: ARG002 - the same
    ) -> FetchReport:
        """Return at once: these pixels have left the archive."""
        count = len(wanted.images)
        return FetchReport(
            "no pixels",
            f"the pixels of {count} image{'' if count == 1 else 's'} have left the archive: fetch"
            " them from their PACS",
            may_repeat=False,
        )

    def close(self) -> None:
        """Do nothing."""


def plan_archive(url: str, chosen: StoredSelection, after: str) -> Iterator[PlanPart]:
    """Yield the plan of the archive's studies in the order of their rows.

    `after`: the cursor of the last part that was written.
    """
    with contextlib.closing(StoredSeries(url)) as stored:
        for part in stored.parts(chosen, int(after or 0)):
            yield PlanPart(str(part.until), part.series)
