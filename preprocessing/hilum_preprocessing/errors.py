"""Errors: of an image (`NotAnalysable`), or of a specification (`SpecError`).

Torch-free.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Explained(StrEnum):
    """A closed list of words, each with its sentence for a person, without patient data.

    It has no members, so that the lists of other packages can be made from it.
    """

    _value_: str
    meaning: str

    def __new__(cls, value: str, *_row: object) -> Self:
        """Make a member from its row."""
        member = str.__new__(cls, value)
        member._value_ = value
        return member

    def __init__(self, _value: str, meaning: str = "") -> None:
        self.meaning = meaning


class ReasonBase(Explained):
    """A closed list of reasons.

    `is_out_of_scope`: the image has no fault, and the release was not made for it.
    """

    is_out_of_scope: bool

    def __init__(self, value: str, meaning: str = "", is_out_of_scope: bool = False) -> None:
        super().__init__(value, meaning)
        self.is_out_of_scope = is_out_of_scope


class Reason(ReasonBase):
    """Why an image has no input tensor.

    The values are part of the interface: servers store and count them. A row is the value, its
    sentence, and True where the image is out of scope.
    """

    WRONG_MODALITY = (
        "wrong_modality",
        (
            "Neither the SOP Class nor, in a Secondary Capture, the Modality is that of a"
            " radiograph (CR, DX), or Modality names another kind."
        ),
        True,
    )
    NOT_FOR_PRESENTATION = (
        "not_for_presentation",
        (
            "Presentation Intent Type is FOR PROCESSING: raw detector signal, which no recipe was"
            " made for."
        ),
        True,
    )
    NOT_CHEST = (
        "not_chest",
        (
            "Body Part Examined names another body part than the chest; or it names none, and the"
            " anatomic region or a description does."
        ),
        True,
    )
    LATERAL_NOT_SUPPORTED = (
        "lateral_not_supported",
        "A lateral view, and the release reads frontal views only.",
        True,
    )
    CHILD = (
        "child",
        "The patient is younger than the release's manifest allows (`input.population`).",
    )
    NOT_MONOCHROME = (
        "not_monochrome",
        "Colour or palette pixels; a radiograph is MONOCHROME1 or MONOCHROME2.",
    )
    MULTI_FRAME = "multi_frame", "More than one frame."
    NO_PIXEL_DATA = "no_pixel_data", "The object holds no Pixel Data."
    TRUNCATED_PIXEL_DATA = (
        "truncated_pixel_data",
        (
            "Pixel Data is shorter than the header says, or its codestream lacks its end, tiles,"
            " packets or scans."
        ),
    )
    EXCESS_PIXEL_DATA = (
        "excess_pixel_data",
        (
            "Pixel Data holds more than the header says: deeper pixels, or more frames, samples,"
            " rows or columns."
        ),
    )
    UNDECODABLE = "undecodable", "The decoder refused the codestream."
    CODESTREAM_MISMATCH = (
        "codestream_mismatch",
        "The codestream's own size or depth contradicts the header.",
    )
    DEPTH_CONTRADICTED = (
        "depth_contradicted",
        (
            "Pixels exceed Bits Stored, or are no such numbers: read by the header they would be"
            " another picture."
        ),
    )
    TRANSFER_SYNTAX_NOT_SUPPORTED = (
        "transfer_syntax_not_supported",
        "Hilum stores this Transfer Syntax, but does not decode it.",
    )
    CORRUPT_HEADER = (
        "corrupt_header",
        (
            "An attribute that is needed to read the pixels is missing or unreadable, or the"
            " header is too complex."
        ),
    )
    TOO_LARGE = "too_large", "More pixels than the limit, in the image or on its way to the input."
    CONSTANT_IMAGE = "constant_image", "All pixels have one value."
    UNSUPPORTED_PIXEL_FORMAT = (
        "unsupported_pixel_format",
        "Bits Allocated, Bits Stored or Pixel Representation outside what is supported.",
    )
    IMPLAUSIBLE_PIXELS = (
        "implausible_pixels",
        (
            "The image has a flag that `guard.refuses` lists, or all flags of a row of"
            " `guard.refuses_together`."
        ),
    )


class Flag(Explained):
    """Doubts about an image that was analysed all the same, for a reader of the result.

    A row is the value and its sentence for a radiologist, which reports show.
    """

    LOSSY = "lossy_compressed", "The image was compressed with loss; fine detail may be missing."
    HIGH_BITS_CLEARED = (
        "high_bits_cleared",
        (
            "Bits beside the gray values were removed, such as an overlay; check that the image"
            " is intact."
        ),
    )
    VOI_UNUSABLE = (
        "voi_unusable",
        (
            "The window of the image cannot be used, so its contrast may differ from that on a"
            " workstation."
        ),
    )
    VOI_DOUBTFUL = (
        "voi_doubtful",
        (
            "The window of the image leaves it hardly any contrast; the image may have been read"
            " too dark or too bright."
        ),
    )
    LUT_CORRECTED = (
        "lut_corrected",
        "A gray value table was described or stored wrongly; its own values were followed.",
    )
    LUT_DOUBTFUL = (
        "lut_doubtful",
        (
            "A gray value table may be one for other pixels; the image may have been read too"
            " dark or too bright."
        ),
    )
    PADDING_UNUSABLE = (
        "padding_unusable",
        (
            "The header's value for the border cannot be used, so the border counted as part of"
            " the image."
        ),
    )
    POLARITY_DOUBTFUL = (
        "polarity_doubtful",
        (
            "The header contradicts itself on whether low values are white; the image may have"
            " been read inverted."
        ),
    )
    ORIENTATION_UPSIDE_DOWN = (
        "orientation_upside_down",
        "The header says that the image is upside down. It was read as it is.",
    )
    ORIENTATION_MIRRORED = (
        "orientation_mirrored",
        (
            "The header says that the patient's left and right are exchanged. The image was read"
            " as it is."
        ),
    )
    ORIENTATION_TURNED = (
        "orientation_turned",
        "The header says that the image lies on its side. It was read as it is.",
    )
    ORIENTATION_LATERAL = (
        "orientation_lateral",
        "The header names a frontal view, and the directions of a view from the side.",
    )
    ORIENTATION_CORRECTED = (
        "orientation_corrected",
        "The image was turned upright for the reading, as its header says that it lies otherwise.",
    )
    VALUES_CLAMPED = (
        "values_clamped",
        "Some gray values lie outside the range that the header states, and were limited to it.",
    )
    BITS_STORED_DOUBTFUL = (
        "bits_stored_doubtful",
        (
            "Header and pixels disagree on the number or the place of the bits; the image may"
            " have been read too dark."
        ),
    )
    VIEW_UNKNOWN = "view_unknown", "The view is not stated; the image was read as a frontal one."
    BODY_PART_UNKNOWN = (
        "body_part_unknown",
        "Nothing in the header names the body part; the image was read as a chest radiograph.",
    )
    AGE_UNKNOWN = (
        "age_unknown",
        "The age of the patient is not known, and the release is not made for every age.",
    )
    PICTURE_FILE = (
        "picture_file",
        (
            "The image is a PNG or JPEG file, which states neither window, polarity, orientation"
            " nor device; it was read as it is."
        ),
    )
    BURNED_IN_TEXT = (
        "burned_in_text",
        (
            "The header says that text or marks are burned into the pixels, which may influence"
            " the scores."
        ),
    )
    LOW_CONTRAST = "low_contrast", "The image has little contrast."
    FEW_LEVELS = (
        "few_levels",
        "The image has few gray levels; it may be damaged, a scan, or no radiograph of a chest.",
    )
    SATURATED = "saturated", "A large part of the image is plain black or plain white."
    ASYMMETRIC = (
        "asymmetric",
        (
            "The two halves of the image differ more than those of a frontal chest radiograph"
            " usually do."
        ),
    )
    LOOKS_INVERTED = (
        "looks_inverted",
        "The image may be inverted: the spine is darker than the lungs. It was read as it is.",
    )
    UNUSUAL_ASPECT = (
        "unusual_aspect",
        "The image is unusually wide or unusually tall for a frontal chest radiograph.",
    )
    REDUCED_DECODE = (
        "reduced_decode",
        "The image was decoded at a lower resolution than it was stored in.",
    )


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
