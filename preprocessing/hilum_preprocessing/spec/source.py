"""From stored values to the values that a recipe's own operations see, as data.

The steps of PS3.3 C.11, and the choices at each of them. Torch-free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hilum_preprocessing.header.luts import Function
from hilum_preprocessing.spec import fields
from hilum_preprocessing.spec.fields import one_of, read_by


@dataclass(frozen=True, slots=True)
class FixedWindow:
    """A window of the recipe's own, for values after the modality LUT."""

    centre: float = read_by(fields.number, meaning="window centre, after the modality LUT")
    width: float = read_by(fields.positive_number, meaning="window width; LINEAR needs at least 1")
    # Read_by makes a dataclass field.
    function: Function = read_by(  # noqa: RUF009
        one_of("LINEAR", "LINEAR_EXACT", "SIGMOID"), "LINEAR", "PS3.3 C.11.2.1.2 and C.11.2.1.3"
    )


@dataclass(frozen=True, slots=True)
class Source:
    """The order is PS3.3 C.11's: mask and sign, modality LUT, VOI, polarity.

    Colour, frames and pixel aspect come before it.

    Overlays are always dropped, and bits beyond Bits Stored judged (decoding.md). Presentation LUT
    Shape is not read unless
    `presentation_lut` says so: in
    the DX IOD it only repeats Photometric Interpretation (PS3.3 C.8.11.3), and reading both would
    invert twice.
    """

    modality_lut: Literal["apply", "ignore"] = read_by(
        one_of("apply", "ignore"), "apply", "Rescale Slope and Intercept, or the table"
    )
    voi: Literal["none", "first_window", "window_index", "explanation", "lut_sequence", "fixed"] = (
        read_by(
            one_of("none", "first_window", "window_index", "explanation", "lut_sequence", "fixed"),
            "none",
            "which window or table is applied",
        )
    )
    window_index: int = read_by(
        fields.index, 0, "with `voi` window_index: which of several windows, from 0", is_later=True
    )
    window_explanation: str = read_by(
        fields.text,
        "",
        "with `voi` explanation: the Window Center & Width Explanation, in any case",
        is_later=True,
    )
    fixed_window: FixedWindow | None = read_by(  # noqa: RUF009 - as above
        fields.optional(fields.section(FixedWindow)),
        None,
        "with `voi` fixed: the window",
        is_later=True,
    )
    voi_prefer: Literal["lut", "window", "window_only"] = read_by(
        one_of("lut", "window", "window_only"),
        "lut",
        "where the object has both a window and a table; window_only: a table is no substitute",
    )
    missing_voi: Literal["identity", "minmax", "reject"] = read_by(
        one_of("identity", "minmax", "reject"),
        "identity",
        "where there is none that is usable: go on, take the picture's own range, refuse",
    )
    window_output: Literal["bits", "modality_range"] = read_by(
        one_of("bits", "modality_range"),
        "bits",
        "the range that a window maps to: 0..2^BitsStored - 1, or as pydicom's apply_windowing the"
        " range of the modality LUT's output",
        is_later=True,
    )
    presentation_lut: Literal["ignore", "honour"] = read_by(
        one_of("ignore", "honour"),
        "ignore",
        "whether Presentation LUT Shape decides the polarity where it stands",
        is_later=True,
    )
    monochrome1: Literal["invert", "invert_after_uint8", "ignore", "reject"] = read_by(
        one_of("invert", "invert_after_uint8", "ignore", "reject"),
        "invert",
        "before the first intensity operation, or 255 - x after to_uint8",
    )
    monochrome1_about: Literal["nominal", "image_maximum", "two_to_bits"] = read_by(
        one_of("nominal", "image_maximum", "two_to_bits"),
        "nominal",
        "with `monochrome1` invert: low + high - x of the nominal range, the picture's maximum - x,"
        " or 2^BitsStored - x",
        is_later=True,
    )
    padding: Literal["exclude_from_stats", "replace_min", "keep"] = read_by(
        one_of("exclude_from_stats", "replace_min", "keep"),
        "exclude_from_stats",
        "pixels of Pixel Padding Value: left out of statistics, shown as the darkest of the"
        " picture, or like all others",
    )
    rgb: Literal["reject", "luma", "first_channel"] = read_by(
        one_of("reject", "luma", "first_channel"), "reject", "colour objects", is_later=True
    )
    frames: Literal["reject", "first"] = read_by(
        one_of("reject", "first"), "reject", "objects of several frames", is_later=True
    )
    pixel_aspect: Literal["ignore", "resample", "reject_if_not_square"] = read_by(
        one_of("ignore", "resample", "reject_if_not_square"),
        "ignore",
        "pixels that are not square within half a percent",
        is_later=True,
    )
    orientation: Literal["as_stored", "patient"] = read_by(
        one_of("as_stored", "patient"),
        "as_stored",
        "patient: a frontal view that Patient Orientation says is mirrored, upside down or on its"
        " side is turned to L\\F",
        is_later=True,
    )
    allow_reduced_decode: Literal[0, "auto"] = read_by(
        fields.word_or(fields.number_of(0), "auto"),
        0,
        "whether wavelet codestreams may be decoded at a lower resolution",
        is_later=True,
    )
