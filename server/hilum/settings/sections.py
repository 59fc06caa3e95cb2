"""The names and the model of each section."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from hilum.settings.fields import Section
from hilum.settings.outbound import CommitmentPeer, Destination
from hilum.settings.root import Settings
from hilum.settings.studies import Route, Sender, Watch

# Sections that hold named tables: of what model, and what the name is.
NAMED: Mapping[str, tuple[type[Section], str]] = {
    "destinations": (Destination, "<name>"),
    "routes": (Route, "<CALLED_AE_TITLE>"),
    "senders": (Sender, "<CALLING_AE_TITLE>"),
    "watch": (Watch, "<name>"),
    "commitment": (CommitmentPeer, "<CALLING_AE_TITLE>"),
}


def section_model(name: str) -> type[BaseModel]:
    """Return the model of a section that is no table of named ones."""
    annotation = Settings.model_fields[name].annotation
    if not (
        isinstance(annotation, type) and issubclass(annotation, BaseModel)
    ):  # pragma: no cover - guarded by the callers
        raise TypeError(name)
    return annotation


def known_names(prefix: tuple[str, ...]) -> list[str]:
    """Names that may stand after this prefix."""
    if not prefix:
        return list(Settings.model_fields)
    if prefix[0] in NAMED:
        return list(NAMED[prefix[0]][0].model_fields) if len(prefix) == 2 else []
    return _names_in(Settings, prefix)


def _names_in(model: type[BaseModel], prefix: tuple[str, ...]) -> list[str]:
    """Of the section there; empty where there is none."""
    for name in prefix:
        annotation = model.model_fields[name].annotation if name in model.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)
