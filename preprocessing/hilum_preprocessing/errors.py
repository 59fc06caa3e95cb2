"""What can be wrong: with an image (`NotAnalysable`), or with a specification (`SpecError`). Torch-free."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why an image has no input tensor. The values are part of the interface: servers store and count them."""

    WRONG_MODALITY = "wrong_modality"
    NOT_FOR_PRESENTATION = "not_for_presentation"
    NOT_CHEST = "not_chest"
    LATERAL_NOT_SUPPORTED = "lateral_not_supported"
    CHILD = "child"
    NOT_MONOCHROME = "not_monochrome"
    MULTI_FRAME = "multi_frame"
    NO_PIXEL_DATA = "no_pixel_data"
    TRUNCATED_PIXEL_DATA = "truncated_pixel_data"
    UNDECODABLE = "undecodable"
    CODESTREAM_MISMATCH = "codestream_mismatch"
    TRANSFER_SYNTAX_NOT_SUPPORTED = "transfer_syntax_not_supported"
    CORRUPT_HEADER = "corrupt_header"
    TOO_LARGE = "too_large"
    CONSTANT_IMAGE = "constant_image"
    UNSUPPORTED_PIXEL_FORMAT = "unsupported_pixel_format"
    IMPLAUSIBLE_PIXELS = "implausible_pixels"


class Flag(StrEnum):
    """What a reader of the result should know about an image that was analysed all the same."""

    LOSSY = "lossy_compressed"
    HIGH_BITS_CLEARED = "high_bits_cleared"
    VOI_UNUSABLE = "voi_unusable"
    VALUES_CLAMPED = "values_clamped"
    BITS_STORED_DOUBTFUL = "bits_stored_doubtful"
    VIEW_UNKNOWN = "view_unknown"
    AGE_UNKNOWN = "age_unknown"
    BURNED_IN_TEXT = "burned_in_text"
    LOW_CONTRAST = "low_contrast"
    FEW_LEVELS = "few_levels"
    SATURATED = "saturated"
    ASYMMETRIC = "asymmetric"
    LOOKS_INVERTED = "looks_inverted"
    UNUSUAL_ASPECT = "unusual_aspect"
    REDUCED_DECODE = "reduced_decode"


class NotAnalysable(Exception):
    """The image gives no input tensor. `reason` is one of `Reason`; `detail` says what was seen, never a patient's data."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(reason, detail)  # both: exceptions cross process boundaries by their arguments
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        """`reason: detail`, as a person reads it."""
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value


class SpecError(ValueError):
    """An InputSpec that cannot be loaded: names the field and, for an unknown word, the nearest known one."""
