"""Work items of a worklist manager (PS3.4 annex CC) that Hilum has claimed, and their ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class WorkitemState(StrEnum):
    """State of one work item here.

    CLAIMING: its Transaction UID is written, and the claim is not answered yet. CLAIMED: it is
    ours, IN PROGRESS at the manager. COMPLETING, CANCELLING: the end is decided, and the manager
    has not confirmed it. COMPLETED, CANCELLED: final at the manager. TAKEN: another performer has
    it. FAILED: the manager refuses our requests, so a person is needed.
    """

    CLAIMING = "claiming"
    CLAIMED = "claimed"
    COMPLETING = "completing"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    TAKEN = "taken"
    FAILED = "failed"


OPEN_WORKITEMS: Final = (
    WorkitemState.CLAIMING,
    WorkitemState.CLAIMED,
    WorkitemState.COMPLETING,
    WorkitemState.CANCELLING,
)
"""States of items that Hilum still works on."""


class WorkitemReason(StrEnum):
    """Why a work item was not completed. A closed list; the value is stored."""

    CLAIMED_BY_ANOTHER = "claimed_by_another"
    ENDED_BY_MANAGER = "ended_by_manager"
    UNKNOWN_TO_MANAGER = "unknown_to_manager"
    REFUSED_BY_MANAGER = "refused_by_manager"
    NO_STUDY = "no_study"
    SEVERAL_STUDIES = "several_studies"
    IMAGES_MISSING = "images_missing"
    NOT_ANALYSED = "not_analysed"
    ANALYSIS_FAILED = "analysis_failed"
    NOT_DELIVERED = "not_delivered"
    ERASED = "erased"


WORKITEM_REASONS: Final[Mapping[WorkitemReason, str]] = {
    WorkitemReason.CLAIMED_BY_ANOTHER: "Another performer claimed it first.",
    WorkitemReason.ENDED_BY_MANAGER: "It was ended at the worklist manager, not by Hilum.",
    WorkitemReason.UNKNOWN_TO_MANAGER: "The worklist manager does not know it any more.",
    WorkitemReason.REFUSED_BY_MANAGER: "The worklist manager refuses its claim or its end.",
    WorkitemReason.NO_STUDY: "Its Input Information names no study.",
    WorkitemReason.SEVERAL_STUDIES: "Its Input Information names several studies.",
    WorkitemReason.IMAGES_MISSING: "The images of its study did not come in time.",
    WorkitemReason.NOT_ANALYSED: "No image of its study could be analysed.",
    WorkitemReason.ANALYSIS_FAILED: "The analysis of its study failed.",
    WorkitemReason.NOT_DELIVERED: "The archive did not take the result.",
    WorkitemReason.ERASED: "Its study was erased.",
}
"""A sentence for each reason; the manager gets it, too."""


@dataclass(frozen=True, slots=True)
class Workitem:
    """One row of work items.

    `manager`: name of its section in the settings. `study_instance_uid` empty: it names none, or
    several. `attempts`: refusals of the step that it is in.
    """

    id: int
    manager: str
    workitem_uid: str
    transaction_uid: str
    state: WorkitemState
    study_instance_uid: str
    found_at: float
    claimed_at: float | None = None
    finished_at: float | None = None
    attempts: int = 0
    reason: WorkitemReason | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class AcceptedObject:
    """An object of ours that the archive has accepted."""

    study_instance_uid: str
    series_instance_uid: str
    sop_class_uid: str
    sop_instance_uid: str


@dataclass(frozen=True, slots=True)
class StudyProgress:
    """How far the study of a work item is.

    `images`: SOP Instance UIDs that Hilum has. `is_open`: something of it is still to be done.
    `reason`: why it cannot be completed; None: it can, with `objects`, or is open.
    """

    is_known: bool = False
    images: frozenset[str] = frozenset()
    is_open: bool = False
    sender: str = ""
    objects: tuple[AcceptedObject, ...] = ()
    reason: WorkitemReason | None = None
    detail: str = ""
