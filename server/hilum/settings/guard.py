"""Settings of the doubts about an image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from hilum.dicom.text import Named
from hilum.settings.fields import Section
from hilum_preprocessing.guard.doubts import REFUSED_TOGETHER

_FLAGS_OF_PIXELS = Literal[
    "low_contrast", "few_levels", "saturated", "asymmetric", "looks_inverted", "unusual_aspect"
]


_FLAGS_OF_HEADER = Literal[
    "body_part_unknown", "view_unknown", "age_unknown", "picture_file", "burned_in_text"
]


_FLAGS_OF_LEVELS = Literal[
    "voi_unusable",
    "voi_doubtful",
    "lut_corrected",
    "lut_doubtful",
    "padding_unusable",
    "polarity_doubtful",
]


_FLAGS_OF_ORIENTATION = Literal[
    "orientation_upside_down", "orientation_mirrored", "orientation_turned", "orientation_lateral"
]


RefusedFlag = Literal[_FLAGS_OF_PIXELS, _FLAGS_OF_LEVELS, _FLAGS_OF_ORIENTATION, _FLAGS_OF_HEADER]
"""What `guard.refuses` may name. The others are no doubts about what a model would see."""


class Guard(Section):
    """Limits of a usual frontal chest radiograph, and the doubts that mean no finding.

    Other doubts are flags on the result.
    """

    span_at_least: float = Field(
        0.05,
        ge=0,
        le=1,
        description=(
            "Share of the nominal range between 1st and 99th percentile; less: low_contrast."
        ),
    )
    entropy_at_least: float = Field(
        4.5, ge=0, le=6, description="Bits of entropy of the levels in 64 steps; less: few_levels."
    )
    saturation_at_most: float = Field(
        0.3,
        ge=0,
        le=1,
        description="Share of pixels at an end of the nominal range; more: saturated.",
    )
    symmetry_at_least: float = Field(
        0.0, ge=-1, le=1, description="Correlation with the mirror image; less: asymmetric."
    )
    spine_contrast_at_least: float = Field(
        -0.03,
        ge=-1,
        le=1,
        description=(
            "How much brighter the spine is than the lungs beside it; less: looks_inverted. Nothing"
            " is inverted."
        ),
    )
    aspect_at_least: float = Field(
        0.6, gt=0, description="Rows over columns; less: unusual_aspect."
    )
    aspect_at_most: float = Field(1.6, gt=0, description="Rows over columns; more: unusual_aspect.")
    refuses: tuple[RefusedFlag, ...] = Field(
        (),
        description=(
            "Flags whose images are not analysed (implausible_pixels). Look at your own flags for a"
            " while first."
        ),
    )
    refuses_together: tuple[tuple[RefusedFlag, ...], ...] = Field(
        REFUSED_TOGETHER,  # type: ignore[arg-type]  # they are words of RefusedFlag: a test compares them
        description=(
            "Combinations of flags whose images are not analysed (implausible_pixels). An empty"
            " list analyses them all, with their flags."
        ),
    )
    chest_words: tuple[Named, ...] = Field(
        (),
        description=(
            "Words or phrases of your senders' Body Part Examined and descriptions that mean the"
            " chest. They come before the built-in ones. Case, accents, digits and punctuation make"
            " no difference."
        ),
    )
    other_body_part_words: tuple[Named, ...] = Field(
        (), description="The same for other body parts: not_chest."
    )

    @model_validator(mode="after")
    def _some_aspect_is_usual(self) -> Guard:
        if self.aspect_at_least > self.aspect_at_most:
            raise ValueError("aspect_at_least is above aspect_at_most: no image would be usual")
        return self

    @property
    def limits(self) -> Mapping[str, float]:
        """The limits of the pixel statistics, by name."""
        return self.model_dump(
            exclude={"refuses", "refuses_together", "chest_words", "other_body_part_words"}
        )

    @property
    def site_words(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Words for the chest, and for other body parts."""
        return self.chest_words, self.other_body_part_words
