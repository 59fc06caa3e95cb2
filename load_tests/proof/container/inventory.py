"""What is in an image: packages and programs beside its own list of them, and what should not be there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from load_tests.proof.container.build import Image
from load_tests.proof.container.root import Root, StepFailed, User

COMPONENTS: Final = "/usr/share/hilum/sbom/hilum.cdx.json"
LICENCES: Final = "/usr/share/hilum/sbom/licences.txt"
_STICKY: Final = ("/var/tmp", "/run/lock", "/tmp", "/dev/shm")  # noqa: S108 - names to compare with
_OURS: Final = ("hilum", "hilum-preprocessing")
_COMPILERS: Final = (
    r"(\w+-linux-gnu-)?(gcc|g\+\+|cc|c\+\+|cpp|clang|ld|as|make|cmake|rustc|cargo|go)(-[0-9.]+)?"
)
# Runs in the image, under its own Python.
_LISTED: Final = """
import hashlib, json, pathlib, re
from importlib import metadata
folders = {"server": "/opt/hilum/lib", "triton": "/opt/hilum/triton/lib"}
packages, programs = {}, {}
for name, folder in folders.items():
    (site,) = pathlib.Path(folder).glob("python3.*/site-packages")
    packages[name] = sorted(
        (re.sub("[-_.]+", "-", each.name).lower(), each.version.split("+")[0])
        for each in metadata.distributions(path=[str(site)])
    )
for path in pathlib.Path("/opt/hilum").rglob("*"):
    if path.is_file() and not path.is_symlink():
        with path.open("rb") as file:
            if file.read(4) == b"\\x7fELF":
                programs[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
print(json.dumps({"packages": packages, "programs": programs}))
"""


@dataclass(frozen=True, slots=True)
class Inventory:
    """Each list is empty where the image is as it should be, apart from the first two."""

    packages: int
    programs: int
    packages_not_listed: tuple[str, ...]
    packages_missing: tuple[str, ...]
    programs_not_listed: tuple[str, ...]
    setuid_files: tuple[str, ...]
    compilers: tuple[str, ...]
    writable: tuple[str, ...]
    lists_differ: bool


def inventory(image: Image, root: Root, user: User) -> Inventory:
    """Look into the image. Raises StepFailed."""
    python = "/opt/hilum/bin/python"
    found = json.loads(root.run([python, "-I", "-c", _LISTED], image.environment))
    listed = json.loads(root.run(["cat", COMPONENTS], image.environment))
    packages = {(n, v) for pairs in found["packages"].values() for n, v in pairs if n not in _OURS}
    known = {_release(component) for component in listed["components"]}
    hashes = {part["hashes"][0]["content"] for part in _parts(listed)}
    programs: Mapping[str, str] = found["programs"]
    return Inventory(
        packages=len(packages),
        programs=len(programs),
        packages_not_listed=tuple(sorted(" ".join(each) for each in packages - known)),
        packages_missing=tuple(sorted(" ".join(each) for each in known - packages)),
        programs_not_listed=tuple(
            path for path, value in programs.items() if value not in hashes and not _is_ours(path)
        ),
        setuid_files=setuid_files(root, image),
        compilers=compilers(root, image),
        writable=writable(root, image, user),
        lists_differ=_printed_differs(root, image),
    )


def _release(component: Mapping[str, Any]) -> tuple[str, str]:
    """As in the list. Its names are those of metadata: hyphens and capitals vary."""
    name = "-".join(component["name"].replace("_", "-").replace(".", "-").split("-"))
    return name.lower(), component["version"].split("+")[0]


def _parts(listed: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from (part for each in listed["components"] for part in each.get("components", []))


def _is_ours(path: str) -> bool:
    """The two libraries that are compiled while the image is made."""
    return path.endswith(("/hilum/receive/storage/transfer.so", "/resize/resize.so"))


def _files(root: Root, image: Image, condition: str) -> tuple[str, ...]:
    command = f"find / -xdev {condition}"
    return tuple(root.run(["sh", "-c", command], image.environment).split())


def setuid_files(root: Root, image: Image) -> tuple[str, ...]:
    """Programs that run with the rights of their owner or group."""
    return _files(root, image, "-type f -perm /6000")


def compilers(root: Root, image: Image) -> tuple[str, ...]:
    """Programs that make programs, by their names."""
    return _files(root, image, f"-regextype posix-extended -regex '.*/bin/{_COMPILERS}'")


def writable(root: Root, image: Image, user: User) -> tuple[str, ...]:
    """What that user could write if the root were not read-only, beyond the volumes."""
    condition = f"! -type l \\( -perm -o=w -o -user {user.uid} -perm -u=w -o -group {user.gid} -perm -g=w \\)"
    return tuple(
        path
        for path in _files(root, image, condition)
        if not path.startswith((*image.volumes, *_STICKY))
    )


def _printed_differs(root: Root, image: Image) -> bool:
    """Whether `hilum sbom` prints other lists than the image holds."""
    program = "/opt/hilum/bin/hilum"
    lists = {COMPONENTS: [program, "sbom"], LICENCES: [program, "sbom", "--licences"]}
    return any(
        root.run(words, image.environment) != root.run(["cat", path], image.environment)
        for path, words in lists.items()
    )


def writes_taken(image: Image, root: Root, user: User) -> list[str]:
    """Folders of the running image in which its user can make a file."""
    taken = []
    for folder in (
        "/",
        "/etc",
        "/etc/hilum",
        "/opt/hilum/bin",
        "/usr/share/hilum",
        "/var",
        "/root",
    ):
        try:
            root.run(["touch", f"{folder}/probe"], image.environment, user=user)
        except StepFailed:
            continue
        taken.append(folder)
    return taken
