"""What `hilum models check` says of a release: facts, each with its verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hilum.models.manifest.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Places:
    """Where manifests, built trees and brought weights lie."""

    manifests_dir: Path
    built_dir: Path
    weights_dir: Path | None = None


class FactVerdict(StrEnum):
    """What a fact means for the release.

    A build refuses a problem, a question waits for an answer.
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
    """A problem that may begin with the release's name."""
    return FactLine(
        release_id, FactVerdict.PROBLEM, problem.removeprefix(release_id).removeprefix(": ").strip()
    )


Fact = tuple[FactVerdict, str]
Check = Callable[[Manifest, Places], Iterator[Fact]]
