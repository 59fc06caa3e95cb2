"""Leftovers of a killed tritonserver: orphaned Python stubs and regions in /dev/shm.

A stub may never notice the end of its server. Each stub holds a whole engine in memory and each
region four megabytes or more. Nothing else ends or removes them.
"""

from __future__ import annotations

import hashlib
import os
import signal
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from hilum.triton.sandbox import SHARED_MEMORY

_FOLDER: Final = Path(
    SHARED_MEMORY
)  # where the Python backend puts its regions; Triton has no setting for it
_STUB: Final = "triton_python_backend_stub"
_SERVER: Final = "tritonserver"
_END_SECONDS: Final = 5.0


def prefix(state_dir: Path) -> str:
    """Return the beginning of every region's name; a stub's command line holds it too."""
    return f"hilum-{hashlib.sha256(str(state_dir.resolve()).encode()).hexdigest()[:12]}-"


def sweep(region_prefix: str) -> list[str]:
    """End orphaned stubs, then remove unmapped regions; return the names of all."""
    stubs = orphans(region_prefix)
    for pid in stubs:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _END_SECONDS
    while (
        any(Path(f"/proc/{pid}/maps").exists() and _state(pid)[1] != "Z" for pid in stubs)
        and time.monotonic() < deadline
    ):
        time.sleep(0.01)
    regions = unmapped(region_prefix)
    for region in regions:
        region.unlink(missing_ok=True)
    return [*(f"{_STUB} {pid}" for pid in stubs), *(region.name for region in regions)]


def orphans(region_prefix: str) -> list[int]:
    """Return the stubs of this installation whose tritonserver is gone."""
    return [
        pid
        for pid in map(int, (path.name for path in Path("/proc").glob("[0-9]*")))
        if _is_orphan(pid, region_prefix)
    ]


def unmapped(region_prefix: str) -> list[Path]:
    """Return the regions with our prefix that no process has mapped."""
    ours = list(_FOLDER.glob(f"{region_prefix}*"))
    if not ours:
        return []
    mapped = _mapped()
    return [region for region in ours if str(region) not in mapped]


def open_to_others(region_prefix: str) -> list[Path]:
    """Return the regions with our prefix that another account may read or write."""
    found = []
    for region in _FOLDER.glob(f"{region_prefix}*"):
        with suppress(FileNotFoundError):
            if region.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                found.append(region)
    return found


def _is_orphan(pid: int, region_prefix: str) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return False
    if Path(words[0]).name != _STUB or not any(word.startswith(region_prefix) for word in words):
        return False
    name, state, _ = _state(_state(pid)[2])
    return name != _SERVER or state == "Z"


def _state(pid: int) -> tuple[str, str, int]:
    """Return (name, state letter, parent's process id), from proc(5) stat.

    ("", "Z", 0) for a process that is gone.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return "", "Z", 0
    rest = text.rpartition(")")[2].split()
    return text[text.index("(") + 1 : text.rindex(")")], rest[0], int(rest[1])


def _mapped() -> set[str]:
    """Return the files of /dev/shm that a process has mapped, as far as we may look."""
    names: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            lines = maps.read_text(errors="replace").splitlines()
        except OSError:  # it ended, or belongs to somebody else
            continue
        names.update(
            line[line.index(f"{_FOLDER}/") :].removesuffix(" (deleted)")
            for line in lines
            if f"{_FOLDER}/" in line
        )
    return names
