"""docs/models/manifest.md: every table and every field of a manifest is there, and says what it means."""

from __future__ import annotations

import typing
from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from deploy import generate_docs
from deploy.tables.manifest import TABLES, manifest_tables
from hilum.models.manifest.tables import ManifestTable


def tables(table: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A table and those inside it."""
    yield table
    for field in table.model_fields.values():
        yield from inside(field.annotation)


def inside(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from tables(annotation)
    for part in typing.get_args(annotation):
        yield from inside(part)


def test_every_table_has_its_place_on_the_page() -> None:
    assert set(tables(ManifestTable)) == set(TABLES.values())


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.__name__)
def test_every_field_says_what_it_means(table: type[BaseModel]) -> None:
    assert [name for name, field in table.model_fields.items() if not field.description] == []


def test_the_page_is_fresh() -> None:
    file, render = generate_docs.GENERATED["manifest"]
    text = (generate_docs.DOCS / file).read_text(encoding="utf-8")
    assert generate_docs.with_generated(text, "manifest", "\n".join(render())) == text, (
        "run `make docs`"
    )


def test_types_and_defaults_are_words_of_toml() -> None:
    text = "\n".join(manifest_tables(lambda *cells: " | ".join(cells)))
    assert "`cam` | true or false | none | " in text
    assert '`aggregation` | `"max"`, `"mean"`, `"first_frontal"` | `"max"` | ' in text
    assert "`operating_point` | number or `\"none\"` | none | " in text  # fmt: skip
    assert "pydantic" not in text.lower()
