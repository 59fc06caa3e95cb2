"""Golden cases: images with known answers, proved at each build and again at each load."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from hilum.domain import Release
from hilum.errors import ConfigurationError
from hilum.models.formats import identity
from hilum.models.known_answers import canary
from hilum.models.known_answers.canary import Array, Canary
from hilum.models.known_answers.wire_image import read_tensor, wire_image
from hilum.models.manifest.labels import GoldenTable
from hilum.models.manifest.manifest import Manifest
from hilum.scores import scores_of

RECORD: Final = "golden"
Run = Callable[[Array], Mapping[str, Array]]


@dataclass(frozen=True, slots=True)
class Case:
    """A golden case of a manifest and its wire tensor (1, 1, H, W)."""

    table: GoldenTable
    image: Array


def cases(manifest: Manifest, weights_dir: Path | None = None) -> list[Case]:
    """Return every golden case of the manifest, its image prepared.

    Raises ConfigurationError with the problems of all.
    """
    found = []
    problems = []
    for table in manifest.golden:
        try:
            found.append(
                Case(
                    table,
                    wire_image(
                        manifest, _find(manifest, table, weights_dir), f"golden case {table.file}"
                    ),
                )
            )
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(problems)
    return found


def prove(manifest: Manifest, known: Iterable[Case], run: Run, who: str) -> list[Array]:
    """Return the logits (1, L) of each case by `run`; `who` is the engine's name in errors.

    Raises ConfigurationError where one is not the known answer.
    """
    answers = []
    problems = []
    for case in known:
        logits = np.asarray(run(case.image)["logits"], np.float32)
        problems += [
            f"{manifest.release.id}: golden case {case.table.file} by {who}: {item}"
            for item in _misses(manifest, case, logits)
        ]
        answers.append(logits)
    if problems:
        raise ConfigurationError(problems)
    return answers


def record(
    tree: Path, manifest: Manifest, known: Sequence[Case], answers: Sequence[Array]
) -> list[dict[str, Any]]:
    """Write the wire tensors beside `build.json` and return their entries of that file."""
    entries = []
    for number, (case, logits) in enumerate(zip(known, answers, strict=True)):
        name = f"golden_{number}.npy"
        np.save(tree / name, case.image, allow_pickle=False)
        entries.append(
            {
                "file": case.table.file,
                "tensor": name,
                "logits": [float(value) for value in logits[0]],
                "tolerance": canary.tolerance(manifest.engine),
            }
        )
    return entries


def read_goldens(release: Release, built_dir: Path) -> tuple[Canary, ...]:
    """Return the golden cases that were proved when the release was built.

    Raises ConfigurationError as `read_canary`.
    """
    path = canary.find_record(release, built_dir)
    entries = json.loads(path.read_text(encoding="utf-8")).get(RECORD, [])
    bias = canary.read_canary(release, built_dir).cam_bias if entries else None
    return tuple(_canary(path.parent, entry, bias) for entry in entries)


def _canary(tree: Path, entry: Mapping[str, Any], bias: Array | None) -> Canary:
    try:
        image = read_tensor(tree / entry["tensor"])
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            [
                (
                    f"{tree / entry['tensor']} is damaged or gone: delete {tree} and build the"
                    " release again"
                )
            ]
        ) from error
    return Canary(
        image,
        np.array([entry["logits"]], np.float32),
        float(entry["tolerance"]),
        f"golden case {entry['file']}",
        bias,
    )


def _find(manifest: Manifest, table: GoldenTable, weights_dir: Path | None) -> Path:
    folders = [folder for folder in (manifest.path.parent, weights_dir) if folder is not None]
    path = next(
        (folder / table.file for folder in folders if (folder / table.file).is_file()), None
    )
    if path is None:
        raise _refused(
            manifest,
            table,
            f"no such file; put it (sha256 {table.sha256}) into {' or '.join(map(str, folders))}",
        )
    if (found := identity.file_sha256(path)) != table.sha256:
        raise _refused(
            manifest,
            table,
            f"{path} has sha256 {found}, the manifest {table.sha256}: bring that file, or correct"
            " the digest",
        )
    return path


def worst(manifest: Manifest, case: Case, logits: Array) -> float:
    """Return the largest difference from a known number."""
    return max(abs(given - known) for given, known in _compared(manifest, case, logits).values())


def _misses(manifest: Manifest, case: Case, logits: Array) -> Iterator[str]:
    if not np.isfinite(logits).all():
        yield "a logit is infinite or not a number"
        return
    kind = "score" if case.table.logits is None else "logit"
    for key, (given, known) in _compared(manifest, case, logits).items():
        if not abs(given - known) <= case.table.tolerance:
            yield (
                f"{kind} of {key} is {given:.4g}, known is {known:.4g}; {case.table.tolerance:g} is"
                " allowed"
            )


def _compared(manifest: Manifest, case: Case, logits: Array) -> dict[str, tuple[float, float]]:
    """Return the given and the known number by label."""
    table = case.table
    row = [float(value) for value in logits[0]]
    given = row if table.logits is not None else scores_of(row, manifest.release)
    keys = [label.key for label in manifest.release.labels]
    found = dict(zip(keys, given, strict=True))
    return {key: (found[key], value) for key, value in _expected(table, keys).items()}


def _expected(table: GoldenTable, keys: Sequence[str]) -> Mapping[str, float]:
    numbers = table.scores if table.logits is None else table.logits
    if isinstance(numbers, Mapping):
        return numbers
    return dict(zip(keys, numbers or (), strict=True))


def _refused(manifest: Manifest, table: GoldenTable, problem: str) -> ConfigurationError:
    return ConfigurationError([f"{manifest.release.id}: golden case {table.file}: {problem}"])
