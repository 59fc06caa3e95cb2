"""The installation without a network: the steps of docs/operate/images.md in a clean Debian."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from deploy import wheelhouse
from load_tests.proof.container import base
from load_tests.proof.container.root import Network, Root
from testing.serving import REPOSITORY

PAGE: Final = REPOSITORY / "docs/operate/images.md"
_FOLDER: Final = "/tmp/wheelhouse"  # noqa: S108 - in the root, where a tmpfs is mounted for the command


def steps() -> str:
    """The block of commands that the page shows."""
    blocks = re.findall(r"^```sh air-gap\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (found,) = blocks
    return str(found)


def install(layers: tuple[Path, ...], work: Path, say: Callable[[str], None]) -> int:
    """Packages that the installation then lists. `layers`: a base. Raises StepFailed, NotFetched.

    `work`: a folder that does not exist yet.
    """
    say("an installation without a network")
    names = wheelhouse.fill()
    say(f"{len(names)} files")
    installed = work / "installed"
    for folder in (work / "place", installed, work / "installed.work"):
        folder.mkdir(parents=True)
    root = Root(
        layers,
        work / "place",
        {wheelhouse.WHEELHOUSE: _FOLDER},
        network=Network.LOOPBACK_ALONE,
    )
    words = ["/bin/sh", "-euc", steps()]
    root.run(words, base.ENVIRONMENT, folder=_FOLDER, upper=installed)
    after = Root((*layers, installed), work / "place", network=Network.LOOPBACK_ALONE)
    listed = after.run(["/opt/hilum/bin/hilum", "sbom", "--licences"], base.ENVIRONMENT)
    return len(listed.splitlines())
