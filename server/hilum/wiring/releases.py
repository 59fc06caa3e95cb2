"""Which releases there are, and which of them read."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from hilum import telemetry
from hilum.domain import Release
from hilum.errors import ConfigurationError
from hilum.models.catalogue import load_catalogue
from hilum.settings import Settings

_LOOK_SECONDS = 1.0
log = telemetry.logger("wiring")


class Catalogue(Mapping[str, Release]):
    """Releases by id. One that is not known is looked for again among the manifests: it may have come while the server runs.

    What is known stays as it was read first, so that every process of a server means the same by one name.
    """

    def __init__(self, settings: Settings) -> None:
        """Raises ConfigurationError, as `load_releases`."""
        self._manifests_dir = settings.manifests_dir
        self._known = load_releases(settings)
        self._looked_at = time.monotonic()

    def __getitem__(self, name: str) -> Release:
        """Raises KeyError."""
        if name not in self._known and time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            self._look_again()
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        """Names of what is known."""
        return iter(self._known)

    def __len__(self) -> int:
        """How many are known."""
        return len(self._known)

    def _look_again(self) -> None:
        self._looked_at = time.monotonic()
        try:
            self._known = {**load_catalogue(self._manifests_dir, ()), **self._known}
        except ConfigurationError as error:  # somebody is writing one; what is known goes on
            log.warning("manifests_not_read", problem="; ".join(error.problems))


def load_releases(settings: Settings) -> dict[str, Release]:
    """Every release whose manifest holds. Raises ConfigurationError when that of a configured one does not, or is not there."""
    catalogue = load_catalogue(settings.manifests_dir, settings.active_releases)
    known = ", ".join(sorted(catalogue)) or "none"
    chosen = {
        "models.releases": settings.models.releases,
        **{f"routes.{title}.releases": item.releases for title, item in settings.routes.items()},
        **{f"senders.{title}.releases": item.releases for title, item in settings.senders.items()},
    }
    missing = [(place, name) for place, names in chosen.items() for name in names if name not in catalogue]
    if missing:
        raise ConfigurationError(
            [f"{place}: {name} has no manifest in {settings.manifests_dir}; known: {known}" for place, name in missing]
        )
    return catalogue


def active_releases(settings: Settings) -> dict[str, Release]:
    """The releases that read every image, or those of a route or a sender."""
    catalogue = load_releases(settings)
    return {name: catalogue[name] for name in settings.active_releases}
