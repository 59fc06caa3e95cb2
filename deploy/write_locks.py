"""Write deploy/lock/*.txt: exact pins with the hashes of all their files.

`make lock` after installing or upgrading packages in .venv; commit the result. Pins come from the
environment that runs this, hashes from the package index (`UV_DEFAULT_INDEX` names a mirror).
A test compares locks and pyproject.toml.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "deploy/lock"
# What each lock installs. `server.txt` is what a production image gets.
LOCKS: Mapping[str, tuple[str, ...]] = {
    "server.txt": ("embedded", "models", "object-store", "parquet"),
    "dev.txt": ("embedded", "models", "object-store", "parquet", "dev"),
}
GROUPS: Final = (
    "tools",
    "docs",
    "chart",
    "peers",
)  # of pyproject.toml, each in an environment of its own
# torch has two builds of one version, in two indexes: each has a lock of its own. The library for
# preprocessing is of this repository.
APART: Final = frozenset({"torch", "hilum-preprocessing"})
TRITON: Final = ROOT / "server/hilum/triton/lock.txt"
"""Of the embedded Triton's environment. It lies in the package: `hilum triton install` reads it."""
# Their pins are written by hand.
KEPT: Final = ("preprocess-peers.txt", "tensorrt-rtx.txt", "zero-shot-peers.txt")
_UV: Final = ROOT / ".venv/tools/bin/uv"
_TORCH_INDEX_URL: Final = os.environ.get("TORCH_INDEX_URL", "https://download.pytorch.org/whl/cpu")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class NotLocked(Exception):
    """Why a lock is not written, for people."""


def main() -> int:
    """Exit status 0: all are written."""
    try:
        _write_all()
    except NotLocked as reason:
        print(f"write_locks: {reason}", file=sys.stderr)
        return 1
    for path in (*sorted(FOLDER.glob("*.txt")), TRITON):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(ROOT)
        print(f"{name}: {len(pins_of(text))} pins, {len(_HASH.findall(text))} hashes")
    return 0


def _write_all() -> None:
    for name, extras in LOCKS.items():
        heading = (
            "# Written by deploy/write_locks.py for Python 3.11 on Linux: extras"
            f" {', '.join(extras)}, without torch.\n"
        )
        _write(name, heading + hashed(lock_text(extras)))
    heading = "# Written by deploy/write_locks.py: the environment of the embedded Triton.\n"
    TRITON.write_text(heading + hashed(_lines(triton_pins())), encoding="utf-8")
    pins = _lines(closure(built_with()))
    _write(
        "build.txt",
        "# Written by deploy/write_locks.py: what builds Hilum's wheel.\n" + hashed(pins),
    )
    for name in KEPT:
        _write(name, _rehashed((FOLDER / name).read_text(encoding="utf-8")))
    version = closure(declared(()))["torch"]
    _write("torch-cpu.txt", _cpu_torch(version))
    _write("torch-cuda.txt", _cuda_torch(version))
    for group in GROUPS:
        _write(
            f"{group}.txt",
            f"# Written by deploy/write_locks.py: the group {group}.\n"
            + _resolved(f"{group}.txt", "--group", group),
        )


def declared(extras: Iterable[str]) -> list[Requirement]:
    """Requirements of the server and these extras, as pyproject.toml has them."""
    project = _pyproject()["project"]
    texts = [
        *project["dependencies"],
        *(text for extra in extras for text in project["optional-dependencies"][extra]),
    ]
    return [Requirement(text) for text in texts]


def built_with() -> list[Requirement]:
    """Requirements of the build, as pyproject.toml has them."""
    return [Requirement(text) for text in _pyproject()["build-system"]["requires"]]


def triton_pins() -> dict[str, str]:
    """Name → version in the environment of the embedded Triton.

    The engines and what they need have the versions of this environment, so that a release is
    checked and served by one version. What nvidia-pytriton's own Python code needs is left out.
    """
    project = _pyproject()
    own = [Requirement(text) for text in project["dependency-groups"]["triton"]]
    engines = project["project"]["optional-dependencies"]["embedded"]
    pinned = {canonical(each.name): str(each.specifier).removeprefix("==") for each in own}
    return closure(map(Requirement, engines)) | pinned


def _pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


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
        open_requirements += [
            needed
            for needed in map(Requirement, distribution.requires or ())
            if _applies(needed, key[1])
        ]
    return pins


