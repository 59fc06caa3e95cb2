"""Whether built trees may be replaced: by what a server that runs has read with, it must be able to read again."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable

from hilum.domain import Release
from hilum.errors import ConfigurationError
from hilum.models import build, catalogue, manifest
from hilum.settings import Settings
from hilum.store.rollouts import Rollouts
from hilum.wiring.state_folder import is_held


def require_replaceable(settings: Settings, release_ids: Collection[str], profiles: Collection[str]) -> None:
    """Raise ConfigurationError for a release that a server of this state folder reads with, where a build makes another one of its tree.

    Restarted, its Triton would load another network than its analyser asks for, and the analyser find no known answers.
    """
    found = catalogue.choose(catalogue.load_manifests(settings.manifests_dir, release_ids), release_ids)
    stale = [read for read in found.values() if any(_is_stale(read.release, settings, profile) for profile in profiles)]
    if not stale or not is_held(settings):
        return
    with contextlib.closing(Rollouts(settings.ledger_url)) as rollouts:
        taken = [read.release.id for read in stale if _is_read_with(_kept(rollouts, read), read.release, settings, profiles)]
    if taken:
        raise ConfigurationError([_in_words(name) for name in taken])


def _is_stale(release: Release, settings: Settings, profile: str) -> bool:
    return build.tree_of(release, settings.built_dir, profile).exists() and not build.is_built(release, settings.built_dir, profile)


def _kept(rollouts: Rollouts, read: manifest.Manifest) -> Release | None:
    """What the server takes the release for; None: it has not read with it."""
    known = rollouts.manifest(read.release.id)
    if known is None or not known.is_proved:
        return None
    try:
        return manifest.parse(known.text, read.path).release
    except ConfigurationError:  # of a Hilum that asked for other things
        return None


def _is_read_with(kept: Release | None, wanted: Release, settings: Settings, profiles: Iterable[str]) -> bool:
    """Whether one of the trees that would be replaced is what the server has. One that is not may be made anew, as after a mistake."""
    if kept is None or kept.build_key == wanted.build_key:
        return False
    return any(build.is_built(kept, settings.built_dir, profile) for profile in profiles)


def _in_words(release: str) -> str:
    why = f"a server runs on this state folder, and has read with {release} as it was before its manifest was edited"
    return f"{why}: give the edited one a version of its own, and build that; or stop the server, build, and start it again"
