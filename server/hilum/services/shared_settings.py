"""Settings that must be the same on all hosts of an installation, as digests to compare.

Paths and secrets are left out: they may differ from host to host.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hilum.settings.fields import Section
from hilum.settings.root import Settings

_DIGITS: Final = 12
_PATHS: Final = (Path, Path | None)
# Whole sections, and in the others the fields that count. A field that is not named here is a
# host's own: ports, numbers of processes, addresses to bind, folders.
_SECTIONS: Final = (
    "studies",
    "retention",
    "guard",
    "report",
    "destinations",
    "routes",
    "senders",
    "rules",
    "commitment",
    "sources",
    "campaigns",
    "workitems",
)
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "site": ("name",),
    "archive": ("url",),
    "receive": (
        "ae_titles",
        "calling_ae_titles",
        "sop_classes",
        "transfer_syntaxes",
        "other_objects",
        "storage_commitment",
        "commitment_hours",
    ),
    "models": ("releases",),
    "pipeline": ("maximum_attempts", "maximum_lapses"),
}
SHARED_SUBJECTS: Final = (*_FIELDS, *_SECTIONS)


def shared_digests(settings: Settings) -> dict[str, str]:
    """Return a digest of each section that must be the same on all hosts."""
    chosen: dict[str, Any] = {name: _plain(getattr(settings, name)) for name in _SECTIONS}
    for name, fields in _FIELDS.items():
        section = getattr(settings, name)
        chosen[name] = {field: _plain(getattr(section, field)) for field in fields}
    return {name: _digest(value) for name, value in chosen.items()}


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _plain(value: object) -> object:
    """Return a value as JSON has it, without paths and secrets."""
    if isinstance(value, Section):
        fields = type(value).model_fields
        return {
            name: _plain(item)
            for name, item in value
            if fields[name].annotation not in _PATHS and fields[name].repr
        }
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value
