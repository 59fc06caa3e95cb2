"""The fields of a manifest's tables.

Rules that span tables are checked in `manifest`. docs/models/manifest.md is made from this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from hilum.dicom.text import Named, Paragraph
from hilum.models.manifest.labels import (
    CalibrationTable,
    FileName,
    GoldenTable,
    LabelTable,
    OperatingPointsTable,
    ReleaseName,
    ReleaseVersion,
    Sha256,
    StrictTable,
)
from hilum.models.manifest.prompts import PromptsTable


class OptionsTable(StrictTable):
    """Facts about a network that the tensors of its checkpoint do not give.

    For the architecture `vit` alone.
    """

    pooling: Literal["cls", "gap"] = Field(
        "cls", description="Input of the head: the class token, or the mean of the patch tokens."
    )
    norm: Literal["tokens", "pooled"] = Field(
        "tokens",
        description=(
            "Where the last normalisation stands: over every token, or behind the pooling (timm's"
            " `fc_norm`). Class activation maps are exact with `pooling` gap and `norm` tokens."
        ),
    )
    patch: Literal[8, 14, 16, 32] = Field(16, description="Side of a patch in pixels.")
    heads: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Attention heads; absent: width / 64, as in all published sizes.",
    )
    epsilon: float = Field(
        1e-6,
        gt=0,
        lt=1e-2,
        description="Of the normalisations: 1e-6 in timm, 1e-12 in most of Hugging Face.",
    )
    width: int = Field(
        768,
        ge=8,
        le=2048,
        multiple_of=8,
        description="Of a token. Only for weights from a seed: a file says it itself.",
    )
    layers: int = Field(
        12, ge=1, le=64, description="Only for weights from a seed: a file says it itself."
    )


class ModelTable(StrictTable):
    """The network and how its outputs are read."""

    architecture: Literal["clip_vit", "densenet121", "resnet50", "vit", "vit_b16", "onnx"] = Field(
        description=(
            "`onnx`: the weights file is a whole network whose output are logits. The others take a"
            " checkpoint of tensors: `densenet121` and `resnet50` of torchvision and"
            " torchxrayvision, `vit` of timm and Hugging Face, `vit_b16` of torchvision, `clip_vit`"
            " of OpenAI's CLIP (task `zero_shot`)."
        )
    )
    activation: Literal["sigmoid", "softmax", "none"] = Field(
        description=(
            "From logits to scores: `sigmoid` each for itself, `softmax` shares of one, `none` as"
            " they are."
        )
    )
    max_batch: int = Field(16, ge=1, le=64, description="Most images in one request.")
    cam: bool | None = Field(
        None,
        description=(
            "Whether class activation maps are served. Absent: where they are exact (a linear head"
            " on a global average). An onnx network has them when `weights.cam` names its output."
        ),
    )
    options: OptionsTable = Field(
        OptionsTable(), description="Facts about the network that the checkpoint does not hold."
    )


class MemberTable(StrictTable):
    """One network of an ensemble, of the same architecture, input and outputs as the others."""

    name: str | None = Field(
        None,
        pattern=r"^[a-z0-9][a-z0-9_]{0,39}$",
        description="For its numbers in the JSON result; no two alike. Absent: member_1 …",
    )
    file: FileName | None = Field(None, description="Its weights file.")
    sha256: Sha256 | None = Field(None, description="Of the file.")
    seed: int | None = Field(
        None, ge=0, lt=1 << 63, description="Untrained weights from this seed, instead of a file."
    )

    @model_validator(mode="after")
    def _one_origin(self) -> MemberTable:
        _check_origin(self.seed, self.file, self.sha256)
        return self


class WeightsTable(StrictTable):
    """The origin of the numbers.

    A seed (untrained), a file that you bring, or the members of an ensemble.
    """

    seed: int | None = Field(
        None,
        ge=0,
        lt=1 << 63,
        description="Untrained weights from this seed: nothing is decided on them.",
    )
    file: FileName | None = Field(
        None,
        description=(
            "Beside the manifest, or in the folder that `hilum models build --weights` names."
        ),
    )
    sha256: Sha256 | None = Field(
        None, description="Of the file: a name alone does not say which weights."
    )
    members: tuple[MemberTable, ...] = Field(
        (), description="The networks of an ensemble, instead of `file` or `seed`; two at least."
    )
    rule: Literal["mean_score", "mean_logit"] | None = Field(
        None,
        description=(
            "How members become one: the mean of their scores (then `logits` is its logit), or the"
            " mean of their logits."
        ),
    )
    input: str = Field(
        "input",
        description="Name of the input of an onnx network: (N, C, H, W) float32, normalised.",
    )
    output: str = Field(
        "output",
        description=(
            "Name of its output: (N, labels) logits. Where the graph ends in an activation, the"
            " tensor before that."
        ),
    )
    cam: str | None = Field(
        None,
        description=(
            "Name of its output of class activation maps, (N, labels, h, w); absent: it has none."
        ),
    )

    @model_validator(mode="after")
    def _one_origin(self) -> WeightsTable:
        if not self.members:
            _check_origin(self.seed, self.file, self.sha256)
        elif (self.seed, self.file, self.sha256) != (None, None, None):
            raise ValueError("members bring their own weights: remove seed, file and sha256")
        if (len(self.members) > 1) != (self.rule is not None) or len(self.members) == 1:
            raise ValueError(
                "an ensemble has two members or more, and a rule; one network has neither"
            )
        return self

    @property
    def is_trained(self) -> bool:
        """Whether every weight comes from a file."""
        return self.seed is None and all(member.seed is None for member in self.members)

    @property
    def member_names(self) -> tuple[str, ...]:
        """The names of an ensemble's networks, in the order of their numbers."""
        return tuple(
            member.name or f"member_{number}" for number, member in enumerate(self.members, start=1)
        )

    @property
    def files(self) -> tuple[str, ...]:
        """The names of all weights files."""
        return tuple(
            file
            for file in (self.file, *(member.file for member in self.members))
            if file is not None
        )


