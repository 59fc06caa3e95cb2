"""The state folder of a running server: held by one supervisor a role, with a fresh folder for metrics.

Imports nothing that imports the metrics library: that one decides at its own import where a process's counters live.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import IO

from hilum.errors import ConfigurationError
from hilum.settings import Settings

_METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def metrics_dir(settings: Settings, role: str) -> Path:
    """Where the processes of one supervisor leave their metrics."""
    return settings.run_dir / f"metrics-{role}"


def make_state_folder(settings: Settings) -> None:
    """For its owner alone, unless it is there: then its modes are a person's choice. Raises OSError."""
    settings.site.state_dir.mkdir(0o700, parents=True, exist_ok=True)


def hold(settings: Settings, role: str) -> IO[str]:
    """Own the state folder as long as the returned file is open, and start with empty metrics. Raises ConfigurationError."""
    state = settings.site.state_dir.absolute()
    try:
        make_state_folder(settings)
        settings.run_dir.mkdir(exist_ok=True)
        lock = (settings.run_dir / f"supervisor-{role}.lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _empty(metrics_dir(settings, role))
    except BlockingIOError as error:
        advice = "Stop it or choose another folder. Several hosts share archive/ in theirs alone, and nothing else of it."
        raise ConfigurationError([f"site.state_dir: another `hilum serve` uses {state}. {advice}"]) from error
    except OSError as error:
        problem = f"site.state_dir: cannot write in {state} ({error.strerror}); make it writable for this user or choose another folder."
        raise ConfigurationError([problem]) from error
    return lock


def is_held(settings: Settings, but: str | None = None) -> bool:
    """Whether a server uses this state folder now, of whichever role but one."""
    return any(_is_locked(path) for path in settings.run_dir.glob("supervisor-*.lock") if path.name != f"supervisor-{but}.lock")


def _is_locked(path: Path) -> bool:
    with path.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.environ[_METRICS_VARIABLE] = str(folder)  # for this process and, inherited, for its children
