"""Facts about a release with their verdicts, as `hilum models check` prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hilum.models.manifest.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of manifests, built trees and brought weights."""

    manifests_dir: Path
    built_dir: Path
    weights_dir: Path | None = None


class FactVerdict(StrEnum):
    """The meaning of a fact for the release.

    A build refuses a problem; a question waits for an answer.
    """

    OK = "ok"
    NOTE = "note"
    QUESTION = "QUESTION"
    PROBLEM = "PROBLEM"


@dataclass(frozen=True, slots=True)
class FactLine:
    """One fact about a release."""

    release_id: str
    verdict: FactVerdict
    text: str


def refused(release_id: str, problem: str) -> FactLine:
    """Return a problem as a fact, without the release's name at its beginning."""
    return FactLine(
        release_id, FactVerdict.PROBLEM, problem.removeprefix(release_id).removeprefix(": ").strip()
    )


Fact = tuple[FactVerdict, str]
Check = Callable[[Manifest, Places], Iterator[Fact]]
