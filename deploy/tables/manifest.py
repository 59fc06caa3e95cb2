"""The tables of docs/models/manifest.md, from the descriptions of the manifest's fields."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from deploy.words_of_types import words_of
from hilum.models.manifest.labels import (
    CalibrationTable,
    GoldenTable,
    LabelTable,
    OperatingPointsTable,
    PlattTable,
)
from hilum.models.manifest.prompts import (
    PinnedFileTable,
    PromptPairTable,
    PromptsTable,
    PromptTable,
)
from hilum.models.manifest.tables import (
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
    "`[prompts]`": PromptsTable,
    "`tokenizer = { … }`, `text_tower = { … }`": PinnedFileTable,
    "`pairs = [{ … }]`": PromptPairTable,
    "`positive = [{ … }]`, `negative = [{ … }]`": PromptTable,
    "`[engine]`": EngineTable,
    "`[study]`": StudyTable,
    "`[operating_points]`": OperatingPointsTable,
    "`[calibration]`": CalibrationTable,
    "`[calibration.labels.KEY]`": PlattTable,
    "`[[golden]]`": GoldenTable,
    "`[quantisation]`": QuantisationTable,
}


def manifest_tables(row: typing.Callable[..., str]) -> Iterator[str]:
    """One table of the file after the other; `row` writes a line of a Markdown table."""
    for title, table in TABLES.items():
        yield (
            f"\n### {title}\n\n{(table.__doc__ or '').strip()}\n\n| field | type | default |"
            " meaning |\n|---|---|---|---|"
        )
        for name, field in table.model_fields.items():
            yield row(
                f"`{name}`", words_of(field.annotation), _default(field), field.description or ""
            )


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    plain = field.default is None or isinstance(field.default, BaseModel) or field.default == ()
    return "none" if plain else f"`{field.default!r}`".replace("'", '"').replace("False", "false")
