"""The machine and the commit of a measurement. Standard library only."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]


def machine() -> dict[str, Any]:
    """Return the processor, cores, memory in GiB, system and load average."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "load_average_before": round(os.getloadavg()[0], 2),
    }


def commit() -> dict[str, Any]:
    """Return the commit of the checkout, and whether a file differs from it."""
    return {
        "commit": _git("rev-parse", "HEAD") or "unknown",
        "is_modified": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def _git(*words: str) -> str:
    """Return its answer; empty where git or the repository is absent."""
    try:
        answer = subprocess.run(
            ["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""
