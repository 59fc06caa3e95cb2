"""A folder for incoming files: which of them are complete, and where they go when taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, Literal

from hilum import beneath
from hilum.receive.files.folder import FileOutcome, TakenFile
from hilum.receive.files.watched_files import WatchedFiles

TAKEN_FOLDER: Final = "taken"
REFUSED_FOLDER: Final = "refused"
NOT_TAKEN: Final = frozenset({FileOutcome.REFUSED, FileOutcome.SKIPPED, FileOutcome.FAILED})


@dataclass(slots=True)
class WatchedFolder:
    """A watched folder. `settle_seconds`: a file unchanged for so long is complete.

    One that is renamed into place keeps its older time.
    """

    path: Path
    when_taken: Literal["keep", "delete", "move"]
    settle_seconds: float
    _folders: dict[Path, WatchedFiles] = field(default_factory=dict)

    def whole(self, now: float) -> list[Path]:
        """Return files to take now, in order of folders and names. `now`: since the epoch.

        Raises OSError without a folder.
        """
        self._folders = {files.folder: files for files in self._looked_at(self.path, now)}
        found = (
            (files.folder, files.whole(now, self.settle_seconds))
            for files in self._folders.values()
        )
        return [folder / name for folder, names in found for name in names]

    @property
    def problems(self) -> frozenset[str]:
        """The reasons why entries were skipped at the last look."""
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
        """Move or delete a taken file. Raises OSError.

        Under `keep` it stays and is not looked at again until it changes. A file that has replaced
        it meanwhile is not the one that was taken: it waits for its turn.
        """
        if self._is_another(taken.path):
            return
        if self.when_taken == "keep":
            self.leave(taken.path)
        elif taken.fate in NOT_TAKEN:
            self._move(taken.path, REFUSED_FOLDER, f"{taken.fate}: {taken.detail}\n")
        # it may be kept nowhere else
        elif self.when_taken == "move" or taken.fate is FileOutcome.DISCARDED:
            self._move(taken.path, TAKEN_FOLDER)
        else:
            with self._folder_of(taken.path) as folder:
                beneath.remove(folder, taken.path.name)

    def open(self, file: Path) -> BinaryIO:
        """Open one of its files for reading. Raises OSError, also where a link is on the way.

        Another account may have put the link there.
        """
        return beneath.open_file(self.path, file)

    def leave(self, file: Path) -> None:
        """Leave a file until it changes."""
        self._files(file.parent).leave(file.name)

    def _is_another(self, file: Path) -> bool:
        files = self._files(file.parent)
        known = files.waiting.get(file.name)
        found = files.stamp(file.name)
        return known is not None and found is not None and known[0] != found

    def _move(self, file: Path, folder: str, reason: str = "") -> None:
        """Move a file to the same place below `folder`, with the reason in a text beside it.

        Nothing is overwritten.
        """
        place = file.relative_to(self.path).parent.parts
        with (
            self._folder_of(file) as source,
            beneath.open_folder(self.path, folder, *place, make=True) as target,
        ):
            name = _free_name(target, file, has_reason=bool(reason))
            beneath.move(source, file.name, target, name)
            if reason:
                beneath.write(target, _beside(name), reason.encode())

    def _folder_of(self, file: Path) -> AbstractContextManager[int]:
        return beneath.open_folder(self.path, *file.relative_to(self.path).parent.parts)


def _free_name(folder: int, file: Path, *, has_reason: bool) -> str:
    name = file.name
    number = 0
    while beneath.exists(folder, name) or (has_reason and beneath.exists(folder, _beside(name))):
        number += 1
        name = f"{file.stem}.{number}{file.suffix}"
    return name


def _beside(name: str) -> str:
    return f"{name}.txt"
