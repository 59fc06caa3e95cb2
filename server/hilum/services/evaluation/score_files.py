"""Reads scores: the table of an export, or a table with a column for each class."""

from __future__ import annotations

import csv
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import numpy as np
from numpy.typing import NDArray

from hilum.errors import ConfigurationError
from hilum.evaluate.cases.scores import ORIGIN, ScoreTable
from hilum.evaluate.statistics.areas import Floats
from hilum.services.export_tables.columns import FORMAT_VERSION
from hilum.services.export_tables.csv_table import unguarded
from hilum.services.export_tables.files import PARQUET, not_read_path

if TYPE_CHECKING:
    import duckdb

_NAMES: Final = (ORIGIN, "sop_instance_uid", "study_instance_uid")
_LONG: Final = ("finding", "release")
_SCORE: Final = "score"  # the scale of operating points
_SHOWN: Final = 12
Cells = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ScoreChoices:
    """Which numbers of a file count. Empty: the only release; the column `score`.

    `prefix`: of the columns of classes, in a table with a column for each class.
    """

    release: str = ""
    column: str = _SCORE
    prefix: str = ""


def read_scores(path: Path, choices: ScoreChoices) -> ScoreTable:
    """Return the scores of one release. Raises ConfigurationError and OSError."""
    header, rows = _open(path)
    if set(_LONG) <= set(header):
        return _long_table(path, header, rows, choices)
    return _wide_table(path, header, rows, choices)


def _open(path: Path) -> tuple[list[str], Iterator[Cells]]:
    if path.suffix == PARQUET:
        return _open_parquet(path)
    file = path.open(encoding="utf-8-sig", newline="")
    reader = csv.DictReader(file, restval="")
    try:
        header = list(reader.fieldnames or ())
    except (UnicodeDecodeError, csv.Error) as error:
        file.close()
        raise ConfigurationError([f"{path}: it is no CSV in UTF-8"]) from error
    if problem := _header_problem(header):
        file.close()
        raise ConfigurationError([f"{path}: {problem}"])
    return header, _csv_rows(path, file, reader)


def _header_problem(header: Sequence[str]) -> str:
    if not header:
        return "it is empty"
    return "" if len(set(header)) == len(header) else "two columns have one name; rename one"


def _csv_rows(path: Path, file: TextIO, reader: Iterable[Cells]) -> Iterator[Cells]:
    with file:
        try:
            yield from reader
        except (UnicodeDecodeError, csv.Error) as error:
            raise ConfigurationError([f"{path}: it is no CSV in UTF-8"]) from error


def _open_parquet(path: Path) -> tuple[list[str], Iterator[Cells]]:
    import duckdb  # noqa: PLC0415 - of an extra

    settings: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False,
        "threads": 2,
    }
    connection = duckdb.connect(":memory:", config=settings)
    try:
        cursor = connection.execute("SELECT COLUMNS(*)::VARCHAR FROM read_parquet(?)", [str(path)])
    except duckdb.Error as error:
        raise ConfigurationError([f"{path}: it is no whole Parquet file"]) from error
    header = [str(column[0]) for column in cursor.description or ()]
    return header, _parquet_rows(cursor, header)


def _parquet_rows(cursor: duckdb.DuckDBPyConnection, header: Sequence[str]) -> Iterator[Cells]:
    with cursor:
        while cells := cursor.fetchmany(10_000):
            for row in cells:
                yield {name: cell or "" for name, cell in zip(header, row, strict=True)}


@dataclass(slots=True)
class _LongRows:
    """The content of a table with a row for each image and finding, image by image."""

    images: dict[tuple[str, ...], int]
    findings: dict[str, int]
    cells: list[tuple[int, int, float]]
    points: dict[str, set[str]]
    releases: Counter[str]
    untrained: int = 0
    left_out: int = 0


