"""All releases of an installation.

`<manifests>/<name@version>/manifest.toml` are read together, so that all problems appear together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from hilum.domain import Release
from hilum.errors import ConfigurationError
from hilum.models.manifest import manifest
from hilum.models.manifest.manifest import Manifest
from hilum_preprocessing.spec.fields import nearest

T = TypeVar("T")


def paths(manifests_dir: Path) -> dict[str, Path]:
    """Return every manifest's path by the name of its folder, readable or not."""
    return {
        path.parent.name: path for path in sorted(manifests_dir.glob(f"*/{manifest.FILE_NAME}"))
    }


def look(manifests_dir: Path) -> dict[str, Manifest | list[str]]:
    """Return the manifest of each folder by its name, or its problems.

    Raises ConfigurationError: there is none.
    """
    found: dict[str, Manifest | list[str]] = {}
    for name, path in paths(manifests_dir).items():
        try:
            found[name] = manifest.read(path)
        except ConfigurationError as error:
            found[name] = error.problems
    if not found:
        what = (
            f"holds no <name@version>/{manifest.FILE_NAME}: set models.manifests to a folder that"
            " does"
        )
        raise ConfigurationError([f"{manifests_dir} {what}"])
    return found


def load_manifests(manifests_dir: Path, wanted: Iterable[str] | None = None) -> dict[str, Manifest]:
    """Return the manifests by release id.

    With `wanted`, those of other releases are left out: an unfinished draft must not keep a server
    from starting.

    Raises ConfigurationError with the problems of all of them.
    """
    found = look(manifests_dir)
    names = set(found) if wanted is None else set(wanted)
    problems = [
        problem
        for name, item in found.items()
        if isinstance(item, list) and name in names
        for problem in item
    ]
    if problems:
        raise ConfigurationError(problems)
    return {name: item for name, item in found.items() if isinstance(item, Manifest)}


def load_catalogue(manifests_dir: Path, wanted: Iterable[str] | None = None) -> dict[str, Release]:
    """Return the releases by id (`name@version`).

    Raises ConfigurationError as `load_manifests`.
    """
    return {key: each.release for key, each in load_manifests(manifests_dir, wanted).items()}


def choose(catalogue: Mapping[str, T], release_ids: Iterable[str]) -> dict[str, T]:
    """Return the named entries.

    Raises ConfigurationError that names every unknown one and the nearest known.
    """
    wanted = list(release_ids)
    unknown = [name for name in wanted if name not in catalogue]
    if unknown:
        raise ConfigurationError(
            [f"unknown release {name!r}{nearest(name, catalogue)}" for name in unknown]
        )
    return {name: catalogue[name] for name in wanted}
