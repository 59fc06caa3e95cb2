"""The tables of a manifest as they may stand in the file. Field by field; what spans fields is checked in `manifest`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Sentence = Annotated[str, Field(min_length=1, max_length=1024)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelTable(_Table):
    """`onnx`: the weights file is a whole network; its output must be logits."""

    architecture: Literal["densenet121", "vit_b16", "onnx"]
    activation: Literal["sigmoid", "softmax", "none"]
    max_batch: int = Field(16, ge=1, le=64)


class WeightsTable(_Table):
    """Either a seed (untrained) or a file that the user brings, named by its digest."""

    seed: int | None = Field(None, ge=0, lt=1 << 63)
    file: str | None = Field(None, pattern=r"^[\w.+-]+$")
    sha256: Sha256 | None = None
    input: str = "input"
    output: str = "output"

    @model_validator(mode="after")
    def _one_origin(self) -> WeightsTable:
        if (self.seed is None) == (self.file is None):
            raise ValueError("give either seed (untrained) or file and sha256")
        if (self.file is None) != (self.sha256 is None):
            raise ValueError("file and sha256 go together: a name alone does not say which weights")
        return self


class EngineTable(_Table):
    """Who computes, and how exactly. Pinned: two hosts must not give two numbers under one name."""

    name: Literal["openvino", "onnxruntime"]
    precision: Literal["f32", "bf16", "int8"] = "f32"
    optimisation: Literal["all", "extended", "basic", "disabled"] = "all"
    tolerance: float | None = Field(None, gt=0, description="Largest difference of a logit that the canary may show.")

    @model_validator(mode="after")
    def _possible(self) -> EngineTable:
        if self.precision == "bf16" and self.name != "openvino":
            raise ValueError("bf16 runs on openvino only")
        if self.precision == "int8" and self.name != "onnxruntime":
            raise ValueError("int8 runs on onnxruntime only")
        if self.optimisation != "all" and self.name != "onnxruntime":
            raise ValueError("optimisation is a setting of onnxruntime")
        return self


class StudyTable(_Table):
    """From images to a study."""

    aggregation: Literal["max", "mean", "first_frontal"] = "max"


class PlattTable(_Table):
    """probability = sigmoid(a * logit + b), Platt 1999."""

    a: float
    b: float


class CalibrationTable(_Table):
    """From logits to probabilities: one temperature (Guo et al. 2017), or a and b for all labels or for each; and where it was measured."""

    method: Literal["temperature", "platt"]
    measured_on: Sentence
    temperature: float | None = Field(None, gt=0)
    a: float | None = None
    b: float | None = None
    labels: Mapping[str, PlattTable] | None = None

    @model_validator(mode="after")
    def _whole(self) -> CalibrationTable:
        platt = (self.a, self.b, self.labels)
        if self.method == "temperature" and (self.temperature is None or platt != (None, None, None)):
            raise ValueError("method temperature takes temperature and nothing else")
        if self.method == "platt" and (self.temperature is not None or (self.a is None) != (self.b is None)):
            raise ValueError("method platt takes a and b for all labels, or labels = { concept = { a, b } }")
        return self


class LabelTable(_Table):
    """One output, in the order of the outputs."""

    concept: str
    text: str | None = Field(None, min_length=1, max_length=64)
    operating_point: float | None = None
    is_masked: bool = False


class ManifestTable(_Table):
    """A whole manifest."""

    format: Literal[1]
    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")
    version: str = Field(pattern=r"^[0-9A-Za-z]+(\.[0-9A-Za-z]+)*$", max_length=16)
    manufacturer: str = Field(min_length=1, max_length=64)
    intended_use: Sentence
    licence: Sentence
    source: Sentence
    model: ModelTable
    weights: WeightsTable
    input: Mapping[str, Any]
    engine: EngineTable
    study: StudyTable = StudyTable()
    calibration: CalibrationTable | None = None
    labels: tuple[LabelTable, ...] = Field(min_length=1)
