"""Releases: models as they may be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hilum.domain.dicom import Code


@dataclass(frozen=True, slots=True)
class Label:
    """One output of a release.

    `operating_point` is on the scale of the score; None: no decision is made.

    `rescaled_at`: the activation that is called 0.5 as a score; None: the score is the activation.
    """

    key: str
    text: str
    code: Code
    code_status: str
    operating_point: float | None
    is_masked: bool = False
    rescaled_at: float | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """A model as it may be used: a manifest's name@version.

    Read-only facts, parsed by the models room.

    `input_spec` is the mapping that `hilum_preprocessing.InputSpec.from_mapping` takes.
    `activation` is sigmoid, softmax or none. `aggregation` over views is max, mean or
    first_frontal. `calibration` None means: scores are no probabilities.
    `build_key` digests all that the built tree depends on: a tree with another key is stale.
    `operating_points` says where they come from: `measured_on` and `criterion`. `members` names the
    networks of an ensemble, in the order of their numbers, and `rule` says how they become one
    (mean_score, mean_logit); empty: one network. `digest` is that of all that the manifest says.
    """

    name: str
    version: str
    architecture: str
    triton_name: str
    input_spec: Mapping[str, Any]
    labels: tuple[Label, ...]
    activation: str
    aggregation: str
    precision: str
    engine: str
    is_trained: bool
    is_frontal_only: bool
    calibration: Mapping[str, Any] | None
    manufacturer: str
    intended_use: str
    licence: str
    source: str
    weights_sha256: str
    max_batch: int = 16
    has_cam: bool = False
    build_key: str = ""
    task: str = "classification"
    citation: str = ""
    operating_points: Mapping[str, str] | None = None
    members: tuple[str, ...] = ()
    rule: str = ""
    digest: str = ""

    @property
    def id(self) -> str:
        """`name@version`, the identity used everywhere."""
        return f"{self.name}@{self.version}"


def alias_of(release: str) -> str:
    """`name@version` → name: the name of a release in routes, without its version."""
    return release.partition("@")[0]
