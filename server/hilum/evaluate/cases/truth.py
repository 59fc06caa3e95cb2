"""Labels as numbers, by the rules of a protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hilum.errors import ConfigurationError
from hilum.evaluate.cases.label_files import LabelRows, Row, assign_roles, file_of, named_file
from hilum.evaluate.protocol.protocol import Protocol, ProtocolColumns, policy
from hilum.evaluate.statistics.areas import Floats

_VALUES: Final = {"1": 1.0, "1.0": 1.0, "0": 0.0, "0.0": 0.0, "-1": -1.0, "-1.0": -1.0}
_BLANK: Final = ("", "nan", "NaN")
_NO_FINDING: Final = "No Finding"
_FRONTAL: Final = ("PA", "AP", "FRONTAL")
_BANDS: Final = ((18, "0 to 17"), (40, "18 to 39"), (60, "40 to 59"), (80, "60 to 79"))


@dataclass(frozen=True, slots=True)
class LabelledCase:
    """One row of labels: an image, or a study of a set that labels studies.

    Paths have lost the leading folders that may have other names. Empty: not known.
    """

    image: str
    study: str
    patient: str
    view: str = ""
    sex: str = ""
    age: str = ""


@dataclass(slots=True)
class LabelDoubts:
    """Content of the files that the protocol cannot use, by name with a count."""

    columns: list[str] = field(default_factory=list)
    cells: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    absent: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TruthTable:
    """Labels of all cases. `truth`: 1, 0 or NaN, a row a case and a column a class."""

    classes: tuple[str, ...]
    cases: tuple[LabelledCase, ...]
    truth: Floats
    doubts: LabelDoubts
    files: tuple[Path, ...]
    split: str


@dataclass(frozen=True, slots=True)
class LabelChoices:
    """Rules that a person chooses. Empty: as the protocol has it.

    `split`: `all` takes each row. `views`: only these; `frontal` stands for PA, AP and Frontal.
    """

    uncertain: str = ""
    blank: str = ""
    rows: str = ""
    split: str = ""
    views: tuple[str, ...] = ()


def read_truth(protocol: Protocol, paths: Sequence[Path], choices: LabelChoices) -> TruthTable:
    """Read the files of a protocol. Raises ConfigurationError and OSError."""
    tables = assign_roles(protocol, paths)
    doubts = LabelDoubts()
    needs_split = bool(file_of(protocol, "split")) and choices.split != "all"
    required = ["labels", *(["images"] if file_of(protocol, "images") else [])]
    required += ["split"] if needs_split else []
    _require(protocol, tables, required)
    base = tables.get("images", tables["labels"])
    _require_columns(protocol, base)
    rows = _joined(
        protocol, tables, _in_split(protocol, tables, base.rows, choices, doubts), doubts
    )
    rows = _of_views(protocol, rows, choices, doubts)
    if not rows:
        raise ConfigurationError([f"{base.path}: no row is of the split {protocol.split.name}"])
    classes = _classes(protocol, tables["labels"], doubts)
    values = _values(protocol, classes, rows, choices, doubts)
    cases = [_case(protocol, row) for row in rows]
    kept, truth = _combined(protocol, cases, values, choices.rows or protocol.rows)
    return TruthTable(
        classes,
        kept,
        truth,
        doubts,
        tuple(table.path for table in tables.values()),
        "all rows" if choices.split == "all" else protocol.split.name,
    )


def age_band(age: str) -> str:
    """Return a band of ages; empty for a text that is no age. `058Y` is 58, `011M` is 0."""
    digits = age.strip().rstrip("YMWDymwd")
    if not digits.replace(".", "", 1).isdecimal():
        return ""
    years = 0.0 if age.strip()[-1].upper() in "MWD" else float(digits)
    return next((name for end, name in _BANDS if years < end), "80 and more")


def _require(protocol: Protocol, tables: dict[str, LabelRows], roles: list[str]) -> None:
    missing = [item for role in roles if role not in tables and (item := file_of(protocol, role))]
    if missing:
        raise ConfigurationError(
            [
                f"--labels: {protocol.name} also needs {named_file(item)}"
                + (", or --split all" if item.role == "split" else "")
                for item in missing
            ]
        )


def _require_columns(protocol: Protocol, base: LabelRows) -> None:
    """Raise for a column of names that no file has: an own list may name it otherwise."""
    wanted = protocol.columns.image if protocol.labelled == "image" else protocol.columns.study
    if wanted not in base.header:
        raise ConfigurationError([f"{base.path}: there is no column {wanted!r}; --key names it"])


def _in_split(
    protocol: Protocol,
    tables: dict[str, LabelRows],
    rows: list[Row],
    choices: LabelChoices,
    doubts: LabelDoubts,
) -> list[Row]:
    if choices.split == "all":
        return rows
    split = protocol.split
    if "split" in tables:
        found = _listed_rows(tables["split"], rows, protocol.columns.image, doubts)
    elif split.column:
        found = [row for row in rows if row[split.column] == split.value]
    else:
        return rows
    doubts.left_out["rows of other splits"] += len(rows) - len(found)
    return found


def _listed_rows(split: LabelRows, rows: list[Row], column: str, doubts: LabelDoubts) -> list[Row]:
    """Return the rows that a list names, and count its names without a row."""
    listed = {row["name"] for row in split.rows}
    found = [row for row in rows if row[column] in listed]
    if absent := len(listed - {row[column] for row in found}):
        doubts.left_out["names of the split list without labels"] += absent
    return found


def _joined(
    protocol: Protocol, tables: dict[str, LabelRows], rows: list[Row], doubts: LabelDoubts
) -> list[Row]:
    """Add the columns of further files to the rows of images."""
    joins = [(role, tables[role]) for role in ("labels", "views") if role in tables]
    for role, table in joins:
        item = file_of(protocol, role)
        if item is None or not item.by:
            continue
        by = _by(table, item.by)
        if role == "labels":
            rows = _with_labels(rows, item.by, by, table, doubts)
        rows = _merged(rows, item.by, by)
    return rows


def _by(table: LabelRows, column: str) -> dict[str, Row]:
    """Return the rows by a column. Raises ConfigurationError where two name the same."""
    by = {row[column]: row for row in table.rows}
    if again := len(table.rows) - len(by):
        problem = f"{table.path}: {again} rows have the {column} of another row; leave one of each"
        raise ConfigurationError([problem])
    return by


def _merged(rows: list[Row], column: str, by: Mapping[str, Row]) -> list[Row]:
    return [{**by.get(row[column], {}), **row} for row in rows]


def _with_labels(
    rows: list[Row], column: str, by: Mapping[str, Row], table: LabelRows, doubts: LabelDoubts
) -> list[Row]:
    """Return the rows of images that have labels, and count the others."""
    known = [row for row in rows if row[column] in by]
    if absent := len(rows) - len(known):
        doubts.left_out[f"images without a row in {table.path.name}"] += absent
    return known


def _of_views(
    protocol: Protocol, rows: list[Row], choices: LabelChoices, doubts: LabelDoubts
) -> list[Row]:
    asked = choices.views or protocol.views
    if not asked:
        return rows
    wanted = {
        name for view in asked for name in (_FRONTAL if view == "frontal" else (view.upper(),))
    }
    found = [row for row in rows if _first(row, protocol.columns.view).upper() in wanted]
    if not found:
        raise ConfigurationError([f"--views {','.join(asked)}: no row has such a view"])
    doubts.left_out["images of other views"] += len(rows) - len(found)
    return found


def _classes(protocol: Protocol, table: LabelRows, doubts: LabelDoubts) -> tuple[str, ...]:
    if protocol.cells == "listed":
        return (*protocol.classes, *protocol.also)
    if not protocol.classes:
        return _own_classes(protocol, table, doubts)
    _require_classes(protocol, table)
    doubts.absent = [name for name in protocol.also if name not in table.header]
    return (*protocol.classes, *(name for name in protocol.also if name in table.header))


def _require_classes(protocol: Protocol, table: LabelRows) -> None:
    if missing := [name for name in protocol.classes if name not in table.header]:
        raise ConfigurationError(
            [
                f"{table.path}: the class {name!r} of {protocol.name} has no column"
                for name in missing
            ]
        )


def _own_classes(protocol: Protocol, table: LabelRows, doubts: LabelDoubts) -> tuple[str, ...]:
    """Return the columns whose cells are all labels; name the others."""
    columns = protocol.columns
    names = {columns.image, columns.study, columns.patient, columns.sex, columns.age, *columns.view}
    found = []
    for name in table.header:
        if name in names:
            continue
        if _has_labels_alone(table, name):
            found.append(name)
        else:
            doubts.columns.append(name)
    if not found:
        raise ConfigurationError(
            [f"{table.path}: no column has labels alone: 1, 0, -1 (uncertain) or empty"]
        )
    return tuple(found)


def _has_labels_alone(table: LabelRows, name: str) -> bool:
    cells = {row[name].strip() for row in table.rows}
    return cells <= {*_VALUES, *_BLANK} and bool(cells & _VALUES.keys())


def _values(
    protocol: Protocol,
    classes: tuple[str, ...],
    rows: list[Row],
    choices: LabelChoices,
    doubts: LabelDoubts,
) -> Floats:
    if protocol.cells == "listed":
        return _listed_values(protocol, classes, rows, doubts)
    rule = policy(choices.uncertain or protocol.uncertain)
    blank = _blank(choices.blank or protocol.blank)
    columns = []
    for name in classes:
        meaning = _meaning(rule.value(name), blank)
        columns.append(_column(name, rows, meaning, doubts))
    return np.array(columns, dtype=np.float64).T.reshape(len(rows), len(classes))


def _blank(rule: str) -> float:
    return 0.0 if rule == "negative" else np.nan


def _column(
    name: str, rows: list[Row], meaning: Mapping[str, float], doubts: LabelDoubts
) -> list[float]:
    """Return the values of a class, and count the cells that are no label."""
    cells = [row[name].strip() for row in rows]
    if unknown := sum(cell not in meaning for cell in cells):
        doubts.cells[name] += unknown
    return [meaning.get(cell, np.nan) for cell in cells]


def _meaning(uncertain: float, blank: float) -> dict[str, float]:
    """Return the value of each text of a cell."""
    said = {**_VALUES, "-1": uncertain, "-1.0": uncertain}
    return said | dict.fromkeys(_BLANK, blank)


def _listed_values(
    protocol: Protocol, classes: tuple[str, ...], rows: list[Row], doubts: LabelDoubts
) -> Floats:
    said = [{name.strip() for name in row[protocol.listed_in].split("|")} for row in rows]
    for names in said:
        for name in names - set(classes) - {_NO_FINDING}:
            doubts.cells[f"{protocol.listed_in}: {name}"] += 1
    return np.array([[float(name in names) for name in classes] for names in said])


def _case(protocol: Protocol, row: Row) -> LabelledCase:
    columns = protocol.columns
    image = _inside(row.get(columns.image, ""), columns.drop_folders)
    study = _study(columns, row, image)
    patient = row.get(columns.patient, "")
    if columns.patient == "study_folder":
        patient = str(PurePosixPath(study).parent)
    return LabelledCase(
        image,
        study,
        patient,
        _first(row, columns.view),
        row.get(columns.sex, ""),
        row.get(columns.age, ""),
    )


def _study(columns: ProtocolColumns, row: Row, image: str) -> str:
    if columns.study == "folder":
        return str(PurePosixPath(image).parent)
    return _inside(row.get(columns.study, ""), columns.drop_folders)


def _inside(path: str, drop: int) -> str:
    parts = PurePosixPath(path).parts
    return str(PurePosixPath(*parts[drop:])) if drop and len(parts) > drop else path


def _first(row: Row, columns: Sequence[str]) -> str:
    return next((text for name in columns if (text := row.get(name, "").strip())), "")


def _combined(
    protocol: Protocol, cases: list[LabelledCase], values: Floats, rule: str
) -> tuple[tuple[LabelledCase, ...], Floats]:
    """Return one row a case, of several readers or boxes."""
    names = [case.image or case.study for case in cases]
    numbers = _numbers(names)
    if len(set(names)) == len(names):
        return tuple(cases), values
    if rule == "one":
        raise _several_rows(protocol, names)
    kept = np.unique(numbers, return_index=True)[1]
    return tuple(cases[row] for row in kept), _votes(numbers, values, rule)


def _numbers(names: Sequence[str]) -> NDArray[np.intp]:
    """Return the number of each name, in the order in which they first occur."""
    first: dict[str, int] = {}
    return np.array([first.setdefault(name, len(first)) for name in names])


def _several_rows(protocol: Protocol, names: Sequence[str]) -> ConfigurationError:
    again = {name: count - 1 for name, count in Counter(names).items() if count > 1}
    problem = (
        f"{protocol.name}: {sum(again.values())} rows name a case again, such as"
        f" {next(iter(again))!r}; --rows majority, any or all says which label holds"
    )
    return ConfigurationError([problem])


def _votes(numbers: NDArray[np.intp], values: Floats, rule: str) -> Floats:
    """Return the vote on each case and class; NaN where no row has a label."""
    cases = int(numbers.max()) + 1
    given = np.zeros((cases, values.shape[1]))
    positive = np.zeros_like(given)
    np.add.at(given, numbers, ~np.isnan(values))
    np.add.at(positive, numbers, np.nan_to_num(values))
    needed = _needed(given, rule)
    return np.where(given > 0, (positive >= needed).astype(np.float64), np.nan)


def _needed(given: Floats, rule: str) -> Floats:
    """Return how many positive rows make a case positive."""
    if rule == "any":
        return np.ones_like(given)
    return given if rule == "all" else given / 2 + 0.5
