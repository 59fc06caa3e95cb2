"""Why there is no number for an image or a study, and why an image was removed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Reason(StrEnum):
    """Why an image or a study ended without a number.

    The list is closed; `docs/reference/states.md` is generated from it.
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
    RELEASE_NOT_AVAILABLE = "release_not_available"
    INSTANCE_MISSING = "instance_missing"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    WORKER_CRASHED = "worker_crashed"
    NO_ANALYSED_IMAGE = "no_analysed_image"
    REJECTED = "rejected"
    PATIENT_CONFLICT = "patient_conflict"
    NOT_WAITED_FOR = "not_waited_for"
    ERASED = "erased"

    @property
    def meaning(self) -> str:
        """One sentence for a person, without patient data."""
        return _REASON_MEANING[self]


_REASON_MEANING: Mapping[Reason, str] = {
    Reason.WRONG_MODALITY: (
        "Neither the SOP Class nor, in a Secondary Capture, the Modality is that of a radiograph"
        " (CR, DX), or Modality names another kind."
    ),
    Reason.NOT_FOR_PRESENTATION: (
        "Presentation Intent Type is FOR PROCESSING: raw detector signal, which no recipe was made"
        " for."
    ),
    Reason.NOT_CHEST: (
        "Body Part Examined names another body part than the chest; or it names none, and the"
        " anatomic region or a description does."
    ),
    Reason.LATERAL_NOT_SUPPORTED: "A lateral view, and the release reads frontal views only.",
    Reason.CHILD: "The patient is younger than the release's manifest allows (`input.population`).",
    Reason.NOT_MONOCHROME: "Colour or palette pixels; a radiograph is MONOCHROME1 or MONOCHROME2.",
    Reason.MULTI_FRAME: "More than one frame.",
    Reason.NO_PIXEL_DATA: "The object holds no Pixel Data.",
    Reason.TRUNCATED_PIXEL_DATA: (
        "Pixel Data is shorter than the header says, or its codestream lacks its end, tiles,"
        " packets or scans."
    ),
    Reason.EXCESS_PIXEL_DATA: (
        "Pixel Data holds more than the header says: deeper pixels, or more frames, samples, rows"
        " or columns."
    ),
    Reason.UNDECODABLE: "The decoder refused the codestream.",
    Reason.CODESTREAM_MISMATCH: "The codestream's own size or depth contradicts the header.",
    Reason.DEPTH_CONTRADICTED: (
        "Pixels exceed Bits Stored, or are no such numbers: read by the header they would be"
        " another picture."
    ),
    Reason.TRANSFER_SYNTAX_NOT_SUPPORTED: (
        "Hilum stores this Transfer Syntax, but does not decode it."
    ),
    Reason.CORRUPT_HEADER: (
        "An attribute that is needed to read the pixels is missing or unreadable, or the header is"
        " too complex."
    ),
    Reason.TOO_LARGE: "More pixels than the limit, in the image or on its way to the input.",
    Reason.CONSTANT_IMAGE: "All pixels have one value.",
    Reason.UNSUPPORTED_PIXEL_FORMAT: (
        "Bits Allocated, Bits Stored or Pixel Representation outside what is supported."
    ),
    Reason.IMPLAUSIBLE_PIXELS: (
        "The image has a flag that `guard.refuses` lists, or all flags of a row of"
        " `guard.refuses_together`."
    ),
    Reason.RELEASE_NOT_AVAILABLE: "The release is no longer configured.",
    Reason.INSTANCE_MISSING: "The stored object is gone from the archive.",
    Reason.ATTEMPTS_EXHAUSTED: (
        "The work was tried as often as the settings allow and failed each time."
    ),
    Reason.WORKER_CRASHED: "Three workers died or hung while they held this item.",
    Reason.NO_ANALYSED_IMAGE: "No image of the study could be analysed by this release.",
    Reason.REJECTED: "Rejected after it was made, by a rejection note (IHE IOCM) or by a person.",
    Reason.PATIENT_CONFLICT: (
        "The images name several patients, so there is no finding: correct the wrong Patient ID and"
        " send that image again, or reject it."
    ),
    Reason.NOT_WAITED_FOR: "A person completed the study before this image was read.",
    Reason.ERASED: "The data of the patient, or of this study, was erased.",
}


class RemovalReason(StrEnum):
    """Why an image takes no part in results any more.

    The title of the rejection note (IHE IOCM), or a person's word.
    """

    QUALITY = "rejected_for_quality_reasons"
    PATIENT_SAFETY = "rejected_for_patient_safety_reasons"
    WORKLIST_ENTRY = "incorrect_modality_worklist_entry"
    RETENTION_EXPIRED = "data_retention_policy_expired"
    BY_HAND = "rejected_by_hand"
