"""Manifests: the one file about a model that a person edits.

TOML in, `domain.Release` and the builder's facts out. Every problem of a manifest is reported at
once; an unknown key names the nearest known one.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from hilum.domain import Code, Label, Release
from hilum.errors import ConfigurationError
from hilum.models.formats import identity
from hilum.models.manifest import rules, terminology
from hilum.models.manifest.labels import GoldenTable, LabelTable
from hilum.models.manifest.messages import explain, unedited
from hilum.models.manifest.tables import EngineTable, ManifestTable, WeightsTable
from hilum_preprocessing.errors import SpecError
from hilum_preprocessing.spec.fields import nearest
from hilum_preprocessing.spec.input_spec import InputSpec

FILE_NAME: Final = "manifest.toml"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest: `release` for the rest of Hilum, and the builder's facts beside it.

    `table` is the whole content of the file, `text` the file itself.
    """

    release: Release
    spec: InputSpec
    weights: WeightsTable
    engine: EngineTable
    path: Path
    table: ManifestTable
    text: str

    @property
    def golden(self) -> tuple[GoldenTable, ...]:
        """Cases with known answers."""
        return self.table.golden


def read(path: Path) -> Manifest:
    """Read the manifest in this file.

    Raises ConfigurationError with all its problems.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError([f"{path}: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError([f"{path}: not valid TOML: {error}"]) from error
    return parse(text, path)


def parse(text: str, path: Path) -> Manifest:
    """Return the manifest of a text that is or was the content of this file.

    Raises ConfigurationError with all its problems.
    """
    try:
        content = tomllib.loads(text)
        table = ManifestTable.model_validate(content)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError([f"{path}: not valid TOML: {error}"]) from error
    except ValidationError as error:
        raise ConfigurationError([f"{path}: {explain(item)}" for item in error.errors()]) from error
    problems = [*unedited(content), *rules.problems(table, path.parent.name, nearest)]
    spec = _input_spec(table, problems)
    if problems or spec is None:
        raise ConfigurationError([f"{path}: {problem}" for problem in problems])
    return Manifest(
        _release(table, spec, _digest(content)),
        spec,
        table.weights,
        table.engine,
        path,
        table,
        text,
    )


def _input_spec(table: ManifestTable, problems: list[str]) -> InputSpec | None:
    try:
        spec = InputSpec.from_mapping(table.input)
    except SpecError as error:
        problems.append(f"input: {error}")
        return None
    stride = rules.stride(table.model)
    if any(size % stride for size in spec.wire_shape[1:]):
        problems.append(
            f"input: {table.model.architecture} needs height and width in multiples of {stride},"
            f" got {spec.wire_shape[1:]}"
        )
    return spec


def _release(table: ManifestTable, spec: InputSpec, digest: str) -> Release:
    model = table.model
    engine = table.engine
    points = table.operating_points
    return Release(
        name=table.name,
        version=table.version,
        architecture=model.architecture,
        triton_name=identity.triton_name(table.name, table.version),
        input_spec=dict(table.input),
        labels=tuple(_label(label, index) for index, label in enumerate(table.labels)),
        activation=model.activation,
        aggregation=table.study.aggregation,
        precision=engine.precision,
        engine=engine.name,
        is_trained=table.weights.is_trained,
        is_frontal_only=spec.views == "frontal_only",
        calibration=table.calibration.model_dump(exclude_none=True) if table.calibration else None,
        manufacturer=table.manufacturer,
        intended_use=table.intended_use,
        licence=table.licence,
        source=table.source,
        weights_sha256=_weights_sha256(table.weights),
        max_batch=model.max_batch,
        has_cam=rules.has_cam(table),
        build_key=_build_key(table, spec),
        task=table.task,
        citation=table.citation or "",
        operating_points=points.model_dump() if points else None,
        members=table.weights.member_names,
        rule=table.weights.rule or "",
        digest=digest,
    )


def _digest(content: Mapping[str, Any]) -> str:
    """Return the digest of the TOML's content, the same for every version of Hilum.

    Comments and the order of keys do not count.
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def _weights_sha256(weights: WeightsTable) -> str:
    """Return the digest of the one file.

    For an ensemble, it is over the digests of its members in order.
    """
    digests = [member.sha256 for member in weights.members if member.sha256]
    return (
        hashlib.sha256("".join(digests).encode()).hexdigest() if digests else weights.sha256 or ""
    )


def _build_key(table: ManifestTable, spec: InputSpec) -> str:
    return identity.build_key(
        {
            "model": table.model.model_dump(exclude={"activation"}),
            "weights": table.weights.model_dump(),
            "engine": table.engine.model_dump(),
            "input": spec.version,
            "outputs": len(table.labels),
            "golden": [golden.model_dump() for golden in table.golden],
            "activation": (
                table.model.activation if table.weights.members else None
            ),  # the rule of an ensemble computes it in the graph
        }
    )


def _label(label: LabelTable, index: int) -> Label:
    key = label.key(index)
    point = None if label.operating_point == "none" else label.operating_point
    if label.concept is None:
        text = label.text or f"Output {index}"
        code = Code(label.private or f"OUTPUT_{index}", terminology.PRIVATE_SCHEME, text)
        status = "C"
    else:
        concept = terminology.load().concepts[label.concept]
        text = label.text or concept.text
        code = concept.code
        status = concept.status
    return Label(key, text, code, status, point, label.is_masked, label.rescaled_at)
