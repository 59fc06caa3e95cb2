"""A list, for people, of the files in a watched folder that need attention.

They were not taken and left in place, or not moved. The list is in the state folder, because
nothing is written into a folder whose files are kept. Logs contain no names, which may name
patients.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hilum.receive.files.folder import TakenFile
from hilum.timestamps import iso


@dataclass(slots=True)
class SkippedFiles:
    """The list in `file` for the files of `folder`; no list without such files.

    Each line has time, reason and path in the folder, between tabs. A file that is removed from the
    folder keeps its line: a check of each would cost too much where they are many and remote.
    """

    file: Path
    folder: Path
    _lines: dict[Path, str] = field(default_factory=dict)
    _is_outdated: bool = False

    def begin(self) -> None:
        """Remove the list: every file is checked again, and listed again. Raises OSError."""
        self.file.unlink(missing_ok=True)

    def note(self, taken: TakenFile, problem: str, now: float) -> None:
        """Add a file that stays in place. Raises OSError.

        `problem`: why it was not moved, if it should have been. `now`: since the epoch.
        """
        self.forget(taken.path)
        moment = iso(now, "seconds")
        reason = f"{taken.fate}: {taken.detail}" if taken.detail else str(taken.fate)
        line = "\t".join(
            (
                moment,
                f"{reason}; not moved: {problem}" if problem else reason,
                plain(taken.path.relative_to(self.folder)),
            )
        )
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(f"{line}\n")
        self._lines[taken.path] = line

    def forget(self, path: Path) -> None:
        """Forget a file that has been taken or is gone."""
        self._is_outdated |= self._lines.pop(path, None) is not None

    def settle(self) -> None:
        """Remove forgotten files from the list. Raises OSError.

        It is called once for many files: there may be thousands.
        """
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
    """Return the path on one line, with any bytes in its name."""
    return str(path) if str(path).isprintable() else ascii(str(path))
