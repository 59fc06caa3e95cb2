"""The checks of one release with a valid manifest.

They concern weights, golden cases, built trees, and the answers of their engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from hilum.errors import ConfigurationError
from hilum.models.build import artefact, build
from hilum.models.facts import Fact, FactVerdict, Places
from hilum.models.known_answers import canary, golden
from hilum.models.manifest.manifest import Manifest

if TYPE_CHECKING:
    import onnx

_OTHER_ENGINE: Final = (
    "the tree, this machine's engine or its version is not the one that it was built with; build it"
    " on this machine, `hilum models build {}`, which says more"
)


def weights_facts(read: Manifest, places: Places) -> Iterator[Fact]:
    """Yield the facts about the weights, for each member of an ensemble.

    A file must have the manifest's digest, fit the manifest, hold no NaN and be no pickle.
    """
    # It imports onnx, which a list of releases does not need.
    from hilum.models.networks import ensemble  # noqa: PLC0415

    opsets: set[ensemble.Opsets] = set()
    problems: list[str] = []
    for member in list(ensemble.members(read)) if read.weights.members else [read]:
        try:
            fact, found = _one_network(member, places)
        except ConfigurationError as error:
            problems += error.problems
            continue
        yield fact
        opsets |= {ensemble.opsets(found)} if found else set()
    if problems:
        raise ConfigurationError(problems)
    ensemble.require_one_opset(read, opsets)


def _one_network(read: Manifest, places: Places) -> tuple[Fact, onnx.ModelProto | None]:
    """Return the facts about one network; and the network itself, where it is in an ONNX file."""
    weights = read.weights
    if weights.file is None:
        untrained = f"UNTRAINED, made from seed {weights.seed}: nothing is decided on them"
        return (FactVerdict.NOTE, f"weights: {untrained}"), None
    try:
        path = artefact.find_weights(read, places.weights_dir)
    except ConfigurationError:
        if not (_is_missing(read, places) and _is_built(read, places)):
            raise
        missing = f"{weights.file} is not here; what is built was made from it"
        return (FactVerdict.NOTE, f"weights: {missing}"), None
    found = _require_fit(read, path)
    fits = f"{path.name} is the file of the manifest, fits it, and holds no NaN"
    return (FactVerdict.OK, f"weights: {fits}"), found


def _is_built(read: Manifest, places: Places) -> bool:
    return any(
        build.is_built(read.release, places.built_dir, profile) for profile in build.PROFILES
    )


def _is_missing(read: Manifest, places: Places) -> bool:
    folders = [folder for folder in (places.weights_dir, read.path.parent) if folder is not None]
    return not any((folder / str(read.weights.file)).is_file() for folder in folders)


def _require_fit(read: Manifest, path: Path) -> onnx.ModelProto | None:
    if read.release.architecture == "onnx":
        from hilum.models.onnx import external  # noqa: PLC0415 - build tools

        return external.require_fit(read, path)
    from hilum.models.build import export  # noqa: PLC0415 - torch

    tensors = export.network(read, path).state_dict()
    damaged = [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())]
    if damaged:
        what = "holds NaN or infinite numbers: the weights are damaged"
        raise ConfigurationError([f"weights: {name} of {path.name} {what}" for name in damaged[:8]])
    return None


def golden_facts(read: Manifest, places: Places) -> Iterator[Fact]:
    """Yield the facts about golden cases: their files exist and can be prepared."""
    known = golden.cases(read, places.weights_dir)
    if known:
        yield FactVerdict.OK, f"golden cases: {len(known)}, all files are there and can be prepared"
    elif read.release.is_trained:
        yield (
            FactVerdict.NOTE,
            (
                "golden cases: none; a build is then compared with itself only, not with its"
                " authors' numbers"
            ),
        )


def tree_facts(read: Manifest, places: Places) -> Iterator[Fact]:
    """Yield the built trees: their profiles, and whether each is still as it was built."""
    for profile in build.PROFILES:
        tree = build.tree_of(read.release, places.built_dir, profile)
        if build.is_built(read.release, places.built_dir, profile):
            yield from _tree(read, tree, profile)
        elif tree.exists():
            advice = f"`hilum models build {read.release.id} --profile {profile}`"
            yield (
                FactVerdict.NOTE,
                f"{profile}: stale, built from another manifest or by another Hilum; {advice}",
            )


def _tree(read: Manifest, tree: Path, profile: str) -> Iterator[Fact]:
    from hilum.models.build import built_tree, tensorrt  # noqa: PLC0415

    problems = list(built_tree.problems(read, tree, profile))
    yield from ((FactVerdict.PROBLEM, f"{profile}: {problem}") for problem in problems)
    if profile == "tensorrt" and not tensorrt.has_plan(tree):
        yield (
            FactVerdict.NOTE,
            (
                f"{profile}: laid ready in {tree}, without a plan: deploy/tensorrt/build_plans.py"
                " builds it where it is served"
            ),
        )
    elif not problems:
        yield FactVerdict.OK, f"{profile}: built in {tree}"
    if slow := build.speed_advice(read.release, tree):
        yield FactVerdict.NOTE, f"{profile}: {slow}"


def run_facts(read: Manifest, places: Places) -> Iterator[Fact]:
    """Yield the answers of the built tree's engine, run in this process."""
    release = read.release
    known = canary.read_canary(release, places.built_dir)
    if not build.is_built(release, places.built_dir):
        raise ConfigurationError(
            [f"--run needs the embedded profile: `hilum models build {release.id}`"]
        )
    tree = build.tree_of(release, places.built_dir)
    run = artefact.serving_engine(read, tree / "1/model.onnx")
    yield _canary_fact(read, known, run(known.image)["logits"])
    cases = golden.cases(read, places.weights_dir)
    answers = golden.prove(read, cases, run, read.engine.name)
    for case, logits in zip(cases, answers, strict=True):
        yield _golden_fact(read, case, logits)


def _canary_fact(read: Manifest, known: canary.Canary, logits: canary.Array) -> Fact:
    worst = float(np.abs(logits - known.logits).max())
    answer = f"the canary's logits are {worst:.2g} off, {known.tolerance:g} is allowed"
    said = f"{read.engine.name} {read.engine.precision}: {answer}"
    if worst <= known.tolerance:
        return FactVerdict.OK, said
    return FactVerdict.PROBLEM, f"{said}: {_OTHER_ENGINE.format(read.release.id)}"


def _golden_fact(read: Manifest, case: golden.Case, logits: canary.Array) -> Fact:
    off = golden.worst(read, case, logits)
    answer = f"golden case {case.table.file} is {off:.2g} off, {case.table.tolerance:g} is allowed"
    return FactVerdict.OK, f"{read.engine.name} {read.engine.precision}: {answer}"
