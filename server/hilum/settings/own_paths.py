"""Files and folders that settings name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hilum.settings.fields import Section

MANIFESTS = Path(__file__).resolve().parents[3] / "model_repository"


def paths_named(sections: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    """Files and folders that these settings name, each with the setting.

    A section that is wrong itself is not there.
    """
    for section, value in sections.items():
        named = value if isinstance(value, Mapping) else {"": value}
        for name, item in named.items():
            yield from _paths_of(item, *filter(None, (section, name)))
    if "models" in sections and sections["models"].manifests is None:
        yield "models.manifests", MANIFESTS
    if "ledger" in sections and sections["ledger"].file:
        yield "ledger.url", sections["ledger"].file


def _paths_of(section: Section, *place: str) -> Iterator[tuple[str, Path]]:
    for key, value in section:
        if isinstance(value, Section):
            yield from _paths_of(value, *place, key)
        elif isinstance(value, Path):
            yield ".".join((*place, key)), value
