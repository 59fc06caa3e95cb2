"""Scores of a release, as a matrix with the names of its images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from hilum.evaluate.statistics.areas import Floats

ORIGIN = "origin"
IMAGE_UID = "sop_instance_uid"
STUDY_UID = "study_instance_uid"
_UIDS = (IMAGE_UID, STUDY_UID)


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """Scores by image and finding. NaN: none.

    `names`: by column, the text of each image; all columns have equal lengths. `not_read`: reasons
    of images without numbers, where the results come with such a table.
    """

    release: str
    source: str
    findings: tuple[str, ...]
    scores: Floats
    names: Mapping[str, Sequence[str]]
    operating_points: Mapping[str, float] = field(default_factory=dict)
    is_trained: bool | None = None
    not_read: Mapping[str, int] = field(default_factory=dict)


class ImageIndex:
    """Finds the images of a table of scores by a text of the labels.

    A text of a UID column is equal. Else a path fits where it ends the other one: `1.png` fits
    `/data/1.png`. A name without a suffix also fits the file of this name: `1` fits `/data/1.dcm`.
    """

    def __init__(self, column: str, texts: Sequence[str], *, is_folder: bool = False) -> None:
        self._is_uid = column in _UIDS
        self._texts = texts
        self._is_folder = is_folder
        self._tails: dict[tuple[int, bool], dict[tuple[str, ...], list[int]]] = {}
        self._equal: dict[str, list[int]] = {}
        for row, text in enumerate(texts):
            self._equal.setdefault(text, []).append(row)

    def find(self, text: str) -> Sequence[int]:
        """Return the rows of the images with this name; none: there is no such image."""
        parts = _parts(text)
        if not parts:
            return ()
        if self._is_uid:
            return self._equal.get(text, ())
        for is_stem in (False, True):
            if found := self._tail(len(parts), is_stem=is_stem).get(parts):
                return found
        return ()

    def _tail(self, length: int, *, is_stem: bool) -> dict[tuple[str, ...], list[int]]:
        """Return rows by the last parts of their paths."""
        if (length, is_stem) not in self._tails:
            self._tails[length, is_stem] = _by_tail(self._paths(is_stem=is_stem), length)
        return self._tails[length, is_stem]

    def _paths(self, *, is_stem: bool) -> Iterable[tuple[str, ...]]:
        for text in self._texts:
            parts = _parts(text)
            if self._is_folder:
                yield parts[:-1]
            elif is_stem and parts:
                yield (*parts[:-1], PurePosixPath(parts[-1]).stem)
            else:
                yield parts


def _by_tail(paths: Iterable[tuple[str, ...]], length: int) -> dict[tuple[str, ...], list[int]]:
    found: dict[tuple[str, ...], list[int]] = {}
    for row, parts in enumerate(paths):
        if len(parts) >= length:
            found.setdefault(parts[-length:], []).append(row)
    return found


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.replace("\\", "/").split("/") if part not in ("", "."))
