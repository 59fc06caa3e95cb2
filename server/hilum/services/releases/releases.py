"""The known releases, their contents, and the ones that read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from hilum.domain import Release
from hilum.errors import ConfigurationError, Retry
from hilum.models.formats import identity
from hilum.models.manifest import manifest
from hilum.models.manifest.catalogue import load_catalogue, load_manifests
from hilum.observability import telemetry
from hilum.settings import Settings
from hilum.store.database.engines import AWAY
from hilum.store.rollouts.manifests import KeptManifest, edited_in_words
from hilum.store.rollouts.rollouts import Rollouts

_LOOK_SECONDS = 1.0
Find = Callable[[str], KeptManifest | None]
log = telemetry.logger("services")


def _nowhere(_release: str) -> None:
    return None


class Catalogue(Mapping[str, Release]):
    """Releases by id, as the ledger keeps them.

    So every process means the same by one name, even if the manifest's file changes. A release that
    the ledger does not keep has its manifest's content. An unknown one is looked up again among the
    manifests, because it may have come while the server runs. `find`: the ledger's manifest of a
    release.
    """

    def __init__(self, settings: Settings, find: Find = _nowhere) -> None:
        """Load the releases. Raises ConfigurationError, as `load_releases`."""
        self._manifests_dir = settings.manifests_dir
        self._find = find
        self._settled = set[str]()
        self._unread = set[str]()
        kept = {name: release for name in settings.active_releases if (release := self._kept(name))}
        self._known = {**load_releases(settings, kept)}
        self._looked_at = time.monotonic()

    def __getitem__(self, name: str) -> Release:
        """Return a release. Raises KeyError; Retry while the ledger does not respond."""
        if name not in self._settled:
            self._look_again(name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of known releases."""
        return iter(list(self._known))

    def __len__(self) -> int:
        """Return the number of known releases."""
        return len(self._known)

    def edited(self, release: Release) -> str | None:
        """Return the remedy for a release whose file differs from it; None: they agree."""
        try:
            found = manifest.read(self._path(release.id)).release.digest
        except ConfigurationError:
            return None  # it is not there, or half written
        return None if found == release.digest else edited_in_words(release.id)

    def _path(self, name: str) -> Path:
        return self._manifests_dir / name / manifest.FILE_NAME

    def _look_again(self, name: str) -> None:
        if (kept := self._kept(name)) is not None:
            self._known[name] = kept
        elif name not in self._known and time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = time.monotonic()
            try:
                self._known = {**load_catalogue(self._manifests_dir, ()), **self._known}
            except ConfigurationError as error:  # a manifest is being written; the known ones stay
                log.warning("manifests_not_read", problem="; ".join(error.problems))

    def _kept(self, name: str) -> Release | None:
        """Return the release in the ledger; one that may have read studies does not change."""
        try:
            found = self._find(name)
        except AWAY as error:
            raise Retry("the ledger does not answer", is_outage=True) from error
        if found is None:
            return None
        try:
            release = manifest.parse(found.text, self._path(name)).release
        # this Hilum requires more than the one that kept it; only the file's content is left
        except ConfigurationError as error:
            if name not in self._unread:  # a release may be looked up for each result
                self._unread.add(name)
                log.error("kept_manifest_not_read", release=name, problem="; ".join(error.problems))
            return None
        if found.is_proved:
            self._settled.add(name)
        return release


def triton_names(settings: Settings, releases: Iterable[str]) -> set[str]:
    """Return Triton's names of these releases, and of the permitted other models."""
    return {
        *settings.triton.other_models,
        *(identity.triton_name(*name.split("@", 1)) for name in releases),
    }


def load_releases(
    settings: Settings, kept: Mapping[str, Release] | None = None
) -> dict[str, Release]:
    """Return every release with a valid manifest, or that is `kept`.

    Raises ConfigurationError when a configured one is neither.
    """
    known = dict(kept or {})
    catalogue = {
        **load_catalogue(settings.manifests_dir, set(settings.active_releases) - set(known)),
        **known,
    }
    names_known = ", ".join(sorted(catalogue)) or "none"
    chosen = {
        "models.releases": settings.models.releases,
        **{f"routes.{title}.releases": item.releases for title, item in settings.routes.items()},
        **{f"senders.{title}.releases": item.releases for title, item in settings.senders.items()},
        **{f"rules.{rule.name}.releases": rule.then.releases or () for rule in settings.rules},
    }
    missing = [
        (place, name) for place, names in chosen.items() for name in names if name not in catalogue
    ]
    if missing:
        raise ConfigurationError(
            [
                f"{place}: {name} has no manifest in {settings.manifests_dir}; known: {names_known}"
                for place, name in missing
            ]
        )
    return catalogue


def keep_releases(settings: Settings, rollouts: Rollouts) -> None:
    """Record the releases of a starting server: their manifests are valid until its next start."""
    found = load_manifests(settings.manifests_dir, settings.active_releases).items()
    manifests = [
        KeptManifest(name, item.release.digest, item.text, is_proved=True) for name, item in found
    ]
    for name in rollouts.begin(manifests, settings.active_releases):
        log.warning(
            "release_edited",
            release=name,
            advice="it is read anew; restart the other hosts of this ledger, too",
        )


def active_releases(settings: Settings) -> dict[str, Release]:
    """Return the releases that read every image, or those of a route or a sender."""
    catalogue = load_releases(settings)
    return {name: catalogue[name] for name in settings.active_releases}
