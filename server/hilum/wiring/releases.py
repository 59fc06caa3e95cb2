"""Which releases there are, and which of them read."""

from __future__ import annotations

from hilum.domain import Release
from hilum.errors import ConfigurationError
from hilum.models.catalogue import load_catalogue
from hilum.settings import Settings


def load_releases(settings: Settings) -> dict[str, Release]:
    """Every release that has a manifest. Raises ConfigurationError; also when a configured one has none."""
    catalogue = load_catalogue(settings.manifests_dir)
    known = ", ".join(sorted(catalogue)) or "none"
    chosen = {
        "models.releases": settings.models.releases,
        **{f"routes.{title}.releases": item.releases for title, item in settings.routes.items()},
    }
    missing = [(place, name) for place, names in chosen.items() for name in names if name not in catalogue]
    if missing:
        raise ConfigurationError(
            [f"{place}: {name} has no manifest in {settings.manifests_dir}; known: {known}" for place, name in missing]
        )
    return catalogue


def active_releases(settings: Settings) -> dict[str, Release]:
    """The releases that read every image, or those of a route."""
    catalogue = load_releases(settings)
    return {name: catalogue[name] for name in settings.active_releases}
