"""All releases of an installation: `<manifests>/<name@version>/manifest.toml`, read together so that all problems show together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from hilum.domain import Release
from hilum.errors import ConfigurationError
from hilum.models import manifest
from hilum.models.manifest import Manifest

T = TypeVar("T")


def load_manifests(manifests_dir: Path) -> dict[str, Manifest]:
    """Manifests by release id. Raises ConfigurationError with the problems of all of them."""
    found, problems = [], []
    for path in sorted(manifests_dir.glob(f"*/{manifest.FILE_NAME}")):
        try:
            found.append(manifest.read(path))
        except ConfigurationError as error:
            problems += error.problems
    if not found and not problems:
        problems.append(f"{manifests_dir} holds no <name@version>/{manifest.FILE_NAME}: set models.manifests to a folder that does")
    if problems:
        raise ConfigurationError(problems)
    return {each.release.id: each for each in found}


def load_catalogue(manifests_dir: Path) -> dict[str, Release]:
    """Releases by id (`name@version`). Raises ConfigurationError as `load_manifests`."""
    return {key: each.release for key, each in load_manifests(manifests_dir).items()}


def choose(catalogue: Mapping[str, T], release_ids: Iterable[str]) -> dict[str, T]:
    """The named entries. Raises ConfigurationError that names every unknown one and the nearest known."""
    wanted = list(release_ids)
    unknown = [name for name in wanted if name not in catalogue]
    if unknown:
        raise ConfigurationError([f"unknown release {name!r}{manifest.nearest(name, catalogue)}" for name in unknown])
    return {name: catalogue[name] for name in wanted}
