"""Hilum as it was before the newest migration of the ledger, taken from the repository's history."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hilum.store.migrations.revision import REVISION
from load_tests.fleet.servers import HilumCode
from testing.serving import REPOSITORY

_MIGRATIONS = "server/hilum/store/migrations/versions"
_PACKAGES = ("server", "preprocessing")


class FormerVersion:
    """Unpacked into a folder; its packages run in this environment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def code(self) -> HilumCode:
        """For hosts that have not been upgraded."""
        return HilumCode(tuple(self._folder / name for name in _PACKAGES))

    def unpack(self) -> str:
        """The last commit without the newest migration; why not, or empty."""
        (newest,) = (REPOSITORY / _MIGRATIONS).glob(f"{REVISION}_*.py")
        # A merge may have brought it, perhaps under a new number: so merges count as one change.
        first = _git(
            "log", "-m", "--first-parent", "--diff-filter=A", "--format=%H", "--", str(newest)
        ).split()
        if not first or not _git("rev-parse", "--verify", "--quiet", f"{first[-1]}^"):
            return "the history of the repository is not here"
        done = subprocess.run(
            ["git", "archive", f"{first[-1]}^", *_PACKAGES],
            cwd=REPOSITORY,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            return done.stderr.decode(errors="replace").strip()
        self._folder.mkdir()
        subprocess.run(["tar", "-x", "-C", str(self._folder)], input=done.stdout, check=True)
        return ""


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()
