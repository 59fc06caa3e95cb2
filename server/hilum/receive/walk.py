"""The files below the folders that a person names, and what is passed over on the way, which is said."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hilum import beneath
from hilum.receive.folder import Fate, TakenFile
from hilum.receive.left_files import plain


@dataclass(frozen=True, slots=True)
class Walk:
    """`passed_over` hears of what is `ours`, and of each link to a folder that leads elsewhere.

    `ours`: resolved files and folders of this installation, each with its setting. What lies in them may be half received, or quarantined.
    """

    paths: Sequence[Path]
    ours: Mapping[Path, str]
    passed_over: Callable[[TakenFile], None]

    def problems(self) -> list[str]:
        """A line for each of the paths that lies in what is ours, so that nothing could be taken from it."""
        named = ((path, own, name) for path in self.paths for own, name in self.ours.items() if _real(path).is_relative_to(own))
        return [f"{plain(path)}: nothing is taken from there, it is Hilum's own ({name} = {plain(own)})." for path, own, name in named]

    def files(self) -> Iterator[Path]:
        """Files, and all files below folders, each folder in order of names, while it is walked: there may be millions.

        A folder that cannot be read is among them, so that it is not passed over in silence.
        """
        tops = [_real(path) for path in self.paths]
        around = {own.parent for own in self.ours}
        for path, top in zip(self.paths, tops, strict=True):
            unreadable: list[OSError] = []
            for folder, below, names in os.walk(path, onerror=unreadable.append):
                here, real = Path(folder), top / Path(folder).relative_to(path)
                if real in around:
                    below[:], names[:] = self._of_others(here, real, below), self._of_others(here, real, names)
                below.sort()
                yield from (here / name for name in sorted(names))
                for name in below:
                    self._look_at_link(here / name, tops)
            yield from (Path(error.filename) for error in unreadable)

    def open(self, path: Path) -> BinaryIO:
        """One of the files, for reading. A link of another account is followed only to what lies below the paths. Raises OSError."""
        above = next((item for item in self.paths if path != item and path.is_relative_to(item)), None)
        if above is None:  # a person has named it
            return path.open("rb")
        if not path.is_symlink():
            return beneath.open_file(above, path)
        if path.lstat().st_uid in (0, os.geteuid()):
            return path.open("rb")
        target = _real(path)
        top = next((top for top in map(_real, self.paths) if target != top and target.is_relative_to(top)), None)
        if top is None:
            raise OSError(errno.ELOOP, "a link of another account that leads elsewhere; give its target as a PATH of its own", str(path))
        return beneath.open_file(top, target)

    def _of_others(self, here: Path, real: Path, names: Iterable[str]) -> list[str]:
        found = {name: self.ours.get(real / name) for name in names}
        for name in sorted(name for name, setting in found.items() if setting is not None):
            self.passed_over(TakenFile(here / name, Fate.SKIPPED, f"Hilum's own ({found[name]})"))
        return [name for name, setting in found.items() if setting is None]

    def _look_at_link(self, path: Path, tops: Iterable[Path]) -> None:
        """What it leads to is taken all the same where it lies below one of the paths."""
        if not path.is_symlink():
            return
        target = _real(path)
        if any(target.is_relative_to(top) for top in tops):
            return
        if name := next((name for own, name in self.ours.items() if target.is_relative_to(own)), None):
            self.passed_over(TakenFile(path, Fate.SKIPPED, f"a link to Hilum's own ({name})"))
        else:
            self.passed_over(TakenFile(path, Fate.FAILED, "a link to a folder; give its target as a PATH of its own"))


def _real(path: Path) -> Path:
    """Where it leads. `Path.resolve` raises for a link to itself, which is a file that cannot be read like any other."""
    return Path(os.path.realpath(path))
