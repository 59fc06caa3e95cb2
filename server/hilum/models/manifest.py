"""Manifests: the one thing about a model that a person edits. TOML in, `domain.Release` and the builder's facts out.

Every problem of a manifest is reported at once; an unknown key names the nearest known one.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from hilum.domain import Label, Release
from hilum.errors import ConfigurationError
from hilum.models import identity, terminology
from hilum.models.manifest_tables import (
    CalibrationTable,
    EngineTable,
    LabelTable,
    ManifestTable,
    ModelTable,
    StudyTable,
    WeightsTable,
)
from hilum_preprocessing.errors import SpecError
from hilum_preprocessing.spec import InputSpec

FILE_NAME: Final = "manifest.toml"
STRIDES: Final[Mapping[str, int]] = {"densenet121": 32, "vit_b16": 16, "onnx": 1}
"""Known architectures, and what the size of the input must be a multiple of."""
_SUFFIXES: Final = {"onnx": (".onnx",), "densenet121": (".safetensors", ".pth", ".pt"), "vit_b16": (".safetensors", ".pth", ".pt")}

_TABLES: Final[Mapping[str, type[BaseModel]]] = {
    "model": ModelTable,
    "weights": WeightsTable,
    "engine": EngineTable,
    "study": StudyTable,
    "calibration": CalibrationTable,
    "labels": LabelTable,
}


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the rest of Hilum may know (`release`), and what the builder needs beside it."""

    release: Release
    spec: InputSpec
    weights: WeightsTable
    engine: EngineTable
    path: Path


def read(path: Path) -> Manifest:
    """The manifest in this file. Raises ConfigurationError with all its problems."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        table = ManifestTable.model_validate(content)
    except OSError as error:
        raise ConfigurationError([f"{path}: {error.strerror}"]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError([f"{path}: not valid TOML: {error}"]) from error
    except ValidationError as error:
        raise ConfigurationError([f"{path}: {_explain(item)}" for item in error.errors()]) from error
    problems = [*_whole_problems(table, path.parent.name), *_label_problems(table)]
    spec = _input_spec(table, problems)
    if problems or spec is None:
        raise ConfigurationError([f"{path}: {problem}" for problem in problems])
    return Manifest(_release(table, spec), spec, table.weights, table.engine, path)


def _explain(item: Mapping[str, Any]) -> str:
    place = [part for part in item["loc"] if isinstance(part, str)]
    name = ".".join(map(str, item["loc"]))
    if item["type"] == "extra_forbidden":
        return f"{name}: unknown key{nearest(place[-1], _known(place[:-1]))}"
    given = item.get("input")
    shown = "" if given is None or isinstance(given, dict) else f" (got {given!r})"
    return f"{name}: {item['msg'].removeprefix('Value error, ')}{shown}"


def _known(place: list[str]) -> list[str]:
    """Keys of the table at this place."""
    table = _TABLES[place[0]] if place else ManifestTable
    return list(table.model_fields)


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: what was perhaps meant, else all that would do."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"


def _whole_problems(table: ManifestTable, folder: str) -> Iterator[str]:
    """What no single table can know."""
    if folder != f"{table.name}@{table.version}":
        yield f"the folder is {folder!r}, but the release is {table.name}@{table.version}: rename one"
    architecture, file = table.model.architecture, table.weights.file
    if file and not file.endswith(_SUFFIXES[architecture]):
        yield f"weights.file: {architecture} takes {' or '.join(_SUFFIXES[architecture])}, got {file}"
    if architecture == "onnx" and file is None:
        yield "weights: an onnx network cannot be made from a seed; give file and sha256"
    if table.engine.precision == "int8" and architecture != "onnx":
        yield "engine.precision: int8 needs an onnx file that was quantised by its makers"


def _label_problems(table: ManifestTable) -> Iterator[str]:
    table_of_codes = terminology.load()
    concepts = table_of_codes.concepts
    names = [label.concept for label in table.labels]
    yield from (f"labels: {name} stands twice" for name in sorted({name for name in names if names.count(name) > 1}))
    for index, label in enumerate(table.labels):
        if label.concept not in concepts:
            meant = table_of_codes.meant_by(label.concept)
            hint = f"; a public label, its concept is {meant!r}" if meant else nearest(label.concept, concepts)
            yield f"labels.{index}.concept: unknown {label.concept!r}{hint}"
            continue
        if label.operating_point is None:
            continue
        if not concepts[label.concept].is_assertable:
            yield f"labels.{index}: {label.concept} must have no operating point: nothing may assert it"
        if table.weights.seed is not None:
            yield f"labels.{index}: untrained weights decide nothing; remove the operating point"
        if table.model.activation != "none" and not 0 < label.operating_point < 1:
            yield f"labels.{index}.operating_point: {label.operating_point} is no {table.model.activation} score: those lie between 0 and 1"
    yield from _calibration_problems(table, set(names))


def _calibration_problems(table: ManifestTable, names: set[str]) -> Iterator[str]:
    given = table.calibration
    if given is None:
        return
    if table.weights.seed is not None:
        yield "calibration: untrained weights cannot be calibrated"
    if given.method == "temperature" and table.model.activation == "none":
        yield "calibration: a temperature needs the activation sigmoid or softmax"
    by_label = set(given.labels or {})
    yield from (f"calibration.labels: {name} is no label of this release" for name in sorted(by_label - names))
    if given.method == "platt" and given.a is None and names - by_label:
        yield f"calibration.labels: no a and b for {', '.join(sorted(names - by_label))}"


def _input_spec(table: ManifestTable, problems: list[str]) -> InputSpec | None:
    try:
        spec = InputSpec.from_mapping(table.input)
    except SpecError as error:
        problems.append(f"input: {error}")
        return None
    stride = STRIDES[table.model.architecture]
    if any(size % stride for size in spec.wire_shape[1:]):
        problems.append(f"input: {table.model.architecture} needs height and width in multiples of {stride}, got {spec.wire_shape[1:]}")
    return spec


def _release(table: ManifestTable, spec: InputSpec) -> Release:
    model, engine = table.model, table.engine
    return Release(
        name=table.name,
        version=table.version,
        architecture=model.architecture,
        triton_name=identity.triton_name(table.name, table.version),
        input_spec=dict(table.input),
        labels=tuple(_label(label) for label in table.labels),
        activation=model.activation,
        aggregation=table.study.aggregation,
        precision=engine.precision,
        engine=engine.name,
        is_trained=table.weights.seed is None,
        is_frontal_only=spec.views == "frontal_only",
        calibration=table.calibration.model_dump(exclude_none=True) if table.calibration else None,
        manufacturer=table.manufacturer,
        intended_use=table.intended_use,
        licence=table.licence,
        source=table.source,
        weights_sha256=table.weights.sha256 or "",
        max_batch=model.max_batch,
        has_cam=model.architecture == "densenet121",
        build_key=identity.build_key(
            {
                "model": model.model_dump(exclude={"activation"}),
                "weights": table.weights.model_dump(),
                "engine": engine.model_dump(),
                "input": spec.version,
                "outputs": len(table.labels),
            }
        ),
    )


def _label(label: LabelTable) -> Label:
    concept = terminology.load().concepts[label.concept]
    return Label(concept.key, label.text or concept.text, concept.code, concept.status, label.operating_point, label.is_masked)
