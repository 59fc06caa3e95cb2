"""Why there is no number for an image or a study, and why an image was removed."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from hilum_preprocessing import errors
from hilum_preprocessing.errors import ReasonBase

ImageReason = errors.Reason


class ServerReason(ReasonBase):
    """Reasons of the server; `ImageReason` are those that an image itself gives.

    A row is the value and its sentence.
    """

    RELEASE_NOT_AVAILABLE = "release_not_available", "The release is no longer configured."
    INSTANCE_MISSING = "instance_missing", "The stored object is gone from the archive."
    ATTEMPTS_EXHAUSTED = (
        "attempts_exhausted",
        "The work was tried as often as the settings allow and failed each time.",
    )
    WORKER_CRASHED = "worker_crashed", "Three workers died or hung while they held this item."
    NO_ANALYSED_IMAGE = (
        "no_analysed_image",
        "No image of the study could be analysed by this release.",
    )
    REJECTED = (
        "rejected",
        "Rejected after it was made, by a rejection note (IHE IOCM) or by a person.",
    )
    PATIENT_CONFLICT = (
        "patient_conflict",
        (
            "The images name several patients, so there is no finding: correct the wrong Patient"
            " ID and send that image again, or reject it."
        ),
    )
    NOT_ANALYSED_BY_RULE = (
        "not_analysed_by_rule",
        "A rule of the settings says that no release reads such a study; the detail says why.",
    )
    NOT_WAITED_FOR = "not_waited_for", "A person completed the study before this image was read."
    ERASED = "erased", "The data of the patient, or of this study, was erased."


AnyReason = ImageReason | ServerReason

# The closed list, from which `docs/reference/states.md` is generated.
REASONS: Final[dict[str, AnyReason]] = {
    reason.value: reason for reason in (*ImageReason, *ServerReason)
}


def is_out_of_scope(reason: str | None) -> bool:
    """Return whether the image is one that the release was not made for.

    False for a reason of another version.
    """
    return reason in REASONS and REASONS[reason].is_out_of_scope


class RemovalReason(StrEnum):
    """Why an image takes no part in results any more.

    The title of the rejection note (IHE IOCM), or a person's word.
    """

    QUALITY = "rejected_for_quality_reasons"
    PATIENT_SAFETY = "rejected_for_patient_safety_reasons"
    WORKLIST_ENTRY = "incorrect_modality_worklist_entry"
    RETENTION_EXPIRED = "data_retention_policy_expired"
    BY_HAND = "rejected_by_hand"
