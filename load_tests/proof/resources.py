"""Memory and descriptors of every role, now and over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from testing import accounting

Sizes = dict[str, dict[str, float]]


def sizes(root_pid: int) -> Sizes:
    """Role to `mib` (resident), `descriptors` and `processes`, of all that live below `root_pid`."""
    found: defaultdict[str, dict[str, float]] = defaultdict(
        lambda: {"mib": 0.0, "descriptors": 0, "processes": 0}
    )
    for pid, role in accounting.roles(root_pid).items():
        process = accounting.read_process(pid)
        if process is not None:
            found[role]["mib"] += round(process.rss_bytes / 2**20, 1)
            found[role]["descriptors"] += descriptors(pid)
            found[role]["processes"] += 1
    return dict(found)


def descriptors(pid: int) -> int:
    """Open files of a process; 0: it is gone."""
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return 0


def growth(
    before: Mapping[str, Mapping[str, float]], after: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """MiB by which each role has grown that is there before and after."""
    return {
        role: round(after[role]["mib"] - size["mib"], 1)
        for role, size in before.items()
        if role in after
    }
