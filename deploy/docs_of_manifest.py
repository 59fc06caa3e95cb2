"""The tables of docs/manifest.md, from the descriptions of the manifest's fields."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, Union

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hilum.models.manifest_labels import (
    CalibrationTable,
    GoldenTable,
    LabelTable,
    OperatingPointsTable,
    PlattTable,
)
from hilum.models.manifest_tables import (
    EngineTable,
    ManifestTable,
    MemberTable,
    ModelTable,
    OptionsTable,
    QuantisationTable,
    StudyTable,
    WeightsTable,
)

TABLES: Final[Mapping[str, type[BaseModel]]] = {
    "before the first table": ManifestTable,
    "`labels = [{ … }]`": LabelTable,
    "`[model]`": ModelTable,
    "`[model.options]`": OptionsTable,
    "`[weights]`": WeightsTable,
    "`[[weights.members]]`": MemberTable,
    "`[engine]`": EngineTable,
    "`[study]`": StudyTable,
    "`[operating_points]`": OperatingPointsTable,
    "`[calibration]`": CalibrationTable,
    "`[calibration.labels.KEY]`": PlattTable,
    "`[[golden]]`": GoldenTable,
    "`[quantisation]`": QuantisationTable,
}
_WORDS: Final[Mapping[object, str]] = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "anything"}


def manifest_tables(row: typing.Callable[..., str]) -> Iterator[str]:
    """One table of the file after the other; `row` writes a line of a Markdown table."""
    for title, table in TABLES.items():
        yield f"\n### {title}\n\n{(table.__doc__ or '').strip()}\n\n| field | type | default | meaning |\n|---|---|---|---|"
        yield from (row(f"`{name}`", _kind(field), _default(field), field.description or "") for name, field in table.model_fields.items())


def _kind(field: FieldInfo) -> str:
    return " or ".join(dict.fromkeys(_words(field.annotation)))


def _words(annotation: object) -> Iterator[str]:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in _WORDS:
        yield _WORDS[annotation]
    elif origin in (Union, types.UnionType):
        yield from (word for part in inner if part is not types.NoneType for word in _words(part))
    elif origin is Literal:
        yield ", ".join(f'`"{value}"`' if isinstance(value, str) else f"`{value}`" for value in inner)
    elif origin is typing.Annotated:
        yield from _words(inner[0])
    else:
        yield "table" if origin is not tuple else "list"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    plain = field.default is None or isinstance(field.default, BaseModel) or field.default == ()
    return "none" if plain else f"`{field.default!r}`".replace("'", '"').replace("False", "false")
