"""A list, for people, of the files that lie in a watched folder and need one: not taken, and left where they are, or not moved.

It lies in the state folder: nothing is written into a folder whose files are kept, and in no log stand names, which may name patients.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hilum.moments import iso
from hilum.receive.folder import TakenFile


@dataclass(slots=True)
class LeftFiles:
    """Of the files of `folder`, in `file`: a line each, of time, reason and path in the folder, between tabs. None of them: no list.

    A file that somebody takes away keeps its line: to ask for each would cost too much where they are many and far.
    """

    file: Path
    folder: Path
    _lines: dict[Path, str] = field(default_factory=dict)
    _is_outdated: bool = False

    def begin(self) -> None:
        """Every file is looked at again: what an earlier process has listed is listed anew. Raises OSError."""
        self.file.unlink(missing_ok=True)

    def note(self, taken: TakenFile, problem: str, now: float) -> None:
        """It stays there. `problem`: why it was not moved, if it should have been; `now`: since the epoch. Raises OSError."""
        self.forget(taken.path)
        moment = iso(now, "seconds")
        reason = f"{taken.fate}: {taken.detail}" if taken.detail else str(taken.fate)
        line = "\t".join((moment, f"{reason}; not moved: {problem}" if problem else reason, plain(taken.path.relative_to(self.folder))))
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(f"{line}\n")
        self._lines[taken.path] = line

    def forget(self, path: Path) -> None:
        """It has been taken or is gone."""
        self._is_outdated |= self._lines.pop(path, None) is not None

    def settle(self) -> None:
        """Write what is forgotten out of the list. Once for many files: there may be thousands. Raises OSError."""
        if not self._is_outdated:
            return
        if self._lines:
            new = self.file.with_name(f"{self.file.name}.new")
            new.write_text("".join(f"{line}\n" for line in self._lines.values()), encoding="utf-8")
            new.replace(self.file)
        else:
            self.file.unlink(missing_ok=True)
        self._is_outdated = False


def plain(path: Path) -> str:
    """On one line, whatever bytes the name has."""
    return str(path) if str(path).isprintable() else ascii(str(path))