def _long_table(
    path: Path, header: Sequence[str], rows: Iterator[Cells], choices: ScoreChoices
) -> ScoreTable:
    names = [name for name in _NAMES if name in header]
    if choices.column not in header or not names:
        raise ConfigurationError([f"{path}: there is no column {choices.column!r}, or no origin"])
    found = _LongRows({}, {}, [], {}, Counter())
    for row in rows:
        _take(path, found, row, names, choices)
    if choices.release and not found.cells:
        known = ", ".join(found.releases) or "none"
        raise ConfigurationError([f"{path}: no row is of {choices.release}; it has {known}"])
    if len(found.releases) > 1 and not choices.release:
        raise ConfigurationError(
            [f"{path}: it has several releases; --release names one of {', '.join(found.releases)}"]
        )
    if not found.cells:
        raise ConfigurationError([f"{path}: it has no number"])
    return ScoreTable(
        release=choices.release or next(iter(found.releases)),
        source=str(path),
        findings=tuple(found.findings),
        scores=_matrix(path, found),
        names={name: [image[place] for image in found.images] for place, name in enumerate(names)},
        operating_points=_points(path, found) if choices.column == _SCORE else {},
        is_trained=not found.untrained if "is_trained" in header else None,
        not_read=_not_read(path, choices.release),
    )


def _take(
    path: Path, found: _LongRows, row: Cells, names: Sequence[str], choices: ScoreChoices
) -> None:
    if row.get("format_version", str(FORMAT_VERSION)) != str(FORMAT_VERSION):
        raise ConfigurationError([f"{path}: its columns have another version; export it again"])
    release = row["release"]
    if row.get("is_current", "true") == "false" or not row["finding"]:
        return
    found.releases[release] += 1
    if choices.release and release != choices.release:
        return
    number = _number(path, row[choices.column])
    image = tuple(unguarded(row[name]) for name in names)
    place = found.images.setdefault(image, len(found.images))
    finding = sys.intern(row["finding"])
    column = found.findings.setdefault(finding, len(found.findings))
    found.cells.append((place, column, number))
    found.untrained += row.get("is_trained") == "false"
    if point := row.get("operating_point"):
        found.points.setdefault(finding, set()).add(point)


def _matrix(path: Path, found: _LongRows) -> Floats:
    places = np.array([cell[:2] for cell in found.cells])
    _require_once(path, found, places)
    scores = np.full((len(found.images), len(found.findings)), np.nan)
    scores[places[:, 0], places[:, 1]] = [cell[2] for cell in found.cells]
    return scores


def _require_once(path: Path, found: _LongRows, places: NDArray[np.int64]) -> None:
    flat = places[:, 0] * len(found.findings) + places[:, 1]
    if len(np.unique(flat)) < len(flat):
        problem = (
            f"{path}: an image has a finding twice: leave out --all-revisions and --shadows, or"
            " export one campaign"
        )
        raise ConfigurationError([problem])


def _points(path: Path, found: _LongRows) -> dict[str, float]:
    """Return the operating points of findings; one that changes between rows has none."""
    return {
        finding: _number(path, next(iter(points)))
        for finding, points in found.points.items()
        if len(points) == 1
    }


def _wide_table(
    path: Path, header: Sequence[str], rows: Iterator[Cells], choices: ScoreChoices
) -> ScoreTable:
    columns = [name for name in header if choices.prefix and name.startswith(choices.prefix)]
    if not columns:
        shown = ", ".join(header[:_SHOWN])
        problem = (
            f"{path}: it is no table of `hilum export` (columns finding and release). In a table"
            " with a column for each class --score-prefix says how their names begin. It"
            f" has {shown}"
        )
        raise ConfigurationError([problem])
    names = [name for name in header if name not in columns]
    texts: dict[str, list[str]] = {name: [] for name in names}
    scores = []
    for row in rows:
        scores.append([_number(path, row[name]) for name in columns])
        for name in names:
            texts[name].append(row[name])
    if not scores:
        raise ConfigurationError([f"{path}: it has no row"])
    return ScoreTable(
        release=choices.release or path.name,
        source=str(path),
        findings=tuple(name.removeprefix(choices.prefix) for name in columns),
        scores=np.array(scores),
        names=texts,
    )


def _number(path: Path, cell: str) -> float:
    """Return a number; NaN for an empty cell. Raises ConfigurationError."""
    try:
        number = float(cell or "nan")
    except ValueError:
        raise ConfigurationError([f"{path}: {cell!r} is no number"]) from None
    if math.isinf(number):
        raise ConfigurationError([f"{path}: {cell!r} is no finite number"])
    return number


def _not_read(path: Path, release: str) -> dict[str, int]:
    """Count the images of the second table of an export by state and reason, if it is there."""
    beside = not_read_path(path)
    if not beside.is_file():
        return {}
    header, rows = _open(beside)
    if not {"state", "reason"} <= set(header):
        return {}
    return dict(
        Counter(
            " ".join(filter(None, (row["state"], row["reason"])))
            for row in rows
            if not release or row.get("release", "") in ("", release)
        )
    )
