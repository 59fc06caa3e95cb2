"""What people call the types of fields: for the generated tables of docs/."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, Union

_WORDS: Final[Mapping[object, str]] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Any: "anything",
}


def words_of(annotation: object, list_of: Callable[[object], str] = lambda _: "list") -> str:
    """One type, or several with "or" between them.

    `list_of` says what a tuple is whose items are of this type.
    """
    return " or ".join(dict.fromkeys(_words(annotation, list_of)))


def _words(annotation: object, list_of: Callable[[object], str]) -> Iterator[str]:
    origin = typing.get_origin(annotation)
    inner = typing.get_args(annotation)
    if annotation in _WORDS:
        yield _WORDS[annotation]
    elif origin in (Union, types.UnionType):
        yield from (
            word for part in inner if part is not types.NoneType for word in _words(part, list_of)
        )
    elif origin is Literal:
        yield ", ".join(
            f'`"{value}"`' if isinstance(value, str) else f"`{value}`" for value in inner
        )
    elif origin is typing.Annotated:
        yield from _words(inner[0], list_of)
    else:
        yield list_of(inner[0]) if origin is tuple else "table"
