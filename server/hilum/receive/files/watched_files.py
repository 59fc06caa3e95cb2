"""The files of one folder that is looked at every second, but not read every second.

A file that is put there, renamed or deleted changes the folder's own time (POSIX, rename and open).
One that is overwritten in place does not. So an unchanged folder is read again nevertheless, after
pauses that double up to ten minutes.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

Stamp = tuple[int, int, int]  # inode, modification time in nanoseconds, size

_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 600.0
_PASSED_OVER: Final = frozenset({errno.ENOENT, errno.ELOOP, errno.EACCES, errno.EPERM})
"""Faults of an entry itself."""


@dataclass(slots=True)
class WatchedFiles:
    """The files of one folder.

    `seen`: files that were taken, or left; they are ignored until they change. `waiting`: the
    others, with their stamp and the time since when. `below`: the folders in it. Entries that begin
    with a dot are left to others. `problems`: why entries were skipped. Links are skipped, because
    another account may have put them there. Skipped entries delay no others.
    """

    folder: Path
    below: tuple[Path, ...] = ()
    seen: dict[str, Stamp] = field(default_factory=dict)
    waiting: dict[str, tuple[Stamp, float]] = field(default_factory=dict)
    problems: frozenset[str] = frozenset()
    _stamp: Stamp | None = None
    _pause: float = _FIRST_PAUSE_SECONDS
    _read_at: float = 0.0

    def look(self, now: float) -> None:
        """Read the present entries. Raises OSError if the folder cannot be read."""
        stamp = _stamp_of(self.folder.stat())
        if stamp == self._stamp and now < self._read_at:
            waiting = {
                name: self._stamp_or(name, stamp) for name, (stamp, _) in self.waiting.items()
            }
            self._wait_for(
                {name: stamp for name, stamp in waiting.items() if stamp is not None}, now
            )
            return
        self._pause = (
            min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
            if stamp == self._stamp
            else _FIRST_PAUSE_SECONDS
        )
        self._read(now)
        self._stamp = stamp
        self._read_at = now + self._pause

    def whole(self, now: float, settle_seconds: float) -> list[str]:
        """Return names of files unchanged for so long, by their own time or by ours.

        Their own time may be that of another clock.
        """
        return [
            name
            for name, (stamp, since) in self.waiting.items()
            if now - min(stamp[1] / 1e9, since) >= settle_seconds
        ]

    def stamp(self, name: str) -> Stamp | None:
        """Return the stamp; None: it is gone, cannot be looked at, or is no file."""
        return self._stamp_or(name, None)

    def _stamp_or(self, name: str, known: Stamp | None) -> Stamp | None:
        """Return the stamp, or the known one while a file server does not respond."""
        try:
            status = (self.folder / name).lstat()
        except OSError as error:
            return None if error.errno in _PASSED_OVER else known
        return _stamp_of(status) if stat.S_ISREG(status.st_mode) else None

    def leave(self, name: str) -> None:
        """Leave a file until it changes."""
        self.waiting.pop(name, None)
        if (stamp := self.stamp(name)) is not None:
            self.seen[name] = stamp

    def _read(self, now: float) -> None:
        with os.scandir(self.folder) as entries:
            visible = [entry for entry in entries if not entry.name.startswith(".")]
        folders = {entry.name for entry in visible if _is_folder(entry)}
        problems: set[str] = set()
        found = dict(_stamps((entry for entry in visible if entry.name not in folders), problems))
        self.problems = frozenset(problems)
        self.below = tuple(self.folder / name for name in sorted(folders))
        self.seen = {name: stamp for name, stamp in self.seen.items() if found.get(name) == stamp}
        self._wait_for({name: stamp for name, stamp in found.items() if name not in self.seen}, now)

    def _wait_for(self, found: Mapping[str, Stamp], now: float) -> None:
        known = self.waiting
        self.waiting = {
            name: known[name] if _is_same(known.get(name), found[name]) else (found[name], now)
            for name in sorted(found)
        }


def _is_same(known: tuple[Stamp, float] | None, stamp: Stamp) -> bool:
    return known is not None and known[0] == stamp


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _stamps(entries: Iterator[os.DirEntry[str]], problems: set[str]) -> Iterator[tuple[str, Stamp]]:
    for entry in entries:
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:  # gone meanwhile
            continue
        except OSError as error:
            if error.errno not in _PASSED_OVER:
                raise  # a file server with a short failure: seen files stay seen
            problems.add(str(error.strerror))
            continue
        if stat.S_ISREG(status.st_mode):
            yield entry.name, _stamp_of(status)
        elif stat.S_ISLNK(status.st_mode):
            problems.add(
                "a link; put the file itself there, or watch the folder in a section of its own"
            )


def _stamp_of(status: os.stat_result) -> Stamp:
    return status.st_ino, status.st_mtime_ns, status.st_size
