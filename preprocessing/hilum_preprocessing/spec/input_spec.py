"""InputSpec: the demands of a release on pixels, as data to print, compare and version.

Torch-free.

It ends with the wire tensor, (1, height, width) fp16 or uint8. `normalise` describes the next step,
in the model's graph; it stays here because the builder of the graph and a person that checks a
release need it beside the rest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from hilum_preprocessing.errors import SpecError
from hilum_preprocessing.spec import fields
from hilum_preprocessing.spec.checks import check
from hilum_preprocessing.spec.fields import read_by
from hilum_preprocessing.spec.operations import (
    GEOMETRY,
    INTENSITY,
    EqualizeHist,
    GeometryOp,
    IntensityOp,
    ToUint8,
)
from hilum_preprocessing.spec.population import Population
from hilum_preprocessing.spec.recipes import RECIPES
from hilum_preprocessing.spec.source import Source

__all__ = ["ALGORITHM", "InputSpec", "Normalise", "Source", "Target"]

ALGORITHM = "hp1"
"""Generation of the arithmetic. Raise it when the same specification would give other tensors."""


_BESIDE_A_RECIPE = {
    "source.allow_reduced_decode",
    "source.frames",
    "source.orientation",
    "source.pixel_aspect",
    "source.rgb",
}


@dataclass(frozen=True, slots=True)
class Target:
    """The wire tensor: (1, height, width), fp16 or uint8."""

    height: int = read_by(fields.length, meaning="rows")
    width: int = read_by(fields.length, meaning="columns")
    dtype: Literal["fp16", "uint8"] = read_by(
        fields.one_of("fp16", "uint8"),
        meaning="uint8 only where the last step yields whole grey levels",
    )


@dataclass(frozen=True, slots=True)
class Normalise:
    """The step of the graph after the wire tensor: (x - mean) / std on the wire's own scale.

    Then `channels` equal channels. `mean` and `std` hold one value, or one a channel.
    """

    mean: tuple[float, ...] = read_by(
        fields.each(fields.number), (0.0,), "one value, or one a channel, on the wire's own scale"
    )
    std: tuple[float, ...] = read_by(fields.each(fields.positive_number), (1.0,), "the same")
    channels: int = read_by(fields.length, 1, "how many equal channels the architecture takes")


@dataclass(frozen=True, slots=True)
class InputSpec:
    """A whole specification. Make one with `from_mapping`; the constructor checks nothing."""

    target: Target = read_by(fields.section(Target), meaning="the wire tensor")  # noqa: RUF009 - read_by makes a dataclass field
    intensity: tuple[IntensityOp, ...] = read_by(
        fields.operations(INTENSITY), meaning="operations on the value of each pixel, in order"
    )
    geometry: tuple[GeometryOp, ...] = read_by(
        fields.operations(GEOMETRY), meaning="operations on the picture, in order"
    )
    views: Literal["any", "frontal_only"] = read_by(
        fields.one_of("any", "frontal_only"), meaning="whether lateral views are refused"
    )
    # As above, and the default is frozen.
    source: Source = read_by(  # noqa: RUF009
        fields.section(Source), Source(), "from stored values to those that `intensity` sees"
    )
    order: Literal["intensity_first", "resize_first"] = read_by(
        fields.one_of("intensity_first", "resize_first"),
        "intensity_first",
        "whether `intensity` sees the picture before or after `geometry`: statistics and roundings"
        " differ",
        is_later=True,
    )
    picture_entry: Literal["auto"] | int = read_by(
        fields.word_or(fields.index, "auto"),
        "auto",
        "PNG and JPEG files: how many operations of `intensity` made the training's files of 8 bits"
        " of stored values, and are skipped; auto: those up to the first equalize_hist, or none",
        is_later=True,
    )
    # As above.
    normalise: Normalise = read_by(  # noqa: RUF009
        fields.section(Normalise), Normalise(), "what the model's graph does with the wire tensor"
    )
    presentation_intent: Literal["for_presentation", "any"] = read_by(
        fields.one_of("for_presentation", "any"),
        "for_presentation",
        "whether images FOR PROCESSING are refused",
    )
    # As above.
    population: Population = read_by(  # noqa: RUF009
        fields.section(Population), Population(), "the patients that a release may read"
    )
    cites: str = read_by(fields.text, "", "where all this comes from")

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> Self:
        """From `{"recipe": name}` or from all the fields.

        With a recipe, fields that choose the objects may stand beside it. Raises SpecError, naming
        the field and the nearest known word.
        """
        spec = fields.build(cls, _resolve_recipe(given), "input_spec", also=("recipe",))
        check(spec)
        return spec

    def to_mapping(self) -> dict[str, Any]:
        """All fields, defaults included, as plain values.

        `from_mapping` gives an equal specification.
        """
        mapping: dict[str, Any] = fields.plain(self)
        return mapping

    @property
    def version(self) -> str:
        """`hp1-<8 hex>`: equal for specifications that give equal tensors, in any spelling."""
        mapping = fields.plain(self, for_version=True)
        del mapping["cites"], mapping["population"]
        digest = hashlib.sha256(json.dumps(mapping, sort_keys=True).encode()).hexdigest()
        return f"{ALGORITHM}-{digest[:8]}"

    @property
    def wire_shape(self) -> tuple[int, int, int]:
        """(1, height, width) of the wire tensor."""
        return (1, self.target.height, self.target.width)

    @property
    def wire_dtype(self) -> Literal["fp16", "uint8"]:
        """Type of the wire tensor."""
        return self.target.dtype

    @property
    def model_channels(self) -> int:
        """Channels that the architecture takes; the graph repeats the one channel of the wire."""
        return self.normalise.channels

    @property
    def is_uint8(self) -> bool:
        """Whether the picture enters the geometry in whole grey levels."""
        return self.order == "intensity_first" and self.ends_in_grey_levels

    @property
    def ends_in_grey_levels(self) -> bool:
        """Whether the intensity operations end with whole numbers of 0..255."""
        return bool(self.intensity) and isinstance(self.intensity[-1], ToUint8 | EqualizeHist)


def _resolve_recipe(given: Mapping[str, Any]) -> Mapping[str, Any]:
    if "recipe" not in fields.mapping(given, "input_spec"):
        return given
    name = str(given["recipe"])
    if name not in RECIPES:
        raise SpecError(
            f"input_spec: unknown recipe {name!r}{fields.nearest(name, sorted(RECIPES))}"
        )
    source = fields.mapping(given.get("source", {}), "input_spec.source")
    _require_recipe_alone(given, source)
    recipe = RECIPES[name]
    population = {"population": given["population"]} if "population" in given else {}
    return {**recipe, **population, "source": {**recipe["source"], **source}}


def _require_recipe_alone(given: Mapping[str, Any], source: Mapping[str, Any]) -> None:
    """Raises SpecError for fields that a recipe has already.

    A release's maker chooses the objects that it takes. The recipe decides about their pixels.
    """
    named = {*given, *(f"source.{field}" for field in source)}
    others = named - {"recipe", "population", "source", *_BESIDE_A_RECIPE}
    if others:
        beside = ", ".join(sorted(_BESIDE_A_RECIPE))
        raise SpecError(
            f"input_spec: a recipe stands alone, but for population and {beside}; write out its"
            f" fields to change {', '.join(sorted(others))}"
        )
