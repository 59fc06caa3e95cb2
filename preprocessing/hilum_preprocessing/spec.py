"""InputSpec: what a release demands of pixels, as data that can be printed, compared and versioned. Torch-free.

It ends with the wire tensor, (1, height, width) fp16 or uint8. `normalise` says what the model's graph does after that; it
stays here because the builder of the graph and a person who checks a release need it beside the rest.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from hilum_preprocessing import fields
from hilum_preprocessing.errors import SpecError
from hilum_preprocessing.fields import read_by
from hilum_preprocessing.operations import GEOMETRY, INTENSITY, GeometryOp, IntensityOp, Range, Resize, Size, ToUint8
from hilum_preprocessing.population import Population
from hilum_preprocessing.recipes import RECIPES

ALGORITHM = "hp1"
"""Generation of the arithmetic. Raise it when the same specification would give other tensors."""

_LARGEST_FP16 = 65504.0


@dataclass(frozen=True, slots=True)
class Source:
    """From stored values to the values that the intensity operations see, in the order of PS3.3 C.11.

    `voi` none | first_window | lut_sequence. With first_window and both present, `voi_prefer` decides. `missing_voi`: what to
    do when the object holds none that is usable. `monochrome1` invert: before the first intensity operation, within the nominal
    range; invert_after_uint8: 255 - x. Presentation LUT Shape is not read: in the DX IOD it only repeats Photometric
    Interpretation (PS3.3 C.8.11.3), and reading both would invert twice.
    """

    modality_lut: Literal["apply", "ignore"] = read_by(fields.one_of("apply", "ignore"), "apply")
    voi: Literal["none", "first_window", "lut_sequence"] = read_by(fields.one_of("none", "first_window", "lut_sequence"), "none")
    voi_prefer: Literal["lut", "window"] = read_by(fields.one_of("lut", "window"), "lut")
    missing_voi: Literal["identity", "reject"] = read_by(fields.one_of("identity", "reject"), "identity")
    monochrome1: Literal["invert", "invert_after_uint8", "ignore", "reject"] = read_by(
        fields.one_of("invert", "invert_after_uint8", "ignore", "reject"), "invert"
    )
    padding: Literal["exclude_from_stats", "keep"] = read_by(fields.one_of("exclude_from_stats", "keep"), "exclude_from_stats")


@dataclass(frozen=True, slots=True)
class Target:
    """The wire tensor: (1, height, width), fp16 or uint8."""

    height: int = read_by(fields.length)
    width: int = read_by(fields.length)
    dtype: Literal["fp16", "uint8"] = read_by(fields.one_of("fp16", "uint8"))


@dataclass(frozen=True, slots=True)
class Normalise:
    """What the graph does with the wire tensor: (x - mean) / std on the wire's own scale, then `channels` equal channels.

    `mean` and `std` hold one value, or one a channel.
    """

    mean: tuple[float, ...] = read_by(fields.each(fields.number), (0.0,))
    std: tuple[float, ...] = read_by(fields.each(fields.positive_number), (1.0,))
    channels: int = read_by(fields.length, 1)


@dataclass(frozen=True, slots=True)
class InputSpec:
    """A whole specification. Make one with `from_mapping`; the constructor checks nothing."""

    target: Target = read_by(fields.section(Target))  # noqa: RUF009 - read_by makes a dataclass field
    intensity: tuple[IntensityOp, ...] = read_by(fields.operations(INTENSITY))
    geometry: tuple[GeometryOp, ...] = read_by(fields.operations(GEOMETRY))
    views: Literal["any", "frontal_only"] = read_by(fields.one_of("any", "frontal_only"))
    source: Source = read_by(fields.section(Source), Source())  # noqa: RUF009 - as above, and the default is frozen
    normalise: Normalise = read_by(fields.section(Normalise), Normalise())  # noqa: RUF009 - as above
    presentation_intent: Literal["for_presentation", "any"] = read_by(fields.one_of("for_presentation", "any"), "for_presentation")
    population: Population = read_by(fields.section(Population), Population())  # noqa: RUF009 - as above
    cites: str = read_by(fields.text, "")

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> Self:
        """From `{"recipe": name}`, with or without a `population`, or from all the fields.

        Raises SpecError, naming the field and the nearest known word.
        """
        spec = fields.build(cls, _resolve_recipe(given), "input_spec")
        _check_population(spec.population)
        _check_values(spec)
        _check_size(spec)
        _check_normalise(spec.normalise)
        return spec

    def to_mapping(self) -> dict[str, Any]:
        """All fields, defaults included, as plain values: `from_mapping` gives an equal specification."""
        plain = dataclasses.asdict(self)
        for kind in ("intensity", "geometry"):
            plain[kind] = [{"op": op.op, **dataclasses.asdict(op)} for op in getattr(self, kind)]
        return plain

    @property
    def version(self) -> str:
        """`hp1-<8 hex>`: equal for specifications that give equal tensors, however they were written."""
        plain = self.to_mapping()
        del plain["cites"], plain["population"]
        return f"{ALGORITHM}-{hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:8]}"

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
        """Whether the intensity operations end with whole grey levels."""
        return bool(self.intensity) and isinstance(self.intensity[-1], ToUint8)


def _resolve_recipe(given: Mapping[str, Any]) -> Mapping[str, Any]:
    if "recipe" not in fields.mapping(given, "input_spec"):
        return given
    name = str(given["recipe"])
    if name not in RECIPES:
        raise SpecError(f"input_spec: unknown recipe {name!r}{fields.nearest(name, RECIPES)}")
    # Whom a release may read is its maker's to say; what is done to pixels is the recipe's.
    if others := sorted(set(given) - {"recipe", "population"}):
        raise SpecError(f"input_spec: a recipe stands alone, but for population; write out its fields to change {', '.join(others)}")
    return {**RECIPES[name], **{key: value for key, value in given.items() if key == "population"}}


def _check_population(population: Population) -> None:
    if population.minimum_age_years < 0:
        raise SpecError(f"input_spec.population.minimum_age_years: expected 0 or more, found {population.minimum_age_years:g}")
    if population.minimum_age_years and not population.cites:
        raise SpecError("input_spec.population.cites: say where the minimum age comes from (training data, intended use)")


def _check_values(spec: InputSpec) -> None:
    """The wire type can hold what the operations can yield: fp16 overflows in silence, uint8 wraps around."""
    bounds: Range | None = None
    for op in spec.intensity:
        bounds = op.bounds(bounds)
    if bounds is None or max(abs(end) for end in bounds) > _LARGEST_FP16:
        raise SpecError("input_spec.intensity: values are not bounded within fp16; add maxval of bits, minmax, clamp or to_uint8")
    rounded = [op.compute == "uint8_rounded" for op in spec.geometry if isinstance(op, Resize)]
    if any(rounded) and not spec.is_uint8:
        raise SpecError("input_spec.geometry: compute uint8_rounded needs to_uint8 as the last intensity op")
    if spec.target.dtype == "uint8" and not (spec.is_uint8 and all(rounded)):
        raise SpecError("input_spec.target: uint8 needs to_uint8 as the last intensity op and compute uint8_rounded in every resize")
    if spec.source.monochrome1 == "invert_after_uint8" and not any(isinstance(op, ToUint8) for op in spec.intensity):
        raise SpecError("input_spec.source.monochrome1: invert_after_uint8 needs the intensity op to_uint8")


def _check_size(spec: InputSpec) -> None:
    size: Size = None
    for op in spec.geometry:
        size = op.size_after(size)
    if size != (spec.target.height, spec.target.width):
        raise SpecError(
            f"input_spec.geometry: ends with {size or 'a size that depends on the image'}, not with target {spec.wire_shape[1:]}"
        )


def _check_normalise(normalise: Normalise) -> None:
    for name, values in (("mean", normalise.mean), ("std", normalise.std)):
        if len(values) not in (1, normalise.channels):
            raise SpecError(f"input_spec.normalise.{name}: {len(values)} values for {normalise.channels} channels")
