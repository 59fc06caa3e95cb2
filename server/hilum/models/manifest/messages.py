"""Messages about the words of a manifest, with which a person can correct them."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from hilum.models.manifest.tables import ManifestTable
from hilum_preprocessing.spec.fields import nearest

EDIT: Final = "EDIT"
"""Beginning of a text that a person has still to write."""
_UNEDITED: Final = re.compile(rf"\s*{EDIT}\b")


def unedited(content: object, place: str = "") -> Iterator[str]:
    """Yield the texts that `hilum models new` left for a person to write."""
    if isinstance(content, str) and _UNEDITED.match(content):
        yield f"{place}: still to be written; it says {content!r}"
    elif isinstance(content, Mapping | list):
        for key, value in content.items() if isinstance(content, Mapping) else enumerate(content):
            yield from unedited(value, f"{place}.{key}".removeprefix("."))


def explain(item: Mapping[str, Any]) -> str:
    """Return one of pydantic's errors in words: the place, the problem, the given value."""
    name = ".".join(map(str, item["loc"]))
    if item["type"] == "extra_forbidden":
        return f"{name}: unknown key{nearest(str(item['loc'][-1]), _known(item['loc'][:-1]))}"
    given = item.get("input")
    shown = "" if given is None or isinstance(given, dict) else f" (got {given!r})"
    return f"{name}: {item['msg'].removeprefix('Value error, ')}{shown}"


def _known(place: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the table at this place, at any depth."""
    table: type[BaseModel] = ManifestTable
    for part in place:
        field = table.model_fields.get(str(part))
        table = (field and _table_in(field.annotation)) or table
    return list(table.model_fields)


def _table_in(annotation: object) -> type[BaseModel] | None:
    """Return the table in a field's type.

    It is the type itself, an optional one, one of a list or of a mapping.
    """
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in typing.get_args(annotation) if (found := _table_in(part))), None)
