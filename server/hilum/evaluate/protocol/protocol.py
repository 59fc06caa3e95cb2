"""A protocol: the files of a data set, their columns, the split, the classes, and the rules.

A protocol is a TOML file. Those of public data sets are in the folder `protocols`; a person's own
has the same fields.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hilum.errors import ConfigurationError

FORMAT: Final = 1
OWN: Final = "labels"
_PACKAGE: Final = "hilum.evaluate.protocol"


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ProtocolFile(_Table):
    """One file of the data set, known by its columns.

    `columns`: all of them occur in its header; none: a list of names without a header. `by`: the
    column that joins it with the file of images. `file`: its name, for people.
    """

    role: Literal["labels", "images", "split", "views"]
    file: str
    columns: tuple[str, ...] = ()
    by: str = ""


class ProtocolColumns(_Table):
    """Where a case finds its names. Empty: the data set does not say it.

    `image`: a path or a name of the picture. `drop_folders`: leading folders of that path that may
    have another name on disk. `study`, `patient`: a column, or `folder` and `study_folder`: the
    folder of the picture, and the folder above that. `view`: columns, the first with a text.
    """

    image: str = ""
    drop_folders: int = Field(default=0, ge=0)
    study: str = ""
    patient: str = ""
    sex: str = ""
    age: str = ""
    view: tuple[str, ...] = ()


class ProtocolSplit(_Table):
    """Which rows are evaluated: those with `value` in `column`, or those that a list names.

    `images`: how many the official split has; 0: not known.
    """

    name: str
    column: str = ""
    value: str = ""
    images: int = Field(default=0, ge=0)


class UncertaintyPolicy(_Table):
    """The value of -1 (uncertain): by class, else `other`."""

    ones: tuple[str, ...] = ()
    other: Literal["positive", "negative", "ignored"]
    source: str

    def value(self, label: str) -> float:
        """Return 1, 0, or NaN for a case that is left out."""
        if label in self.ones:
            return 1.0
        return {"positive": 1.0, "negative": 0.0, "ignored": float("nan")}[self.other]


class Protocol(_Table):
    """One protocol.

    `classes`: label columns that the mean is over. `also`: further ones, not in the mean. Both
    empty: each column with labels. `cells`: `values` are 1, 0, -1 and empty in a column a class;
    `listed`: one column `listed_in` names the positive classes. `rows`: for an image with several
    rows; `one` refuses it, else the majority of them counts, any, or all.
    """

    format: Literal[1]
    name: str
    version: str
    title: str
    dataset: str = ""
    source: str
    unit: Literal["image", "study"]
    labelled: Literal["image", "study"] = "image"
    aggregation: Literal["max", "mean", "none"] = "none"
    cells: Literal["values", "listed"] = "values"
    listed_in: str = ""
    rows: Literal["one", "majority", "any", "all"] = "one"
    classes: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    uncertain: str = "u-ignore"
    blank: Literal["negative", "ignored"] = "negative"
    views: tuple[str, ...] = ()
    files: tuple[ProtocolFile, ...]
    columns: ProtocolColumns = ProtocolColumns()
    split: ProtocolSplit
    findings: dict[str, str] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()


def names() -> list[str]:
    """Return the names of the protocols that Hilum has."""
    return sorted(
        item.name.removesuffix(".toml")
        for item in _folder().iterdir()
        if item.name.endswith(".toml")
    )


def load(name_or_path: str) -> Protocol:
    """Return a protocol by its name, or by the path of a TOML file.

    Raises ConfigurationError.
    """
    if name_or_path in names():
        return _parsed(name_or_path, (_folder() / f"{name_or_path}.toml").read_text("utf-8"))
    path = Path(name_or_path)
    if path.suffix != ".toml" or not path.is_file():
        raise ConfigurationError(
            [f"no protocol {name_or_path!r}; known: {', '.join(names())}, or a TOML file of yours"]
        )
    try:
        return _parsed(str(path), path.read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigurationError([f"{path}: it is no UTF-8 text"]) from error


def policy(name: str) -> UncertaintyPolicy:
    """Return a policy for uncertain labels. Raises ConfigurationError."""
    known = policies()
    if name not in known:
        raise ConfigurationError([f"no policy {name!r} for uncertain labels; {', '.join(known)}"])
    return known[name]


@functools.cache
def policies() -> dict[str, UncertaintyPolicy]:
    """Return all policies for uncertain labels by name."""
    text = (files(_PACKAGE) / "policies.toml").read_text("utf-8")
    return {name: UncertaintyPolicy(**table) for name, table in tomllib.loads(text).items()}


def _folder() -> Traversable:
    return files(_PACKAGE) / "protocols"


def _parsed(origin: str, text: str) -> Protocol:
    try:
        found = Protocol(**tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError([f"{origin}: no TOML: {error}"]) from error
    except ValidationError as error:
        raise ConfigurationError(
            [
                f"{origin}: {'.'.join(map(str, item['loc']))}: {item['msg']}"
                for item in error.errors()
            ]
        ) from error
    policy(found.uncertain)
    if problems := list(_column_problems(found)):
        raise ConfigurationError([f"{origin}: {problem}" for problem in problems])
    return found


def _column_problems(protocol: Protocol) -> Iterator[str]:
    """Yield the columns that a rule reads and that no file has to have."""
    by_role = {item.role: item for item in protocol.files}
    if "labels" not in by_role:
        yield "files: one has the role labels"
        return
    labels = by_role["labels"]
    base = by_role.get("images", labels)
    needed = [("by", item.by, each) for item in protocol.files for each in (item, base) if item.by]
    if protocol.cells == "listed":
        needed.append(("listed_in", protocol.listed_in, labels))
    if protocol.split.column:
        needed.append(("split.column", protocol.split.column, base))
    for name, column, item in needed:
        if column not in item.columns:
            yield f"{name}: {column!r} is not among the columns of {item.file}"
