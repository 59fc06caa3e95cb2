"""Write deploy/lock/*.txt from the environment that runs this: exact pins of everything the extras need, and nothing else.

`python deploy/write_locks.py` after installing or upgrading packages in .venv; commit the result. A test compares locks and pyproject.toml.
"""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
# What each lock installs. `server.txt` is what a production image gets.
LOCKS: Mapping[str, tuple[str, ...]] = {
    "server.txt": ("server", "embedded", "models"),
    "dev.txt": ("server", "embedded", "models", "dev"),
}


def declared(extras: Iterable[str]) -> list[Requirement]:
    """Requirements of the base and these extras, as pyproject.toml has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [*project["dependencies"], *(text for extra in extras for text in project["optional-dependencies"][extra])]
    return [Requirement(text) for text in texts]


def closure(requirements: Iterable[Requirement]) -> dict[str, str]:
    """Name → installed version of these requirements and all that they require, markers and extras respected."""
    pins: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    open_requirements = list(requirements)
    while open_requirements:
        requirement = open_requirements.pop()
        key = (canonical(requirement.name), frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        distribution = importlib.metadata.distribution(requirement.name)
        # A local version (+cpu) names a build, not a release: the lock serves CPU and GPU machines.
        pins[key[0]] = distribution.version.split("+")[0]
        open_requirements += [needed for needed in map(Requirement, distribution.requires or ()) if _applies(needed, key[1])]
    return pins


def canonical(name: str) -> str:
    """A distribution's name as PEP 503 normalises it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lock_text(extras: Iterable[str]) -> str:
    """Content of a lock file."""
    pins = closure(declared(extras))
    heading = f"# Written by deploy/write_locks.py for Python 3.11 on Linux: extras {', '.join(extras)}.\n"
    return heading + "".join(f"{name}=={version}\n" for name, version in sorted(pins.items()))


def _applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    """True unless the marker excludes this Python and platform. NVIDIA's libraries come with torch's GPU build by themselves."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""})


if __name__ == "__main__":
    for name, extras in LOCKS.items():
        (ROOT / "deploy" / "lock" / name).write_text(lock_text(extras), encoding="utf-8")
        print(f"deploy/lock/{name}: {lock_text(extras).count('==')} pins")
