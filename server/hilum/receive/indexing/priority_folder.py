"""The lane of files taken by a process: the name of its folder in the archive contains it.

So files left by a killed process keep their lane. They are found by another process that takes
files, or by the scan at start.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from hilum.domain import Lane
from hilum.store.intake.received import Arrival

_LANES: Final = {f".{lane.name.lower()}": lane for lane in Lane}
_TAKER: Final = re.compile(r".+-ingest-\d+(\.[a-z]+)?")


def folder_in_lane(process: str, lane: Lane | None) -> str:
    """Return the name of the folder of a process that takes files.

    None: the lane is that of their route.
    """
    return process if lane is None else f"{process}.{lane.name.lower()}"


def takers(processes: Iterable[str]) -> list[str]:
    """Return the names of processes that take files, on any host."""
    return [name for name in processes if _TAKER.fullmatch(name)]


def in_lane_of(files: Iterable[Path | str], arrivals: Iterable[Arrival]) -> list[Arrival]:
    """Return the arrivals in the lane of their file's folder; the others are unchanged."""
    lane_of = functools.cache(_lane_of)  # a batch comes from few folders
    return [
        _in_lane(lane_of(os.path.dirname(file)), arrival)  # noqa: PTH120
        for file, arrival in zip(files, arrivals, strict=True)
    ]


def _lane_of(folder: str) -> Lane | None:
    return _LANES.get(Path(folder).suffix)


def _in_lane(lane: Lane | None, arrival: Arrival) -> Arrival:
    return arrival if lane is None else replace(arrival, lane=lane)
