"""The plan of a campaign that reads files: series and images, in batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hilum.domain import ExpectedImage, PlannedSeries
from hilum.retrieve.files.scan import ScannedFile, SkippedFile

BATCH_FILES: Final = 500
SeriesImages = Sequence[tuple[PlannedSeries, Sequence[ExpectedImage]]]


@dataclass(frozen=True, slots=True)
class PlannedFiles:
    """One batch of a plan. `cursor`: the path after which the plan continues.

    The files of a series may be scattered, so that it is in several batches: its images add up.
    """

    cursor: str
    series: SeriesImages
    skipped: Sequence[SkippedFile] = ()


def plan_files(
    found: Iterator[ScannedFile | SkippedFile], batch_files: int = BATCH_FILES
) -> Iterator[PlannedFiles]:
    """Yield batches of so many files each, skipped ones included. Raises as `scan` does."""
    while batch := list(itertools.islice(found, batch_files)):
        images = [item for item in batch if isinstance(item, ScannedFile)]
        yield PlannedFiles(
            batch[-1].path,
            series_of((item.series, item.image) for item in images),
            [item for item in batch if isinstance(item, SkippedFile)],
        )


def series_of(images: Iterator[tuple[PlannedSeries, ExpectedImage]]) -> SeriesImages:
    """Return images by series; of each series the first description counts."""
    found: dict[tuple[str, str], tuple[PlannedSeries, list[ExpectedImage]]] = {}
    for series, image in images:
        key = (series.study_instance_uid, series.series_instance_uid)
        found.setdefault(key, (series, []))[1].append(image)
    return list(found.values())
