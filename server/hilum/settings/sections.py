"""The names of sections, and of the settings in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args, get_origin

from hilum.settings.root import Settings
from hilum.settings.tables import fields_of, item_of, models_of

# Sections that hold named tables, and what the name is.
NAMED: Mapping[str, str] = {
    "destinations": "<name>",
    "routes": "<CALLED_AE_TITLE>",
    "senders": "<CALLING_AE_TITLE>",
    "sources": "<name>",
    "watch": "<name>",
    "commitment": "<CALLING_AE_TITLE>",
    "workitems": "<name>",
}


def known_names(prefix: tuple[str, ...]) -> list[str]:
    """Return the names that may stand after this prefix."""
    kind = _type_at(prefix)
    return [] if get_origin(kind) is Mapping else list(fields_of(kind))


def kinds_with(place: tuple[str, ...]) -> list[str]:
    """Return the kinds of a section that have this setting; empty where a section has no kinds."""
    models = models_of(_type_at(place[:-1]))
    return [kind for kind, model in models.items() if kind and place[-1] in model.model_fields]


def _type_at(place: tuple[str, ...]) -> object:
    """Return the type at this place; None: there is no such section."""
    kind: object = Settings
    for name in place:
        if get_origin(kind) is Mapping or item_of(kind) is not None:
            kind = item_of(kind) or get_args(kind)[1]
        else:
            info = fields_of(kind).get(name)
            kind = None if info is None else info.annotation
    return kind
