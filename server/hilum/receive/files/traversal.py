"""The files below the folders that a person names; skipped ones are reported."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hilum import beneath
from hilum.receive.files.folder import FileOutcome, TakenFile
from hilum.receive.files.skipped_files import plain


@dataclass(frozen=True, slots=True)
class Traversal:
    """A walk over files. `passed_over` is called for entries of `ours` and for foreign links.

    A foreign link is one to a folder outside. `ours`: resolved files and folders of this
    installation, each with its setting. Files in them may be incomplete, or quarantined.
    """

    paths: Sequence[Path]
    ours: Mapping[Path, str]
    passed_over: Callable[[TakenFile], None]

    def problems(self) -> list[str]:
        """Return a line for each path inside `ours`, from which nothing could be taken."""
        named = (
            (path, own, name)
            for path in self.paths
            for own, name in self.ours.items()
            if _real(path).is_relative_to(own)
        )
        return [
            f"{plain(path)}: nothing is taken from there, it is Hilum's own ({name} ="
            f" {plain(own)})."
            for path, own, name in named
        ]

    def files(self) -> Iterator[Path]:
        """Return files, and all files below folders, while they are walked: there may be millions.

        Each folder is in order of names. A folder that cannot be read is among the results, so that
        it is not skipped silently.
        """
        tops = [_real(path) for path in self.paths]
        around = {own.parent for own in self.ours}
        for path, top in zip(self.paths, tops, strict=True):
            unreadable: list[OSError] = []
            for folder, below, names in os.walk(path, onerror=unreadable.append):
                here = Path(folder)
                real = top / Path(folder).relative_to(path)
                if real in around:
                    below[:] = self._of_others(here, real, below)
                    names[:] = self._of_others(here, real, names)
                below.sort()
                yield from (here / name for name in sorted(names))
                for name in below:
                    self._look_at_link(here / name, tops)
            yield from (Path(error.filename) for error in unreadable)

    def open(self, path: Path) -> BinaryIO:
        """Open one of the files for reading. Raises OSError.

        A link of another account is followed only to a target below the paths.
        """
        above = next(
            (item for item in self.paths if path != item and path.is_relative_to(item)), None
        )
        if above is None:  # a person has named it
            return path.open("rb")
        if not path.is_symlink():
            return beneath.open_file(above, path)
        if path.lstat().st_uid in (0, os.geteuid()):
            return path.open("rb")
        target = _real(path)
        top = next(
            (top for top in map(_real, self.paths) if target != top and target.is_relative_to(top)),
            None,
        )
        if top is None:
            raise OSError(
                errno.ELOOP,
                "a link of another account that leads elsewhere; give its target as a PATH of"
                " its own",
                str(path),
            )
        return beneath.open_file(top, target)

    def _of_others(self, here: Path, real: Path, names: Iterable[str]) -> list[str]:
        found = {name: self.ours.get(real / name) for name in names}
        for name in sorted(name for name, setting in found.items() if setting is not None):
            self.passed_over(
                TakenFile(here / name, FileOutcome.SKIPPED, f"Hilum's own ({found[name]})")
            )
        return [name for name, setting in found.items() if setting is None]

    def _look_at_link(self, path: Path, tops: Iterable[Path]) -> None:
        """Report a link whose target is not below one of the paths.

        Other targets are taken in any case.
        """
        if not path.is_symlink():
            return
        target = _real(path)
        if any(target.is_relative_to(top) for top in tops):
            return
        if name := next(
            (name for own, name in self.ours.items() if target.is_relative_to(own)), None
        ):
            self.passed_over(
                TakenFile(path, FileOutcome.SKIPPED, f"a link to Hilum's own ({name})")
            )
        else:
            self.passed_over(
                TakenFile(
                    path,
                    FileOutcome.FAILED,
                    "a link to a folder; give its target as a PATH of its own",
                )
            )


def _real(path: Path) -> Path:
    """Return the target of a path.

    `Path.resolve` raises for a link to itself, which is here a file that cannot be read.
    """
    return Path(os.path.realpath(path))
