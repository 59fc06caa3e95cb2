"""Gray levels of a picture before any geometry."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydicom.dataset import Dataset

from hilum_preprocessing import (
    InputSpec,
    decode,
)
from hilum_preprocessing.levels.grayscale import level_table
from tests.support.objects.radiograph import spec

IDENTITY = [{"op": "clamp", "low": -60000, "high": 60000}]


def levels(dataset: Dataset, given: InputSpec) -> np.ndarray[Any, Any]:
    stored = decode(dataset)
    table = level_table(stored, given)
    return table.values[stored.array.astype(int) - table.first]


def source(**fields: object) -> InputSpec:
    return spec(intensity=IDENTITY, source=fields)
