"""Every setting with its type and default, for the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from hilum.settings.fields import Section
from hilum.settings.root import Settings
from hilum.settings.sections import NAMED
from hilum.settings.tables import OneOf, fields_of, item_of, models_of
from hilum.toml import inline

_TYPE_WORDS: Mapping[object, str] = {
    str: "text",
    bool: "true or false",
    int: "integer",
    float: "number",
    Path: "path",
}


def describe() -> Iterator[tuple[str, str, str, str]]:
    """(name, type, default, description) of every setting, for the documentation."""
    for section, info in Settings.model_fields.items():
        kind: object = info.annotation
        if (item := item_of(kind)) is not None:
            yield from _described(item, section)
        elif section in NAMED:
            yield from _described(get_args(kind)[1], f"{section}.{NAMED[section]}")
        else:
            yield from _described(kind, section)


def _described(annotation: object, prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """A section's own settings, then those of the sections in it."""
    models = models_of(annotation)
    fields = fields_of(annotation)
    for name, info in fields.items():
        if not models_of(info.annotation):
            default = _default(name, info, models)
            having = [kind for kind, model in models.items() if name in model.model_fields]
            is_choice = name == "kind" and len(models) > 1
            type_name = " or ".join(models) if is_choice else _type_name(info.annotation)
            of = f"{', '.join(having)}: " if len(having) < len(models) else ""
            yield f"{prefix}.{name}", type_name, default, f"{of}{info.description or ''}"
    for name, info in fields.items():
        inner = item_of(info.annotation) or info.annotation
        if models_of(inner):
            yield from _described(inner, f"{prefix}.{name}")


def _default(name: str, info: FieldInfo, models: Mapping[str, type[Section]]) -> str:
    """Return the default; where kinds differ in it, that of the first, and of others by kind."""
    first = _as_toml(_given(info))
    others = {
        kind: _as_toml(_given(model.model_fields[name]))
        for kind, model in models.items()
        if name in model.model_fields and name != "kind"
    }
    differing = [f"; {kind}: {given}" for kind, given in others.items() if given != first and given]
    return first + "".join(differing)


def _given(info: FieldInfo) -> object:
    return None if info.is_required() else info.get_default()


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
    if words := [item for item in arguments if isinstance(item, OneOf)]:
        return " or ".join(words[0].names())
    if arguments:  # Annotated[X, …] and X | None
        return _type_name(arguments[0])
    return "table" if models_of(annotation) else _TYPE_WORDS[annotation]


def _as_toml(value: object) -> str:
    """A default as it would stand in the file; empty where there is none."""
    if value is None:
        return ""
    return inline(str(value) if isinstance(value, Path) else value)
