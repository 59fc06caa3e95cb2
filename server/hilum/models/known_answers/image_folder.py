"""Folders and lists of images as a release receives them.

They are wire tensors from DICOM files, or files of `hilum prepare`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from hilum.errors import ConfigurationError
from hilum.models.known_answers.wire_image import wire_image
from hilum.models.manifest.manifest import Manifest
from hilum_preprocessing.spec.fields import nearest

Array = np.ndarray[Any, np.dtype[Any]]
_SUFFIXES: Final = frozenset({".dcm", ".npy"})


@dataclass(frozen=True, slots=True)
class Images:
    """Wire tensors (n, 1, H, W) with their files, in order.

    `skipped` gives the reasons for the files without one.
    """

    files: tuple[Path, ...]
    tensors: Array
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cases:
    """Images with the truth: one number an image for each label key.

    1 or 0; NaN where the truth is unknown.
    """

    images: Images
    truth: Mapping[str, Array]


def read_folder(manifest: Manifest, folder: Path) -> Images:
    """Read every .dcm and .npy file below the folder.

    Raises ConfigurationError where none can be prepared.
    """
    return _read(
        manifest, sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES), folder
    )


def read_cases(manifest: Manifest, table: Path) -> Cases:
    """Read a CSV file: `file` (beside the table), and a column for each label that the truth knows.

    A cell is 1, 0 or empty.

    Raises ConfigurationError: no such column or label, another value, an image that cannot be
    prepared.
    """
    rows = _rows(table)
    named = _labels_of(manifest, table, rows[0])
    truth = {name: np.array([_truth(table, row, name) for row in rows]) for name in named}
    images = _read(manifest, [table.parent / row["file"] for row in rows], table)
    if images.skipped:
        raise ConfigurationError([f"{table}: {problem}" for problem in images.skipped])
    return Cases(images, truth)


def _labels_of(manifest: Manifest, table: Path, first: Mapping[str, str]) -> list[str]:
    keys = [label.key for label in manifest.release.labels]
    named = [name for name in first if name != "file"]
    if unknown := [
        f"{table}: {name!r} is no label of {manifest.release.id}{nearest(name, keys)}"
        for name in named
        if name not in keys
    ]:
        raise ConfigurationError(unknown)
    return named


def _rows(table: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file with a column `file` and another one.

    Raises ConfigurationError.
    """
    try:
        with table.open(newline="", encoding="utf-8-sig") as source:
            rows = list(csv.DictReader(source))
    except OSError as error:
        raise ConfigurationError([f"{table}: {error.strerror}"]) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError([f"{table}: no CSV file: {error}"]) from error
    if problem := _table_problem(rows):
        raise ConfigurationError([f"{table}: {problem}"])
    return rows


def _table_problem(rows: Sequence[Mapping[str, str]]) -> str | None:
    if not rows or "file" not in rows[0] or len(rows[0]) < 2:
        return "needs a column `file`, one for a label at least, and a row for each image"
    for number, row in enumerate(rows, start=1):
        if None in row or None in row.values():
            return f"row {number} has more or fewer cells than the first line"
    return None


def _truth(table: Path, row: Mapping[str, str], name: str) -> float:
    if row[name] in ("0", "1"):
        return float(row[name])
    if not row[name]:
        return float("nan")
    raise ConfigurationError(
        [f"{table}: {name} of {row['file']} is {row[name]!r}; it must be 1, 0 or empty"]
    )


def _read(manifest: Manifest, paths: Sequence[Path], where: Path) -> Images:
    prepared = list(_prepare(manifest, paths))
    found = [(path, tensor) for path, tensor in prepared if not isinstance(tensor, str)]
    skipped = tuple(problem for _, problem in prepared if isinstance(problem, str))
    if not found:
        raise ConfigurationError(
            [f"{where}: no image can be prepared for {manifest.release.id}", *skipped[:3]]
        )
    return Images(
        tuple(path for path, _ in found), np.stack([tensor for _, tensor in found]), skipped
    )


def _prepare(manifest: Manifest, paths: Sequence[Path]) -> Iterator[tuple[Path, Array | str]]:
    """Yield each path with its tensor (1, H, W), or with the reason why it has none."""
    for path in paths:
        try:
            yield path, wire_image(manifest, path, path.name)[0]
        except OSError as error:
            yield path, f"{path.name}: {error.strerror}"
        except ConfigurationError as error:
            yield path, error.problems[0]
