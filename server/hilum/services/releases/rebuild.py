"""Whether built trees may be replaced: a running server must be able to reload its releases."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable

from hilum.domain import Release
from hilum.errors import ConfigurationError
from hilum.models.build import build
from hilum.models.manifest import catalogue, manifest
from hilum.services.state_dir import is_held
from hilum.settings import Settings
from hilum.store.rollouts.rollouts import Rollouts


def require_replaceable(
    settings: Settings, release_ids: Collection[str], profiles: Collection[str]
) -> None:
    """Raise ConfigurationError for a release in use whose tree a build would change.

    It is in use if a server of this state folder reads with it. After a restart, its Triton would
    load another network than its analyser expects, and the analyser would find no known results.
    """
    found = catalogue.choose(
        catalogue.load_manifests(settings.manifests_dir, release_ids), release_ids
    )
    stale = [
        read
        for read in found.values()
        if any(_is_stale(read.release, settings, profile) for profile in profiles)
    ]
    if not stale or not is_held(settings):
        return
    with contextlib.closing(Rollouts(settings.ledger_url)) as rollouts:
        taken = [
            read.release.id
            for read in stale
            if _is_read_with(_kept(rollouts, read), read.release, settings, profiles)
        ]
    if taken:
        raise ConfigurationError([_in_words(name) for name in taken])


def _is_stale(release: Release, settings: Settings, profile: str) -> bool:
    return build.tree_of(release, settings.built_dir, profile).exists() and not build.is_built(
        release, settings.built_dir, profile
    )


def _kept(rollouts: Rollouts, read: manifest.Manifest) -> Release | None:
    """Return the release as the server has it; None: the server has not read with it."""
    known = rollouts.manifest(read.release.id)
    if known is None or not known.is_proved:
        return None
    try:
        return manifest.parse(known.text, read.path).release
    except ConfigurationError:  # written by a Hilum with other requirements
        return None


def _is_read_with(
    kept: Release | None, wanted: Release, settings: Settings, profiles: Iterable[str]
) -> bool:
    """Return whether the server has one of the trees that would be replaced.

    A tree that it does not have may be built again, as after a mistake.
    """
    if kept is None or kept.build_key == wanted.build_key:
        return False
    return any(build.is_built(kept, settings.built_dir, profile) for profile in profiles)


def _in_words(release: str) -> str:
    why = (
        f"a server runs on this state folder, and has read with {release} as it was before its"
        " manifest was edited"
    )
    return (
        f"{why}: give the edited one a version of its own, and build that; or stop the server,"
        " build, and start it again"
    )
