"""Reads mappings (from TOML, JSON, YAML) into frozen dataclasses.

An unknown name is refused, with the nearest known one.

A dataclass field made by `read_by` carries the function that checks its value. Torch-free.
"""

from __future__ import annotations

import dataclasses
import difflib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from hilum_preprocessing.errors import SpecError

T = TypeVar("T")
Reader = Callable[[Any, str], Any]


def read_by(
    reader: Reader,
    default: Any = dataclasses.MISSING,  # noqa: ANN401 - of the reader's type
    meaning: str = "",
    *,
    is_later: bool = False,
) -> Any:  # noqa: ANN401 - a dataclass field of the reader's type
    """A dataclass field whose value in a mapping is converted by `reader(value, where)`.

    `reader` also checks it. `meaning` is for docs/. `is_later`: the field came after the first
    release, with a default that changes no tensor. See `plain`.
    """
    return dataclasses.field(
        default=default, metadata={"reader": reader, "meaning": meaning, "is_later": is_later}
    )


def plain(value: Any, *, for_version: bool = False) -> Any:  # noqa: ANN401 - JSON
    """A specification, or a part of it, as plain values that `build` reads back.

    An operation names itself by `op`. `for_version` leaves out later fields that have their
    default: a specification keeps its version when the vocabulary grows.
    """
    if isinstance(value, tuple):
        return [plain(item, for_version=for_version) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    named = {"op": value.op} if hasattr(value, "op") else {}
    kept = (
        field
        for field in dataclasses.fields(value)
        if not (
            for_version
            and field.metadata["is_later"]
            and getattr(value, field.name) == field.default
        )
    )
    return {
        **named,
        **{
            field.name: plain(getattr(value, field.name), for_version=for_version) for field in kept
        },
    }


def build(cls: type[T], given: object, where: str, also: Iterable[str] = ()) -> T:
    """An instance of the dataclass `cls` from a mapping.

    Raises SpecError for unknown, missing or wrong fields. `also`: names that the caller would have
    taken, to suggest for a misspelt one.
    """
    values = mapping(given, where)
    known = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]  # T is a dataclass at every call
    for name in values:
        if name not in known:
            raise SpecError(
                f"{where}: unknown field {name!r}{nearest(name, sorted((*known, *also)))}"
            )
    missing = [
        name
        for name, field in known.items()
        if field.default is dataclasses.MISSING and name not in values
    ]
    if missing:
        raise SpecError(f"{where}: missing {', '.join(missing)}")
    return cls(
        **{
            name: known[name].metadata["reader"](value, f"{where}.{name}")
            for name, value in values.items()
        }
    )


def mapping(given: object, where: str) -> Mapping[str, Any]:
    """`given` as a mapping with names for keys."""
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise SpecError(f"{where}: expected a table of fields, found {type(given).__name__}")
    return given


def nearest(name: str, known: Iterable[str], most: int = 1, cutoff: float = 0.6) -> str:
    """The end of a message about an unknown name.

    At most so many that were perhaps meant, else all that are known; empty where none is.
    `cutoff`: how much alike two names are at least, from 0 to 1, as difflib counts it.
    """
    names = list(known)
    if close := difflib.get_close_matches(name, names, n=most, cutoff=cutoff):
        return f"; did you mean {' or '.join(map(repr, close))}?"
    return f"; known: {', '.join(names)}" if names else ""


def section(cls: type[T]) -> Reader:
    """Reads a nested table into another dataclass."""
    return lambda given, where: build(cls, given, where)


def one_of(*words: str) -> Reader:
    """Reads one of the given words."""

    def read(given: object, where: str) -> str:
        if not isinstance(given, str) or given not in words:
            raise SpecError(f"{where}: unknown value {given!r}{nearest(str(given), sorted(words))}")
        return given

    return read


def text(given: object, where: str) -> str:
    """Reads any text."""
    if not isinstance(given, str):
        raise SpecError(f"{where}: expected text, found {given!r}")
    return given


def number(given: object, where: str) -> float:
    """Reads a finite number."""
    # A comparison, since math.isfinite raises for whole numbers of 400 digits; with NaN it is
    # false.
    if (
        isinstance(given, bool)
        or not isinstance(given, int | float)
        or not abs(given) <= sys.float_info.max
    ):
        raise SpecError(f"{where}: expected a finite number, found {given!r}")
    return float(given)


def positive_number(given: object, where: str) -> float:
    """Reads a finite number above 0."""
    value = number(given, where)
    if value <= 0:
        raise SpecError(f"{where}: expected a number above 0, found {given!r}")
    return value


def percent(given: object, where: str) -> float:
    """Reads a number from 0 to 100."""
    value = number(given, where)
    if not 0 <= value <= 100:
        raise SpecError(f"{where}: expected a number from 0 to 100, found {given!r}")
    return value


def index(given: object, where: str) -> int:
    """Reads a position in a list, from 0."""
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise SpecError(f"{where}: expected a whole number from 0, found {given!r}")
    return given


def number_of(*known: int) -> Reader:
    """Reads one of the given whole numbers."""

    def read(given: object, where: str) -> int:
        if isinstance(given, bool) or not isinstance(given, int) or given not in known:
            raise SpecError(
                f"{where}: expected one of {', '.join(map(str, known))}, found {given!r}"
            )
        return given

    return read


def optional(reader: Reader) -> Reader:
    """Reads the same as `reader`, or nothing."""
    return lambda given, where: None if given is None else reader(given, where)


def length(given: object, where: str) -> int:
    """Reads a count of pixels: 1 to 65535, the range of Rows and Columns."""
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= 65535:
        raise SpecError(f"{where}: expected a whole number from 1 to 65535, found {given!r}")
    return given


def truth(given: object, where: str) -> bool:
    """Reads true or false."""
    if not isinstance(given, bool):
        raise SpecError(f"{where}: expected true or false, found {given!r}")
    return given


def word_or(reader: Reader, *words: str) -> Reader:
    """Reads one of the given words, else the same as `reader`."""
    word = one_of(*words)
    return lambda given, where: (word if isinstance(given, str) else reader)(given, where)


def each(reader: Reader) -> Reader:
    """Reads a list (a single value stands for a list of one) into a tuple."""

    def read(given: object, where: str) -> tuple[Any, ...]:
        items = list(given) if isinstance(given, list | tuple) else [given]
        return tuple(reader(item, f"{where}[{index}]") for index, item in enumerate(items))

    return read


def operations(known: Mapping[str, type[Any]]) -> Reader:
    """Reads a list of tables, each naming its dataclass by `op`."""

    def read(given: object, where: str) -> Any:  # noqa: ANN401 - one of the dataclasses in `known`
        fields = dict(mapping(given, where))
        op = fields.pop("op", None)
        if not isinstance(op, str) or op not in known:
            raise SpecError(f"{where}: unknown op {op!r}{nearest(str(op), sorted(known))}")
        return build(known[op], fields, f"{where} ({op})")

    return each(read)
