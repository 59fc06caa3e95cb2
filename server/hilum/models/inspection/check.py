"""`hilum models check`: every reason to refuse a release before it is served, each with advice.

Nothing is written. Weights are read (never a pickle), fitted to the manifest and searched for NaN.
A built tree may be run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from hilum.errors import ConfigurationError
from hilum.models.facts import Check, FactLine, FactVerdict, Places, refused
from hilum.models.inspection.open_questions import guesses, questions
from hilum.models.inspection.prompt_facts import prompt_facts
from hilum.models.inspection.release_facts import golden_facts, run_facts, tree_facts, weights_facts
from hilum.models.manifest import catalogue, manifest
from hilum.models.manifest.manifest import Manifest

CHECKS: Final[tuple[Check, ...]] = (
    questions,
    weights_facts,
    prompt_facts,
    golden_facts,
    tree_facts,
)


def check(
    release_ids: Iterable[str], places: Places, *, is_run: bool, more: Sequence[Check] = ()
) -> Iterator[FactLine]:
    """Yield facts about these releases, one after the other.

    `is_run`: built trees answer the canary and the golden cases, too. `more`: checks that need
    optional libraries.

    Raises ConfigurationError when there is no folder of that name.
    """
    # An unreadable manifest is a problem of its release, not of all.
    for path in catalogue.choose(catalogue.paths(places.manifests_dir), release_ids).values():
        yield from _check(path, places, (*CHECKS, *([run_facts] if is_run else []), *more))


def _check(path: Path, places: Places, checks: Sequence[Check]) -> Iterator[FactLine]:
    name = path.parent.name
    try:
        read = manifest.read(path)
    except ConfigurationError as error:
        yield from (
            FactLine(name, FactVerdict.PROBLEM, f"manifest: {problem.removeprefix(f'{path}: ')}")
            for problem in error.problems
        )
        yield from _guesses(name, path)
        return
    yield FactLine(name, FactVerdict.OK, f"manifest: {_in_short(read)}")
    yield from _guesses(name, path)
    for one in checks:
        yield from _explained(name, one, read, places)


def _in_short(read: Manifest) -> str:
    labels = len(read.release.labels)
    sizes = " x ".join(map(str, (read.spec.model_channels, *read.spec.wire_shape[1:])))
    return f"{labels} labels, {read.release.architecture}, input {sizes}"


def _guesses(name: str, path: Path) -> Iterator[FactLine]:
    """Yield the guesses of a manifest, also of one that has problems.

    All is reported at once.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    yield from (FactLine(name, verdict, said) for verdict, said in guesses(text))


def _explained(name: str, one: Check, read: Manifest, places: Places) -> Iterator[FactLine]:
    try:
        yield from (FactLine(name, verdict, text) for verdict, text in one(read, places))
    except ConfigurationError as error:
        yield from (refused(name, problem) for problem in error.problems)
