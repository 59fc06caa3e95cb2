"""Which releases there are, and which of them read."""

from __future__ import annotations

from hilum.domain import Release
from hilum.errors import ConfigurationError
from hilum.models.catalogue import load_catalogue
from hilum.settings import Settings


def load_releases(settings: Settings) -> dict[str, Release]:
    """Every release that has a manifest. Raises ConfigurationError; also when a configured one has none."""
    catalogue = load_catalogue(settings.manifests_dir)
    if missing := [name for name in settings.models.releases if name not in catalogue]:
        known = ", ".join(sorted(catalogue)) or "none"
        raise ConfigurationError(
            [f"models.releases: {name} has no manifest in {settings.manifests_dir}; known: {known}" for name in missing]
        )
    return catalogue


def active_releases(settings: Settings) -> dict[str, Release]:
    """The releases that read every image."""
    catalogue = load_releases(settings)
    return {name: catalogue[name] for name in settings.models.releases}
