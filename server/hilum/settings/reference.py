"""Every setting with its type and default, for the documentation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic import BaseModel

from hilum.settings.root import Settings
from hilum.settings.sections import NAMED, section_model

_TYPE_WORDS: Mapping[object, str] = {
    str: "text",
    bool: "true or false",
    int: "integer",
    float: "number",
    Path: "path",
}


def describe() -> Iterator[tuple[str, str, str, str]]:
    """(name, type, default, description) of every setting, for the documentation."""
    for section in Settings.model_fields:
        model, prefix = (
            (NAMED[section][0], f"{section}.{NAMED[section][1]}")
            if section in NAMED
            else (section_model(section), section)
        )
        yield from _described(model, prefix)


def _described(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """A section's own settings, then those of the sections in it."""
    inner = {name: info.annotation for name, info in model.model_fields.items()}
    sections = {
        name: kind
        for name, kind in inner.items()
        if isinstance(kind, type) and issubclass(kind, BaseModel)
    }
    for name, info in model.model_fields.items():
        if name not in sections:
            default = _as_toml(None if info.is_required() else info.get_default())
            yield f"{prefix}.{name}", _type_name(info.annotation), default, info.description or ""
    for name, kind in sections.items():
        yield from _described(kind, f"{prefix}.{name}")


def _type_name(annotation: object) -> str:
    """A type in the words of TOML."""
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is Literal:
        return " or ".join(arguments)
    if origin is tuple:
        return f"list of {_type_name(arguments[0])}"
    if origin is Mapping:
        return "table"
    if arguments:  # Annotated[X, …] and X | None
        return _type_name(arguments[0])
    return _TYPE_WORDS[annotation]


def _as_toml(value: object) -> str:
    """A default as it would stand in the file; empty where there is none."""
    if value is None:
        return ""
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
