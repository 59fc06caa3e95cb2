"""Trained weights for `make demo WEIGHTS=…`, brought in by `hilum models import`.

`torchxrayvision` downloads one published file, because the person at the terminal asked for it. A
path names the same file, fetched by other means. Both must have the pinned digest.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hilum.models.importing import published


class NoWeights(Exception):
    """Why there are none and what to do, for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A published file: its release in torchxrayvision's words, and its digest."""

    published: str
    sha256: str

    @property
    def address(self) -> str:
        """The address of the file, as the importer knows it."""
        return published.releases()[self.published].address


# 28,382,008 bytes. The project publishes no digest; this one is what its users have written down.
TORCHXRAYVISION: Final = Pinned(
    "densenet121-res224-all", "56524913dd16a906422e8d8b66a7a5c46be1d82eb7ac012d8103776f1aa68899"
)
RELEASE: Final = "txrv_all@1"
Command = Callable[..., list[str]]


def models_section(folder: Path) -> Mapping[str, Any]:
    """The settings of a Hilum that reads with the imported release."""
    return {"manifests": str(folder), "releases": [RELEASE]}


def bring(asked: str, folder: Path, command: Command, pinned: Pinned = TORCHXRAYVISION) -> None:
    """Import the weights into `folder`, unless they are there already. Raises NoWeights.

    `asked`: "torchxrayvision", or the path of its file. `command`: a `hilum` command line.
    """
    if asked == "torchxrayvision":
        if (folder / RELEASE / "manifest.toml").is_file():
            return
        _run(command, folder, pinned.published, "--download", "--sha256", pinned.sha256)
        return
    path = Path(asked)
    if not path.is_file():
        raise NoWeights(f"{asked}: no such file. WEIGHTS is torchxrayvision, or the path of a file")
    if (found := hashlib.sha256(path.read_bytes()).hexdigest()) != pinned.sha256:
        raise NoWeights(f"{asked} has sha256 {found}, {pinned.sha256} is pinned: another file")
    if not (folder / RELEASE / "manifest.toml").is_file():
        _run(command, folder, asked, "--published", pinned.published)


def advice(pinned: Pinned = TORCHXRAYVISION) -> str:
    """The way without a network."""
    return (
        "If this machine has no way to the internet, fetch the file on another one:\n"
        f"  {pinned.address}\n"
        "then: make demo WEIGHTS=path/of/the/file"
    )


def _run(command: Command, folder: Path, source: str, *options: str) -> None:
    """The importer, its words shown. Raises NoWeights with the advice."""
    line = command("models", "import", "torchxrayvision", source, *options)
    name, version = RELEASE.split("@")
    line += ["--name", name, "--version", version, "--out", str(folder)]
    print("$ " + " ".join(["hilum", *line[1:]]), flush=True)
    if subprocess.run(line, check=False, stderr=sys.stdout).returncode:
        raise NoWeights(f"the import failed.\n{advice()}")
