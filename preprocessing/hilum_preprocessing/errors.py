"""Errors: of an image (`NotAnalysable`), or of a specification (`SpecError`).

Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """Why an image has no input tensor.

    The values are part of the interface: servers store and count them.
    """

    WRONG_MODALITY = "wrong_modality"
    NOT_FOR_PRESENTATION = "not_for_presentation"
    NOT_CHEST = "not_chest"
    LATERAL_NOT_SUPPORTED = "lateral_not_supported"
    CHILD = "child"
    NOT_MONOCHROME = "not_monochrome"
    MULTI_FRAME = "multi_frame"
    NO_PIXEL_DATA = "no_pixel_data"
    TRUNCATED_PIXEL_DATA = "truncated_pixel_data"
    EXCESS_PIXEL_DATA = "excess_pixel_data"
    UNDECODABLE = "undecodable"
    CODESTREAM_MISMATCH = "codestream_mismatch"
    DEPTH_CONTRADICTED = "depth_contradicted"
    TRANSFER_SYNTAX_NOT_SUPPORTED = "transfer_syntax_not_supported"
    CORRUPT_HEADER = "corrupt_header"
    TOO_LARGE = "too_large"
    CONSTANT_IMAGE = "constant_image"
    UNSUPPORTED_PIXEL_FORMAT = "unsupported_pixel_format"
    IMPLAUSIBLE_PIXELS = "implausible_pixels"


class Flag(StrEnum):
    """Doubts about an image that was analysed all the same, for a reader of the result.

    Each has its sentence in `_FLAG_MEANING`, which reports show.
    """

    LOSSY = "lossy_compressed"
    HIGH_BITS_CLEARED = "high_bits_cleared"
    VOI_UNUSABLE = "voi_unusable"
    VOI_DOUBTFUL = "voi_doubtful"
    LUT_CORRECTED = "lut_corrected"
    LUT_DOUBTFUL = "lut_doubtful"
    PADDING_UNUSABLE = "padding_unusable"
    POLARITY_DOUBTFUL = "polarity_doubtful"
    ORIENTATION_UPSIDE_DOWN = "orientation_upside_down"
    ORIENTATION_MIRRORED = "orientation_mirrored"
    ORIENTATION_TURNED = "orientation_turned"
    ORIENTATION_LATERAL = "orientation_lateral"
    ORIENTATION_CORRECTED = "orientation_corrected"
    VALUES_CLAMPED = "values_clamped"
    BITS_STORED_DOUBTFUL = "bits_stored_doubtful"
    VIEW_UNKNOWN = "view_unknown"
    BODY_PART_UNKNOWN = "body_part_unknown"
    AGE_UNKNOWN = "age_unknown"
    BURNED_IN_TEXT = "burned_in_text"
    LOW_CONTRAST = "low_contrast"
    FEW_LEVELS = "few_levels"
    SATURATED = "saturated"
    ASYMMETRIC = "asymmetric"
    LOOKS_INVERTED = "looks_inverted"
    UNUSUAL_ASPECT = "unusual_aspect"
    REDUCED_DECODE = "reduced_decode"

    @property
    def meaning(self) -> str:
        """One sentence or two for a radiologist, without patient data."""
        return _FLAG_MEANING[self]


_FLAG_MEANING: Final[Mapping[Flag, str]] = {
    Flag.LOSSY: "The image was compressed with loss; fine detail may be missing.",
    Flag.HIGH_BITS_CLEARED: (
        "Bits beside the gray values were removed, such as an overlay; check that the image is"
        " intact."
    ),
    Flag.VOI_UNUSABLE: (
        "The window of the image cannot be used, so its contrast may differ from that on a"
        " workstation."
    ),
    Flag.VOI_DOUBTFUL: (
        "The window of the image leaves it hardly any contrast; the image may have been read too"
        " dark or too bright."
    ),
    Flag.LUT_CORRECTED: (
        "A gray value table was described or stored wrongly; its own values were followed."
    ),
    Flag.LUT_DOUBTFUL: (
        "A gray value table may be one for other pixels; the image may have been read too dark or"
        " too bright."
    ),
    Flag.PADDING_UNUSABLE: (
        "The header's value for the border cannot be used, so the border counted as part of the"
        " image."
    ),
    Flag.POLARITY_DOUBTFUL: (
        "The header contradicts itself on whether low values are white; the image may have been"
        " read inverted."
    ),
    Flag.ORIENTATION_UPSIDE_DOWN: (
        "The header says that the image is upside down. It was read as it is."
    ),
    Flag.ORIENTATION_MIRRORED: (
        "The header says that the patient's left and right are exchanged. The image was read as"
        " it is."
    ),
    Flag.ORIENTATION_TURNED: (
        "The header says that the image lies on its side. It was read as it is."
    ),
    Flag.ORIENTATION_LATERAL: (
        "The header names a frontal view, and the directions of a view from the side."
    ),
    Flag.ORIENTATION_CORRECTED: (
        "The image was turned upright for the reading, as its header says that it lies otherwise."
    ),
    Flag.VALUES_CLAMPED: (
        "Some gray values lie outside the range that the header states, and were limited to it."
    ),
    Flag.BITS_STORED_DOUBTFUL: (
        "Header and pixels disagree on the number or the place of the bits; the image may have been"
        " read too dark."
    ),
    Flag.VIEW_UNKNOWN: "The view is not stated; the image was read as a frontal one.",
    Flag.BODY_PART_UNKNOWN: (
        "Nothing in the header names the body part; the image was read as a chest radiograph."
    ),
    Flag.AGE_UNKNOWN: (
        "The age of the patient is not known, and the release is not made for every age."
    ),
    Flag.BURNED_IN_TEXT: (
        "The header says that text or marks are burned into the pixels, which may influence the"
        " scores."
    ),
    Flag.LOW_CONTRAST: "The image has little contrast.",
    Flag.FEW_LEVELS: (
        "The image has few gray levels; it may be damaged, a scan, or no radiograph of a chest."
    ),
    Flag.SATURATED: "A large part of the image is plain black or plain white.",
    Flag.ASYMMETRIC: (
        "The two halves of the image differ more than those of a frontal chest radiograph"
        " usually do."
    ),
    Flag.LOOKS_INVERTED: (
        "The image may be inverted: the spine is darker than the lungs. It was read as it is."
    ),
    Flag.UNUSUAL_ASPECT: (
        "The image is unusually wide or unusually tall for a frontal chest radiograph."
    ),
    Flag.REDUCED_DECODE: "The image was decoded at a lower resolution than it was stored in.",
}


def flag_meaning(flag: str) -> str:
    """The sentence of a flag's value; a flag of another version stands for itself."""
    return Flag(flag).meaning if flag in Flag._value2member_map_ else flag


class NotAnalysable(Exception):
    """The image gives no input tensor.

    `reason` is one of `Reason`; `detail` describes the finding, never a patient's data.
    """

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(
            reason, detail
        )  # both: exceptions cross process boundaries by their arguments
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        """`reason: detail`, as a person reads it."""
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value


class SpecError(ValueError):
    """An InputSpec that cannot be loaded.

    Names the field and, for an unknown word, the nearest known one.
    """
