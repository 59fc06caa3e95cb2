"""The tables of a manifest that give numbers their meaning.

Labels, operating points, calibration, golden cases.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from hilum.dicom.text import Line, Paragraph

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
FileName = Annotated[str, Field(pattern=r"^[\w.+-]+$")]
ReleaseName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
ReleaseVersion = Annotated[str, Field(pattern=r"^[0-9A-Za-z]+(\.[0-9A-Za-z]+)*$", max_length=16)]
Share = Annotated[float, Field(ge=0, le=1)]


class StrictTable(BaseModel):
    """A table of a manifest, in which unknown keys and TOML's inf and nan are refused.

    No limit would hold against inf and nan.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class LabelTable(StrictTable):
    """One output, in the order of the outputs.

    An output without `concept` and `private` has no name, and must be masked.
    """

    concept: str | None = Field(None, description="Key of a concept in docs/models/terminology.md.")
    private: str | None = Field(
        None,
        pattern=r"^[A-Z][A-Z0-9_]{0,15}$",
        description=(
            "Code value in the private scheme 99HILUM, where no concept has the meaning;"
            " `text` goes with it. Its key is the same in small letters."
        ),
    )
    text: Line | None = Field(
        None,
        description=(
            "Words in reports, where the concept's own do not fit: a line of at most 64 characters."
        ),
    )
    operating_point: float | Literal["none"] | None = Field(
        None,
        description=(
            "The finding is present at this score and above. A trained release must give it for"
            ' every label that may be asserted, or say `"none"`: scored, never decided.'
        ),
    )
    is_masked: bool = Field(
        default=False,
        description=(
            "The output is computed and never shown: untrained, unnamed, or known to be bad."
        ),
    )
    rescaled_at: float | None = Field(
        None,
        gt=0,
        lt=1,
        description=(
            "Scores are bent so that this one becomes 0.5, in two straight lines through 0 and 1"
            " (torchxrayvision's `op_threshs`); `operating_point` is on the bent scale. Goes with"
            " the activation sigmoid."
        ),
    )

    @model_validator(mode="after")
    def _one_meaning(self) -> LabelTable:
        if self.concept and self.private:
            raise ValueError("give either concept or private")
        if not (self.concept or self.private or self.is_masked):
            raise ValueError(
                "give concept or private; an output without a name takes is_masked = true"
            )
        if self.private and not self.text:
            raise ValueError("a private label needs its text")
        return self

    def key(self, index: int) -> str:
        """Return the key of the finding: the concept's, the private code's, or `output_<index>`."""
        return self.concept or (self.private or f"output_{index}").lower()


class OperatingPointsTable(StrictTable):
    """The origin of the operating points. Required as soon as a label has one."""

    measured_on: Paragraph = Field(
        description="The cases on which they were chosen; say so when there were none."
    )
    criterion: Paragraph = Field(
        description="By which rule: Youden's J, sensitivity 0.95, PPV 0.8, a convention …"
    )


def _rising_slope(a: float) -> float:
    if a <= 0:
        sign = "Platt's own A and scikit-learn's a_ have the other sign: a = -A, b = -B"
        raise ValueError(
            f"must be above 0: a higher logit may not mean a lower probability. {sign}"
        )
    return a


Slope = Annotated[float, AfterValidator(_rising_slope)]


class PlattTable(StrictTable):
    """probability = sigmoid(a * logit + b).

    Platt's own A and B (1999), scikit-learn's `a_` and `b_`, have the other sign.
    """

    a: Slope = Field(description="Slope, above 0: -A of Platt's.")
    b: float = Field(description="Offset: -B of Platt's.")


Points = tuple[tuple[float, Share], ...]


class CalibrationTable(StrictTable):
    """From logits to probabilities, and the cases on which that was measured.

    Without this table no number is called a probability.
    """

    method: Literal["temperature", "platt", "isotonic"] = Field(
        description=(
            "`temperature`: one for all labels (Guo et al. 2017). `platt`: sigmoid(a * logit + b)"
            " (Platt 1999, whose A and B are -a and -b). `isotonic`: a monotone line through points"
            " (Zadrozny and Elkan 2002)."
        )
    )
    measured_on: Paragraph = Field(description="The cases on which it was fitted.")
    temperature: float | None = Field(
        None, gt=0, description="Logits are divided by it before the activation."
    )
    a: Slope | None = Field(None, description="Slope for every label without its own, above 0.")
    b: float | None = Field(None, description="Offset for every label without its own.")
    labels: Mapping[str, PlattTable] | None = Field(
        None, description="Slope and offset by label: `{ pneumothorax = { a = 1.2, b = -0.3 } }`."
    )
    points: Mapping[str, Points] | None = Field(
        None,
        description=(
            "Pairs of score and probability by label, both rising: `{ pneumothorax = [[0.1, 0.02],"
            " [0.6, 0.4]] }`. Straight lines between, the end values beyond, as scikit-learn's"
            " IsotonicRegression with `out_of_bounds` clip gives them."
        ),
    )

    @model_validator(mode="after")
    def _whole(self) -> CalibrationTable:
        fields = ("temperature", "a", "b", "labels", "points")
        given = {name for name in fields if getattr(self, name) is not None}
        if not given or given - _TAKES[self.method]:
            raise ValueError(f"method {self.method} takes {_SHAPES[self.method]}")
        if (self.a is None) != (self.b is None):
            raise ValueError(f"method platt takes {_SHAPES['platt']}")
        for name, points in (self.points or {}).items():
            if problem := _rising(points):
                raise ValueError(f"points of {name}: {problem}")
        return self


_TAKES: Mapping[str, set[str]] = {
    "temperature": {"temperature"},
    "platt": {"a", "b", "labels"},
    "isotonic": {"points"},
}
_SHAPES: Mapping[str, str] = {
    "temperature": "temperature and nothing else",
    "platt": "a and b for all labels, or labels = { concept = { a, b } }",
    "isotonic": "points = { concept = [[score, probability], …] } and nothing else",
}


def _rising(points: Points) -> str | None:
    """Return why this is no monotone line, or None."""
    if len(points) < 2:
        return "a line has two points at least"
    if any(left[0] >= right[0] for left, right in pairwise(points)):
        return "scores must rise from point to point"
    if any(left[1] > right[1] for left, right in pairwise(points)):
        return "probabilities must not fall: a higher score may not mean a lower probability"
    return None


class GoldenTable(StrictTable):
    """A case with a known answer.

    It is checked when the release is built, when it is loaded, and by `hilum models check --run`.
    """

    file: FileName = Field(
        description=(
            "Beside the manifest: a DICOM file (.dcm), prepared as any image is, or the wire tensor"
            " of one image (.npy), as `hilum prepare` writes it."
        )
    )
    sha256: Sha256 = Field(description="Of the file.")
    logits: tuple[float, ...] | Mapping[str, float] | None = Field(
        None,
        description=(
            "All of them in the order of the labels, or some by label: `{ pneumothorax = -1.25 }`."
        ),
    )
    scores: tuple[float, ...] | Mapping[str, float] | None = Field(
        None, description="The same for scores, after activation and rescaling."
    )
    tolerance: float = Field(gt=0, description="Largest difference that may be.")

    @model_validator(mode="after")
    def _one_answer(self) -> GoldenTable:
        if (self.logits is None) == (self.scores is None):
            raise ValueError("give either logits or scores")
        if not self.file.endswith((".dcm", ".npy")):
            raise ValueError("file must end in .dcm or .npy")
        return self