def _check_origin(seed: int | None, file: str | None, sha256: str | None) -> None:
    if (seed is None) == (file is None):
        raise ValueError("give either seed (untrained) or file and sha256")
    if (file is None) != (sha256 is None):
        raise ValueError("file and sha256 go together: a name alone does not say which weights")


class EngineTable(StrictTable):
    """The engine and its exactness.

    Both are pinned: two hosts must not give two numbers under one name.
    """

    name: Literal["openvino", "onnxruntime"] = Field(
        description="The engine of the embedded profile."
    )
    precision: Literal["f32", "bf16", "int8"] = Field(
        "f32",
        description=(
            "`bf16`: openvino, on CPUs that have it; not faster on all of those. "
            "`int8`: onnxruntime, with an onnx file that was quantised."
        ),
    )
    optimisation: Literal["all", "extended", "basic", "disabled"] = Field(
        "all",
        description=(
            "Graph optimisation of onnxruntime; quantised networks may give other numbers at each"
            " level."
        ),
    )
    tolerance: float | None = Field(
        None,
        gt=0,
        description=(
            "Largest difference of a logit that canary and golden cases may show. Absent: by"
            " precision."
        ),
    )

    @model_validator(mode="after")
    def _possible(self) -> EngineTable:
        if self.precision == "bf16" and self.name != "openvino":
            raise ValueError("bf16 runs on openvino only")
        if self.precision == "int8" and self.name != "onnxruntime":
            raise ValueError("int8 runs on onnxruntime only")
        if self.optimisation != "all" and self.name != "onnxruntime":
            raise ValueError("optimisation is a setting of onnxruntime")
        return self


class StudyTable(StrictTable):
    """From images to a study."""

    aggregation: Literal["max", "mean", "first_frontal"] = Field(
        "max",
        description=(
            "Over the images of a study: the highest score of each label, the mean, or the first PA"
            " or AP image alone."
        ),
    )


class QuantisationTable(StrictTable):
    """The limits that an int8 release of `hilum models quantise` must keep."""

    maximum_score_difference: float = Field(
        gt=0, lt=1, description="Largest change of a score on any case."
    )
    maximum_auc_drop: float = Field(
        0.005,
        ge=0,
        lt=1,
        description="Largest fall of a label's area under the ROC curve, where cases have labels.",
    )


class ManifestTable(StrictTable):
    """The keys before the first table of the file."""

    format: Literal[1] = Field(description="Of this file.")
    name: ReleaseName = Field(description="Of the release; the folder is `name@version`.")
    version: ReleaseVersion = Field(
        description="Of the release. Other numbers are another version."
    )
    task: Literal["classification", "zero_shot"] = Field(
        "classification",
        description=(
            "Task of the network: one number for each label. `zero_shot`: the labels come from"
            " `prompts`, docs/models/zero_shot.md."
        ),
    )
    manufacturer: Named = Field(
        description=(
            "Maker of the weights; in every report. At most 64 characters, without a backslash."
        )
    )
    intended_use: Paragraph = Field(
        description="The purpose and the users of the release; in every report."
    )
    licence: Paragraph = Field(description="Of the weights.")
    source: Paragraph = Field(
        description="Source of the weights, so that another person finds the same file."
    )
    citation: Paragraph | None = Field(None, description="The publication to cite.")
    labels: tuple[LabelTable, ...] = Field(
        min_length=1, description="One for each output, in the order of the outputs."
    )
    model: ModelTable = Field(description="The network and how its outputs are read.")
    weights: WeightsTable = Field(description="Where the numbers come from.")
    prompts: PromptsTable | None = Field(
        None, description="The prompts of a zero-shot release; no other has them."
    )
    input: Mapping[str, Any] = Field(
        description=(
            "A recipe by name (docs/models/recipes.md), with a `population` if you like, or a whole"
            " InputSpec (docs/models/input_spec.md)."
        )
    )
    engine: EngineTable = Field(description="The engine, and its precision.")
    study: StudyTable = Field(StudyTable(), description="From images to a study.")
    operating_points: OperatingPointsTable | None = Field(
        None, description="Where the operating points come from."
    )
    calibration: CalibrationTable | None = Field(
        None, description="From logits to probabilities; absent: uncalibrated."
    )
    golden: tuple[GoldenTable, ...] = Field((), description="Cases with known answers.")
    quantisation: QuantisationTable | None = Field(
        None, description="Limits of an int8 release made from this one."
    )