def canonical(name: str) -> str:
    """A distribution's name as PEP 503 normalises it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lock_text(extras: Iterable[str]) -> str:
    """The pins of a lock, one a line, without hashes."""
    return _lines(closure(declared(extras)))


def _lines(pins: Mapping[str, str]) -> str:
    return "".join(
        f"{name}=={version}\n" for name, version in sorted(pins.items()) if name not in APART
    )


def hashed(pins: str) -> str:
    """The same pins with the hashes of all files that the index has of them. Raises NotLocked."""
    text = _uv("--no-deps", "-", text=pins)
    unknown = set(pins_of(pins)) - set(pins_of(text))
    bare = [name for name, hashes in hashes_of(text).items() if not hashes]
    if unknown or bare:
        raise NotLocked(
            f"the package index gives no hashes of {', '.join([*sorted(unknown), *bare])}: name"
            " another one by UV_DEFAULT_INDEX"
        )
    return text


def pins_of(text: str) -> dict[str, str]:
    """Name → version of a lock."""
    return dict(re.findall(r"^([a-z0-9-]+)==([\w.]+)", text, re.MULTILINE))


def hashes_of(text: str) -> dict[str, set[str]]:
    """Name → hashes of a lock."""
    entries = re.split(r"^(?=[a-z0-9-]+==)", text, flags=re.MULTILINE)[1:]
    return {entry.split("==")[0]: set(_HASH.findall(entry)) for entry in entries}


def _rehashed(text: str) -> str:
    """A lock whose pins and heading stay."""
    heading = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    return heading + hashed(_lines(pins_of(text)))


def _cpu_torch(version: str) -> str:
    """The CPU build.

    Raises NotLocked where its file is another one than the lock has of the same version.
    """
    path = FOLDER / "torch-cpu.txt"
    known = path.read_text(encoding="utf-8") if path.exists() else ""
    found = set(_files_of(f"torch=={version}"))
    accepted = (
        hashes_of(known).get("torch", set()) if pins_of(known).get("torch") == version else found
    )
    if not found <= accepted:
        known_and_found = (
            f"{path.name} has {', '.join(sorted(accepted))}, {_TORCH_INDEX_URL}"
            f" {', '.join(sorted(found))}"
        )
        raise NotLocked(
            f"torch {version} is another file: {known_and_found}. Find out why before you add a"
            " hash by hand."
        )
    heading = (
        "# Written by deploy/write_locks.py: torch for CPU, from an index of its own"
        " (TORCH_INDEX_URL). x86-64.\n"
    )
    return heading + _entry("torch", version, accepted)


def _files_of(requirement: str) -> Iterator[str]:
    """Hashes of what pip takes for this machine."""
    with tempfile.TemporaryDirectory() as folder:
        options = [
            "--no-deps",
            "--only-binary",
            ":all:",
            "--index-url",
            _TORCH_INDEX_URL,
            "--dest",
            folder,
        ]
        done = subprocess.run(
            [sys.executable, "-m", "pip", "--quiet", "download", *options, requirement],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise NotLocked(
                f"{requirement} cannot be downloaded from {_TORCH_INDEX_URL}"
                f" (TORCH_INDEX_URL):\n{done.stderr[-2000:]}"
            )
        for path in Path(folder).iterdir():
            yield sha256(path.read_bytes()).hexdigest()


def _cuda_torch(version: str) -> str:
    """PyPI's build and NVIDIA's libraries, without what the other locks have."""
    text = _resolved(
        "torch-cuda.txt",
        "--python-platform",
        "x86_64-manylinux_2_28",
        "-",
        text=f"torch=={version}\n{lock_text(())}",
    )
    others = set(pins_of(lock_text(LOCKS["server.txt"])))
    hashes = hashes_of(text)
    entries = [
        _entry(name, pin, hashes[name]) for name, pin in pins_of(text).items() if name not in others
    ]
    return (
        "# Written by deploy/write_locks.py: torch for NVIDIA GPUs, and the libraries that it"
        " brings. x86-64.\n" + "".join(entries)
    )


def _entry(name: str, version: str, hashes: Iterable[str]) -> str:
    return (
        " \\\n    ".join(
            [f"{name}=={version}", *(f"--hash=sha256:{value}" for value in sorted(hashes))]
        )
        + "\n"
    )


def _resolved(name: str, *arguments: str, text: str = "") -> str:
    """What uv chooses; pins that the lock has already are preferred."""
    path = FOLDER / name
    before = ("--constraint", str(path)) if path.exists() and not os.environ.get("UPGRADE") else ()
    return _uv(*before, *arguments, text=text)


def _uv(*arguments: str, text: str) -> str:
    options = [
        "--quiet",
        "--generate-hashes",
        "--no-header",
        "--no-annotate",
        "--python-version",
        "3.11",
        "--system-certs",
    ]
    done = subprocess.run(
        [_UV, "pip", "compile", *options, *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    if done.returncode:
        raise NotLocked(done.stderr.strip())
    return done.stdout


def _write(name: str, text: str) -> None:
    (FOLDER / name).write_text(text, encoding="utf-8")


def _applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    """True unless the marker excludes this Python and platform.

    NVIDIA's libraries come with torch's GPU build by themselves.
    """
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""})


if __name__ == "__main__":
    sys.exit(main())
