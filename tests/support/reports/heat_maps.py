"""Results with class activation maps, for tests of what is drawn and said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset

from hilum.domain import ActivationMaps, Release, ReportJob
from hilum.report import HeatMapSources, Picture
from testing.phantoms.phantom import save
from tests.support.reports.results import LOGITS, report_of

GRID = (7, 7)
MAXIMUM_PIXELS = 100_000_000


def maps_of(
    labels: int, peak: tuple[int, int] = (2, 5), grid: tuple[int, int] = GRID, height: float = 49.0
) -> NDArray[np.float16]:
    """(L, h, w): all cells lower the logit a little, one raises it.

    One cell of 7 x 7 at 49 adds 1 to the logit.
    """
    maps = np.full((labels, *grid), -1.0, np.float16)
    maps[:, peak[0], peak[1]] = height
    return maps


def explained(
    datasets: Sequence[Dataset],
    release: Release,
    folder: Path,
    maps: NDArray[np.float16] | None = None,
) -> tuple[ReportJob, HeatMapSources]:
    """A claimed result of these images, and what its heat map is drawn from.

    The images are written to `folder`.
    """
    cam = (maps_of(len(release.labels)) if maps is None else maps).tobytes()
    pictures = {
        str(dataset.SOPInstanceUID): Picture(
            save(dataset, folder / f"stored{number}.dcm"), ActivationMaps(LOGITS, cam)
        )
        for number, dataset in enumerate(datasets)
    }
    return report_of(datasets, release), HeatMapSources(pictures, MAXIMUM_PIXELS)
