"""The state folder of a running server: one supervisor holds each role in it.

Each holder starts with a fresh folder for metrics. This module imports nothing that imports the
metrics library: that library decides at its import where a process's counters are.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from hilum.errors import ConfigurationError
from hilum.services import roles
from hilum.settings import Settings

LOCKS: Final = "supervisor-*.lock"
"""In `run/` of the state folder: a server holds those of its roles open."""
_METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def metrics_dir(settings: Settings, role: str) -> Path:
    """Return the folder of metrics of one supervisor's processes."""
    return settings.run_dir / f"metrics-{role}"


def make_state_folder(settings: Settings) -> None:
    """Make the folder for its owner alone. Raises OSError.

    The modes of an existing folder are a person's choice.
    """
    settings.site.state_dir.mkdir(0o700, parents=True, exist_ok=True)


@dataclass(frozen=True, slots=True)
class HeldRoles:
    """The locks of a server's roles in its state folder."""

    locks: Sequence[IO[str]]

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Let `is_held` say no for a while: this server waits, and works with no ledger.

        No other server can take the roles meanwhile.
        """
        self._lock(fcntl.LOCK_SH)
        try:
            yield
        finally:
            self._lock(fcntl.LOCK_EX)

    def _lock(self, kind: int) -> None:
        for lock in self.locks:
            fcntl.flock(lock, kind)


@contextmanager
def hold(settings: Settings, role: str) -> Iterator[HeldRoles]:
    """Own these roles of the state folder, and start with empty metrics.

    `role`: a word of `hilum.services.roles`. Raises ConfigurationError.
    """
    state = settings.site.state_dir.absolute()
    with ExitStack() as held:
        try:
            make_state_folder(settings)
            settings.run_dir.mkdir(exist_ok=True)
            locks = []
            for path in _locks(settings, role):
                # NFS gives a shared lock only to a reader, and an exclusive one to a writer
                lock = held.enter_context(path.open("w+"))
                _lock_alone(lock, f"{state} (role {_role_of(path)})")
                locks.append(lock)
            _empty(metrics_dir(settings, role))
        except OSError as error:
            problem = (
                f"site.state_dir: cannot write in {state} ({error.strerror}); make it writable for"
                " this user or choose another folder."
            )
            raise ConfigurationError([problem]) from error
        yield HeldRoles(locks)


def _lock_alone(lock: IO[str], what: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        advice = (
            "Stop it or choose another folder. Several hosts share archive/ in theirs alone, and"
            " nothing else of it."
        )
        raise ConfigurationError(
            [f"site.state_dir: another `hilum serve` uses {what}. {advice}"]
        ) from error


def is_held(settings: Settings, but: str | None = None) -> bool:
    """Return whether a server uses this state folder now. `but`: roles that do not count."""
    own = set() if but is None else set(_locks(settings, but))
    return any(_is_locked(path) for path in settings.run_dir.glob(LOCKS) if path not in own)


def held_roles(settings: Settings) -> list[str]:
    """Return the roles that servers of this state folder run now."""
    return [
        role
        for role in roles.SERVED
        if (path := _lock(settings, role)).exists() and _is_locked(path)
    ]


def _locks(settings: Settings, role: str) -> list[Path]:
    """Return a file for each role, so that no two supervisors run one.

    Earlier versions had one for `all`.
    """
    return [
        _lock(settings, each)
        for each in (*([roles.ALL] if role == roles.ALL else []), *sorted(roles.of(role)))
    ]


def _role_of(lock: Path) -> str:
    return lock.stem.removeprefix("supervisor-")


def _lock(settings: Settings, role: str) -> Path:
    return settings.run_dir / f"supervisor-{role}.lock"


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
