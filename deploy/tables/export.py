"""The tables of an export in docs/archive/export.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hilum.services.export_tables.columns import (
    FORMAT_VERSION,
    IDENTIFIERS,
    STATE_SENTENCES,
    TABLES,
    ExportTable,
)

_TITLES = {
    ExportTable.IMAGES: "One row an image, release and finding",
    ExportTable.STUDIES: "One row a study, release and finding (`--studies`)",
    ExportTable.NOT_READ: "Images without numbers (`.not_read`)",
}


def export_tables(row: Callable[..., str]) -> Iterator[str]:
    """Every column of every table, then the states of images that were not read."""
    yield f"\nFormat version {FORMAT_VERSION}."
    for table, title in _TITLES.items():
        yield f"\n### {title}\n\n| column | type | meaning |\n|---|---|---|"
        yield from (row(f"`{item.name}`", item.type.value, item.meaning) for item in TABLES[table])
    yield "\n### With `--identifiers`, at the end of each table\n\n| column | type | meaning |"
    yield "|---|---|---|"
    yield from (row(f"`{item.name}`", item.type.value, item.meaning) for item in IDENTIFIERS)
    yield "\n### States of images without numbers\n\n| state | meaning |\n|---|---|"
    yield from (row(f"`{state.value}`", said) for state, said in STATE_SENTENCES.items())
