"""A folder into which somebody puts files: which of them are whole, and where they go when they have been taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from hilum.receive.folder import Fate, TakenFile
from hilum.receive.watched_files import WatchedFiles

TAKEN_FOLDER: Final = "taken"
REFUSED_FOLDER: Final = "refused"
NOT_TAKEN: Final = frozenset({Fate.REFUSED, Fate.SKIPPED, Fate.FAILED})


@dataclass(slots=True)
class WatchedFolder:
    """`settle_seconds`: a file that has not changed for so long is whole; one that is renamed into place keeps its older time."""

    path: Path
    when_taken: Literal["keep", "delete", "move"]
    settle_seconds: float
    _folders: dict[Path, WatchedFiles] = field(default_factory=dict)

    def whole(self, now: float) -> list[Path]:
        """Files that are to be taken now, in order of folders and names. `now`: since the epoch. Raises OSError without a folder."""
        self._folders = {files.folder: files for files in self._looked_at(self.path, now)}
        found = ((files.folder, files.whole(now, self.settle_seconds)) for files in self._folders.values())
        return [folder / name for folder, names in found for name in names]

    @property
    def problems(self) -> frozenset[str]:
        """Why entries were passed over at the last look."""
        return frozenset().union(*(files.problems for files in self._folders.values()))

    def _looked_at(self, folder: Path, now: float) -> Iterator[WatchedFiles]:
        files = self._files(folder)
        files.look(now)
        yield files
        ours = (self.path / TAKEN_FOLDER, self.path / REFUSED_FOLDER) if folder == self.path else ()
        for below in files.below:
            if below not in ours:
                yield from self._looked_at(below, now)

    def _files(self, folder: Path) -> WatchedFiles:
        if (known := self._folders.get(folder)) is None:
            known = self._folders[folder] = WatchedFiles(folder)
        return known

    def settle(self, taken: TakenFile) -> None:
        """Where it goes. Under `keep` it stays and is not looked at again until it changes. Raises OSError.

        A file that somebody has put in its place meanwhile is not the one that was taken: it waits for its turn.
        """
        if self._is_another(taken.path):
            return
        if self.when_taken == "keep":
            self.leave(taken.path)
        elif taken.fate in NOT_TAKEN:
            moved = self._move(taken.path, REFUSED_FOLDER, has_reason=True)
            _reason_beside(moved).write_text(f"{taken.fate}: {taken.detail}\n", encoding="utf-8")
        elif self.when_taken == "move":
            self._move(taken.path, TAKEN_FOLDER, has_reason=False)
        else:
            taken.path.unlink(missing_ok=True)

    def leave(self, file: Path) -> None:
        """It is not looked at again until it changes."""
        self._files(file.parent).leave(file.name)

    def _is_another(self, file: Path) -> bool:
        files = self._files(file.parent)
        known, found = files.waiting.get(file.name), files.stamp(file.name)
        return known is not None and found is not None and known[0] != found

    def _move(self, file: Path, folder: str, *, has_reason: bool) -> Path:
        """To the same place below `folder`; nothing there is overwritten, nor by the text beside it, if there will be one."""
        target = self.path / folder / file.relative_to(self.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        number = 0
        while target.exists() or (has_reason and _reason_beside(target).exists()):
            number += 1
            target = target.with_name(f"{file.stem}.{number}{file.suffix}")
        file.rename(target)
        return target


def _reason_beside(file: Path) -> Path:
    return file.with_name(f"{file.name}.txt")
