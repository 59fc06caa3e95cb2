"""A description of one release: the facts that a person needs before trusting its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hilum.domain import Label, Release
from hilum.models.build import build
from hilum.models.manifest import catalogue, manifest
from hilum.models.manifest.manifest import Manifest
from hilum.models.manifest.prompts import PromptsTable

_COLUMN = 18


def show(release_id: str, manifests_dir: Path, built_dir: Path) -> Iterator[str]:
    """Yield lines of text.

    Raises ConfigurationError: no such release, or its manifest has problems.
    """
    shown = manifest.read(
        catalogue.choose(catalogue.paths(manifests_dir), [release_id])[release_id]
    )
    for name, value in _facts(shown, built_dir):
        yield f"{name:{_COLUMN}}{value}"
    yield ""
    if shown.table.prompts is not None:
        yield from _prompts(shown.table.prompts)
        yield ""
    yield from _table(
        [("label", "decides at", "code", "status", ""), *map(_label, shown.release.labels)]
    )


def _prompts(prompts: PromptsTable) -> Iterator[str]:
    """Yield the prompts of a zero-shot release, a line for each finding."""
    rows: list[tuple[str, ...]] = [("asked for", "positive prompts", "negative prompts")]
    for pair in prompts.pairs:
        positive, negative = (
            " | ".join(prompt.text for prompt in side) for side in (pair.positive, pair.negative)
        )
        rows.append((pair.finding, positive, negative))
    yield from _table(rows)


def _facts(shown: Manifest, built_dir: Path) -> Iterator[tuple[str, str]]:
    yield from _origin(shown.release)
    yield from _network(shown)
    yield from _input(shown)
    yield from _reading(shown.release)
    yield from _proofs(shown, built_dir)
    if rule := shown.weights.rule:
        yield "ensemble", f"{rule} of {len(shown.weights.members)} members"


def _origin(release: Release) -> Iterator[tuple[str, str]]:
    yield "release", release.id
    yield "task", release.task
    yield "manufacturer", release.manufacturer
    yield "intended use", release.intended_use
    yield "licence", release.licence
    yield "source", release.source
    if release.citation:
        yield "citation", release.citation


def _network(shown: Manifest) -> Iterator[tuple[str, str]]:
    release = shown.release
    state = "trained" if release.is_trained else "UNTRAINED: decides nothing"
    yield "network", f"{release.architecture}, {state}"
    yield from _weights(shown)
    if (prompts := shown.table.prompts) is not None:
        yield "prompts", f"rule {prompts.rule}, tokenizer {prompts.tokenizer.sha256}"
        yield "text tower", f"{prompts.text_tower.file}, sha256 {prompts.text_tower.sha256}"
    yield "engine", f"{release.engine} {release.precision}, batches up to {release.max_batch}"


def _input(shown: Manifest) -> Iterator[tuple[str, str]]:
    spec = shown.spec
    recipe = shown.release.input_spec.get("recipe", "own specification")
    yield "input", f"{recipe} ({spec.version}), {spec.wire_dtype} {list(spec.wire_shape)}"
    formula = f"(x - {_numbers(spec.normalise.mean)}) / {_numbers(spec.normalise.std)}"
    yield "normalised", f"{formula} in the graph, {spec.model_channels} channels"


def _reading(release: Release) -> Iterator[tuple[str, str]]:
    yield "reads", "frontal views only" if release.is_frontal_only else "all views"
    scores = f"{release.activation} of the logits{_rescaled(release.labels)}"
    yield "scores", f"{scores}; {release.aggregation} over the images of a study"
    yield "operating points", _points(release.operating_points)
    yield "calibration", _calibration(release.calibration)
    yield "maps", "cam, exact: mean of a map + bias = logit" if release.has_cam else "none"


def _proofs(shown: Manifest, built_dir: Path) -> Iterator[tuple[str, str]]:
    release = shown.release
    yield "golden cases", ", ".join(case.file for case in shown.golden) or "none"
    yield "built", ", ".join(_built(shown, built_dir)) or f"no: hilum models build {release.id}"
    yield "build key", release.build_key


def _weights(shown: Manifest) -> Iterator[tuple[str, str]]:
    for each in shown.weights.members or (shown.weights,):
        yield (
            "weights",
            (
                f"made from seed {each.seed}"
                if each.file is None
                else f"{each.file}, sha256 {each.sha256}"
            ),
        )


def _built(shown: Manifest, built_dir: Path) -> Iterator[str]:
    for profile in build.PROFILES:
        if build.tree_of(shown.release, built_dir, profile).exists():
            yield (
                profile
                if build.is_built(shown.release, built_dir, profile)
                else f"{profile} (stale)"
            )


def _points(provenance: Mapping[str, str] | None) -> str:
    return (
        "none"
        if provenance is None
        else f"{provenance['criterion']} Measured on: {provenance['measured_on']}"
    )


def _calibration(calibration: Mapping[str, Any] | None) -> str:
    if calibration is None:
        return "none: scores are no probabilities"
    return f"{calibration['method']}. Measured on: {calibration['measured_on']}"


def _rescaled(labels: tuple[Label, ...]) -> str:
    return (
        ", bent so that each label's operating point becomes 0.5"
        if any(label.rescaled_at is not None for label in labels)
        else ""
    )


def _numbers(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.6g}" for value in values)


def _label(label: Label) -> tuple[str, ...]:
    point = "never" if label.operating_point is None else f"{label.operating_point:g}"
    rest = "masked: never shown" if label.is_masked else label.text
    return label.key, point, f"{label.code.scheme} {label.code.value}", label.code_status, rest


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
