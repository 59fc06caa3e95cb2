"""Contradictions in a specification whose fields are each well written. Torch-free."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hilum_preprocessing.errors import SpecError
from hilum_preprocessing.spec.operations import (
    Clamp,
    EqualizeHist,
    IntensityOp,
    Percentile,
    Range,
    Resize,
    ResizeSide,
    Size,
    ToUint8,
)

if TYPE_CHECKING:
    from hilum_preprocessing.spec.input_spec import InputSpec, Normalise
    from hilum_preprocessing.spec.source import Source

_LARGEST_FP16 = 65504.0


def check(spec: InputSpec) -> None:
    """Raises SpecError, naming the field."""
    _check_population(spec)
    _check_source(spec.source)
    _check_order(spec)
    _check_intervals(spec)
    _check_range(spec)
    _check_grey_levels(spec)
    _check_picture_entry(spec)
    _check_whole_resizes(spec)
    _check_size(spec)
    _check_normalise(spec.normalise)


def _check_population(spec: InputSpec) -> None:
    population = spec.population
    if population.minimum_age_years < 0:
        raise SpecError(
            "input_spec.population.minimum_age_years: expected 0 or more, found"
            f" {population.minimum_age_years:g}"
        )
    if population.minimum_age_years and not population.cites:
        raise SpecError(
            "input_spec.population.cites: say where the minimum age comes from (training data,"
            " intended use)"
        )


def _check_source(source: Source) -> None:
    fixed = source.fixed_window
    if (source.voi == "fixed") != (fixed is not None):
        raise SpecError("input_spec.source.fixed_window: goes with voi fixed, and only with it")
    if fixed is not None and fixed.function == "LINEAR" and fixed.width < 1:
        raise SpecError(
            "input_spec.source.fixed_window.width: LINEAR needs at least 1 (PS3.3 C.11.2.1.2.1)"
        )
    if (source.voi == "explanation") != bool(source.window_explanation):
        raise SpecError(
            "input_spec.source.window_explanation: goes with voi explanation, and only with it"
        )
    if source.window_index and source.voi != "window_index":
        raise SpecError(
            "input_spec.source.window_index: goes with voi window_index, and only with it"
        )
    if source.monochrome1_about != "nominal" and source.monochrome1 != "invert":
        raise SpecError(
            "input_spec.source.monochrome1_about: goes with monochrome1 invert, and only with it"
        )


def _check_order(spec: InputSpec) -> None:
    """After a resize no pixel is known to be padding any more."""
    if spec.order == "resize_first" and spec.source.padding == "exclude_from_stats":
        raise SpecError("input_spec.source.padding: order resize_first needs keep or replace_min")


def _check_intervals(spec: InputSpec) -> None:
    for op in spec.intensity:
        if isinstance(op, Percentile | Clamp) and op.low >= op.high:
            raise SpecError(f"input_spec.intensity: {op.op} needs low below high")


def _check_range(spec: InputSpec) -> None:
    """The wire type can hold all values that the operations can yield.

    Fp16 overflows in silence, uint8 wraps around.
    """
    bounds: Range | None = None
    for op in spec.intensity:
        bounds = op.bounds(bounds)
    if bounds is None or max(abs(end) for end in bounds) > _LARGEST_FP16:
        raise SpecError(
            "input_spec.intensity: values are not bounded within fp16; add maxval of bits, minmax,"
            " clamp or to_uint8"
        )


def _check_grey_levels(spec: InputSpec) -> None:
    before: list[type[IntensityOp]] = [type(op) for op in spec.intensity]
    for earlier, later in pairwise([None, *before]):
        if later is EqualizeHist and earlier not in (ToUint8, EqualizeHist):
            raise SpecError(
                "input_spec.intensity: equalize_hist counts whole grey levels; put to_uint8 right"
                " before it"
            )
    if spec.source.monochrome1 == "invert_after_uint8" and ToUint8 not in before:
        raise SpecError(
            "input_spec.source.monochrome1: invert_after_uint8 needs the intensity op to_uint8"
        )


def _check_picture_entry(spec: InputSpec) -> None:
    entry = spec.picture_entry
    if not isinstance(entry, int) or not entry:
        return
    skipped = spec.intensity[:entry]
    if len(skipped) < entry or not isinstance(skipped[-1], ToUint8 | EqualizeHist):
        raise SpecError(
            "input_spec.picture_entry: counts the operations of intensity up to one that ends in"
            " whole grey levels, to_uint8 or equalize_hist"
        )


def _check_whole_resizes(spec: InputSpec) -> None:
    """Whole grey levels come in, go from resize to resize, and reach a wire type of uint8."""
    whole = [op.compute != "float" for op in spec.geometry if isinstance(op, Resize | ResizeSide)]
    if any(whole) and not spec.is_uint8:
        raise SpecError(
            "input_spec.geometry: compute uint8_rounded needs to_uint8 as the last intensity op,"
            " before the geometry"
        )
    if sorted(whole, reverse=True) != whole:
        raise SpecError(
            "input_spec.geometry: after a resize in float there are no whole grey levels for"
            " uint8_rounded"
        )
    ends_whole = spec.ends_in_grey_levels and (all(whole) or spec.order == "resize_first")
    if spec.target.dtype == "uint8" and not ends_whole:
        raise SpecError(
            "input_spec.target: uint8 needs to_uint8 as the last intensity op and compute"
            " uint8_rounded in every resize"
        )


def _check_size(spec: InputSpec) -> None:
    size: Size = None
    for op in spec.geometry:
        size = op.size_after(size)
    wanted = (spec.target.height, spec.target.width)
    if size != wanted:
        raise SpecError(
            f"input_spec.geometry: ends with {size or 'a size that depends on the image'}, not with"
            f" target {wanted}"
        )


def _check_normalise(normalise: Normalise) -> None:
    for name, values in (("mean", normalise.mean), ("std", normalise.std)):
        if len(values) not in (1, normalise.channels):
            raise SpecError(
                f"input_spec.normalise.{name}: {len(values)} values for {normalise.channels}"
                " channels"
            )
