"""The columns of a list of pictures: those of public sets are known by their header."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from hilum.retrieve.source import SourceError

Cells = Mapping[str, str]
_NIH_FOLDERS: Final = ("images", "", *(f"images_{number:03}/images" for number in range(1, 13)))
_NUMBER: Final = re.compile(r"[0-9]+")
_IDENTIFIER: Final = re.compile(r"[0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True)
class PictureColumns:
    """Names of columns, in any case. Empty: the column of the usual name, where there is one."""

    path: str = ""
    study: str = ""
    series: str = ""
    patient: str = ""
    view: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class RowTexts:
    """The texts of a row. `name`: the text that names the picture; `paths`: where it may be."""

    name: str
    paths: Sequence[str]
    study: str = ""
    series: str = ""
    patient: str = ""
    view: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True)
class PictureLayout:
    """How the rows of one list are read.

    `collection`: the name of a public set, in which a path means the same picture everywhere;
    empty: a list of the site.
    """

    name: str
    collection: str
    read: Callable[[Cells], RowTexts]


def layout_of(header: Sequence[str], columns: PictureColumns) -> PictureLayout:
    """Return the layout for a header. Raises SourceError with the remedy."""
    found = {name.strip().casefold(): name for name in header}
    if len(found) < len(header):
        raise SourceError("two columns of the list have one name; rename one", is_final=True)
    if not columns.path:
        for needed, layout in _KNOWN:
            if needed <= found.keys():
                return layout
    named = {
        word: _column(found, getattr(columns, word), word)
        for word in ("path", "study", "series", "patient", "view", "date")
    }
    if not named["path"]:
        raise SourceError(
            "the list has no column `path`, and no header of MIMIC-CXR-JPG, ChestX-ray14 or"
            " CheXpert; name the column of the path (--path-column)",
            is_final=True,
        )

    def read(cells: Cells) -> RowTexts:
        texts = {word: cells.get(name, "") for word, name in named.items()}
        return RowTexts(
            texts["path"],
            (texts["path"],),
            **{word: text for word, text in texts.items() if word != "path"},
        )

    return PictureLayout("columns", "", read)


def _column(found: Mapping[str, str], wanted: str, usual: str) -> str:
    """Return the key of a column; empty: there is none. Raises SourceError."""
    key = (wanted or usual).strip().casefold()
    if key in found:
        return key
    if wanted:
        raise SourceError(f"the list has no column {wanted!r}; check its first row", is_final=True)
    return ""


def _mimic(cells: Cells) -> RowTexts:
    """MIMIC-CXR-JPG 2: files/pNN/pSUBJECT/sSTUDY/DICOM_ID.jpg beside the list, or a path."""
    subject = cells["subject_id"]
    study = cells["study_id"]
    path = cells.get("path", "") or _mimic_path(subject, study, cells["dicom_id"])
    view = cells.get("viewposition", "")
    return RowTexts(path, (path,), study, "", subject, view, cells.get("studydate", ""))


def _mimic_path(subject: str, study: str, name: str) -> str:
    """Return the path of a picture; empty: an identifier has another form."""
    is_sound = (
        _NUMBER.fullmatch(subject) and _NUMBER.fullmatch(study) and _IDENTIFIER.fullmatch(name)
    )
    return f"files/p{subject[:2]}/p{subject}/s{study}/{name}.jpg" if is_sound else ""


def _nih(cells: Cells) -> RowTexts:
    """ChestX-ray14: each picture is a study; the files are in one folder, or in twelve."""
    name = cells["image index"]
    paths = [f"{folder}/{name}" if folder else name for folder in _NIH_FOLDERS] if name else [""]
    return RowTexts(
        name, paths, patient=cells.get("patient id", ""), view=cells.get("view position", "")
    )


def _chexpert(cells: Cells) -> RowTexts:
    """CheXpert: the path begins with the folder of the set, in which the list is."""
    name = cells["path"]
    path = PurePosixPath(name)
    view = cells.get("ap/pa", "")
    if cells.get("frontal/lateral", "").casefold() == "lateral":
        view = "LL"
    inside = str(PurePosixPath(*path.parts[1:])) if len(path.parts) > 1 else name
    study = str(path.parent) if len(path.parts) > 1 else ""
    return RowTexts(name, (inside, name, f"../{name}"), study, view=view)


_KNOWN: Final = (
    (
        frozenset({"dicom_id", "study_id", "subject_id"}),
        PictureLayout("MIMIC-CXR-JPG", "mimic-cxr-jpg", _mimic),
    ),
    (frozenset({"image index"}), PictureLayout("ChestX-ray14", "chestx-ray14", _nih)),
    (
        frozenset({"path", "frontal/lateral", "ap/pa"}),
        PictureLayout("CheXpert", "chexpert", _chexpert),
    ),
)
