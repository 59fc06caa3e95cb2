"""The priority of files taken by a process: the name of its folder in the archive contains it.

So files left by a killed process keep their priority. They are found by another process that takes
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

from hilum.domain import Priority
from hilum.store.intake.received import Arrival

_PRIORITIES: Final = {f".{priority.name.lower()}": priority for priority in Priority}
_TAKER: Final = re.compile(r".+-ingest-\d+(\.[a-z]+)?")


def folder_with_priority(process: str, priority: Priority | None) -> str:
    """Return the name of the folder of a process that takes files.

    None: the priority is that of their route.
    """
    return process if priority is None else f"{process}.{priority.name.lower()}"


def takers(processes: Iterable[str]) -> list[str]:
    """Return the names of processes that take files, on any host."""
    return [name for name in processes if _TAKER.fullmatch(name)]


def with_priority_of_folder(
    files: Iterable[Path | str], arrivals: Iterable[Arrival]
) -> list[Arrival]:
    """Return the arrivals with the priority of their file's folder; the others are unchanged."""
    priority_of = functools.cache(_priority_of)  # a batch comes from few folders
    return [
        _with_priority(priority_of(os.path.dirname(file)), arrival)  # noqa: PTH120
        for file, arrival in zip(files, arrivals, strict=True)
    ]


def _priority_of(folder: str) -> Priority | None:
    return _PRIORITIES.get(Path(folder).suffix)


def _with_priority(priority: Priority | None, arrival: Arrival) -> Arrival:
    return arrival if priority is None else replace(arrival, priority=priority)
