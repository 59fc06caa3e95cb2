"""Choices of settings that are rows of a table: words, and models of sections.

A table is looked at when a value is checked, so a row is all that a new choice needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from inspect import get_annotations
from typing import Any, get_args, get_origin

from pydantic import GetCoreSchemaHandler, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from hilum.settings.fields import Section
from hilum_preprocessing.spec.fields import nearest


@dataclass(frozen=True, slots=True)
class OneOf:
    """The type of a word that names a row. `what`: the noun for an error."""

    what: str
    names: Callable[[], Iterable[str]]

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the schema of the word."""
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def _checked(self, word: str) -> str:
        known = list(self.names())
        if word not in known:
            raise ValueError(f"no {self.what}{nearest(word, known, cutoff=0.5)}")
        return word


@dataclass(frozen=True, slots=True)
class ByKind:
    """The type of a section whose `kind` names its model; without `kind` it is the first row's."""

    models: Mapping[str, type[Section]]

    def __get_pydantic_core_schema__(
        self, _source: object, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the schema of the section."""
        return core_schema.no_info_plain_validator_function(
            self._checked,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda section: section.model_dump(mode="json"), when_used="json-unless-none"
            ),
        )

    def _checked(self, value: object) -> Section:
        """Return the section. A ValidationError keeps its places below this one."""
        if isinstance(value, Section) and type(value) in self.models.values():
            return value
        given = value if isinstance(value, Mapping) else {}
        kind = given.get("kind", next(iter(self.models)))
        if kind not in list(self.models):
            raise ValidationError.from_exception_data("kind", [self._unknown(kind)])
        return self.models[kind].model_validate(value)

    def _unknown(self, kind: Any) -> InitErrorDetails:  # noqa: ANN401 - whatever stands there
        names = " or ".join(self.models)
        error = PydanticCustomError("kind", "must be {names}", {"names": names})
        return InitErrorDetails(type=error, loc=("kind",), input=kind)


def models_of(annotation: object) -> Mapping[str, type[Section]]:
    """Return the models that a type may mean, by kind; one of a single model has no kind."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return {"": annotation}
    by_kind = [item for item in get_args(annotation) if isinstance(item, ByKind)]
    return by_kind[0].models if by_kind else {}


def item_of(annotation: object) -> type[Section] | None:
    """Return the model of a list of sections; None: it is no such list."""
    items = get_args(annotation) if get_origin(annotation) is tuple else ()
    return items[0] if items and models_of(items[0]) else None


def fields_of(annotation: object) -> dict[str, FieldInfo]:
    """Return the settings of all models that a type may mean; of one in several the first's."""
    found: dict[str, FieldInfo] = {}
    for model in models_of(annotation).values():
        for name, info in in_order(model):
            found.setdefault(name, info)
    return found


def in_order(model: type[Section]) -> Iterator[tuple[str, FieldInfo]]:
    """Return a model's settings: its own before those of its bases."""
    names = dict.fromkeys(
        name
        for base in model.__mro__
        for name in get_annotations(base)
        if name in model.model_fields
    )
    return ((name, model.model_fields[name]) for name in names)
