"""Sources of old studies by their settings: one opener for each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from hilum.errors import ConfigurationError
from hilum.retrieve.source import ImageSource
from hilum.settings import Settings


def _c_move(section: Any) -> ImageSource:  # noqa: ANN401 - of the kind's own type
    # pynetdicom is not needed for other kinds.
    from hilum.retrieve.dimse.source import CMoveImageSource  # noqa: PLC0415

    return CMoveImageSource(section)


def _c_get(section: Any) -> ImageSource:  # noqa: ANN401 - the same
    from hilum.retrieve.dimse.source import CGetImageSource  # noqa: PLC0415 - the same

    return CGetImageSource(section)


def _dicomweb(section: Any) -> ImageSource:  # noqa: ANN401 - the same
    # httpx is not needed for other kinds.
    from hilum.retrieve.dicomweb.client import DicomwebClient  # noqa: PLC0415

    return DicomwebClient(section)


# The opener of each kind of `settings.SOURCE_KINDS`.
SOURCES: Final[Mapping[str, Callable[[Any], ImageSource]]] = {
    "c-move": _c_move,
    "c-get": _c_get,
    "dicomweb": _dicomweb,
}


def open_source(settings: Settings, name: str) -> ImageSource:
    """Return the source of this name; nothing is connected before the first request.

    Raises ConfigurationError where the settings have none of this name.
    """
    section = settings.sources.get(name)
    if section is None:
        known = ", ".join(settings.sources) or "none"
        raise ConfigurationError([f"no source {name!r} in the settings; known: {known}"])
    return SOURCES[section.kind](section)
