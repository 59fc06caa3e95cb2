"""/api/v1 for interventions of a person.

Complete a study, pause, resume or forget a destination, erase a patient or a study.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints
from starlette.exceptions import HTTPException

from hilum.api.answers.destinations import DestinationList, DestinationState
from hilum.api.audited_actions import DeedHere
from hilum.api.dependencies import Dependencies, Interventions, PartsHere
from hilum.api.fields import (
    AE_PATTERN,
    UID_PATTERN,
    Identifier,
    ResponseModel,
    StudyUid,
)
from hilum.api.problems import documented
from hilum.api.routes.probe import DestinationName
from hilum.api.routes.router import audited_router
from hilum.domain import Scope, StudyState
from hilum.settings import Destination
from hilum.store.audit.log import Deed
from hilum.verbs import NoVerb, Thing, Verb, performs

listing = audited_router("Operations", Scope.READ)
router = audited_router("Operations", Scope.OPERATE)
erasing = audited_router("Operations", Scope.ERASE)
_NO_STUDY = NoVerb("it shows queues, and no study")
_Uid = Annotated[str, StringConstraints(max_length=64, pattern=UID_PATTERN)]


class ForgottenAnswer(ResponseModel):
    """The number of discarded items."""

    cancelled: int = Field(
        description="Deliveries that were due or dead, and end as destination_forgotten."
    )
    in_work: int = Field(
        description=(
            "Deliveries that a dispatcher with earlier settings holds; restart it, then ask again."
        )
    )


class ForgetCommitmentsOrder(ResponseModel):
    """Whose dead reports of storage commitment to give up."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"calling_ae_title": "CR1"}]}
    )

    calling_ae_title: Annotated[str, Field(pattern=AE_PATTERN, description="The requester.")]


class ForgottenCommitments(ResponseModel):
    """How many were given up."""

    forgotten: int


class CompleteOrder(ResponseModel):
    """How to complete a study."""

    model_config = ConfigDict(extra="forbid")

    without_waiting: bool = Field(
        default=False,
        description=(
            "Images that no process reads yet end as not_waited_for; those in work are waited for."
        ),
    )


class CompletedAnswer(ResponseModel):
    """The outcome for the study."""

    state: StudyState = Field(
        description="Of the study before; only a due one had a quiet period to end."
    )
    ended_readings: int
    waits_for: int = Field(
        description="Readings that are still open; the study closes when they have ended."
    )


class PatientToErase(ResponseModel):
    """Whose data to erase. It is written nowhere; the audit holds a keyed digest."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"patient_id": "4711"}]}
    )

    patient_id: Identifier = Field(description="Patient ID (0010,0020), the whole of it.")
    issuer_of_patient_id: Identifier | None = Field(
        None, description="Issuer of Patient ID (0010,0021); left out: whichever issued it."
    )
    is_dry_run: bool = Field(
        default=False, description="Only count the objects that would be erased."
    )


class StudyToErase(ResponseModel):
    """Which study to erase. It is written nowhere; the audit holds a keyed digest."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"study_instance_uid": "1.2.826.0.1.3680043.8.498.1"}]},
    )

    study_instance_uid: _Uid = Field(description="Study Instance UID (0020,000D).")
    is_dry_run: bool = Field(
        default=False, description="Only count the objects that would be erased."
    )


class ErasedAnswer(ResponseModel):
    """The number of erased objects of each kind."""

    is_complete: bool = Field(
        description="False: do it again; see arriving, files_left and is_rewritten."
    )
    studies: int
    images: int
    documents: int
    delivered: dict[str, int] = Field(
        description="Documents that destinations have; only they can delete those."
    )
    tried: dict[str, int] = Field(
        description="Documents that destinations may have: sent, or being sent, without an answer."
    )
    quarantined: int = Field(description="Files in quarantine.")
    unreadable: int = Field(
        description="Files in quarantine whose patient is unknown; look at them."
    )
    arriving: int = Field(description="Files that arrived just now and have no row yet.")
    files_left: int = Field(description="Files that could not be deleted; Hilum goes on trying.")
    is_rewritten: bool = Field(
        description="The ledger's file was rewritten, so that no free page holds old bytes."
    )


@listing.get("/destinations", response_model=DestinationList, summary="List destinations")
@performs(_NO_STUDY)
def list_destinations(parts: PartsHere) -> Mapping[str, Any]:
    """Every destination with its queue, paused or not."""
    return {"destinations": destination_states(parts)}


def destination_states(parts: Dependencies) -> list[dict[str, Any]]:
    """Every destination as REST and the page show it, by name."""
    configured = parts.settings.destinations
    known = parts.refusals(parts.views.rollouts())
    return [
        {
            **item,
            **_place(configured.get(item["name"])),
            "refusals": [asdict(of) for of in known if of.destination == item["name"]],
        }
        for item in parts.views.destination_states(configured)
    ]


def _place(destination: Destination | None) -> dict[str, str | None]:
    return (
        {"kind": None, "address": None}
        if destination is None
        else {"kind": destination.kind, "address": destination.address}
    )


@router.post(
    "/destinations/{name}/pause",
    response_model=DestinationState,
    responses=documented(404),
    summary="Pause a destination",
)
@performs(Verb.PAUSE)
def pause_destination(parts: PartsHere, deed: DeedHere, name: DestinationName) -> Mapping[str, Any]:
    """Pause a destination until it is resumed; an object in transfer is finished.

    Documents wait; no document is lost.
    """
    return _pause(parts, deed, name, is_paused=True)


@router.post(
    "/destinations/{name}/resume",
    response_model=DestinationState,
    responses=documented(404),
    summary="Resume a destination",
)
@performs(Verb.RESUME)
def resume_destination(
    parts: PartsHere, deed: DeedHere, name: DestinationName
) -> Mapping[str, Any]:
    """Resume a destination; waiting documents are sent."""
    return _pause(parts, deed, name, is_paused=False)


@router.post(
    "/destinations/{name}/forget",
    response_model=ForgottenAnswer,
    responses=documented(404, 409),
    summary="Discard the queue of a destination that is gone",
)
@performs(Verb.FORGET_DESTINATION)
def forget_destination(
    parts: PartsHere, deed: DeedHere, name: DestinationName
) -> Mapping[str, Any]:
    """Only of one that is no longer in the settings.

    Its deliveries that are due or dead are cancelled. It cannot be undone.
    """
    if name in parts.settings.destinations:
        raise HTTPException(
            409, "It is in the settings: take its section out and restart, then forget it."
        )
    if not any(
        item["name"] == name for item in parts.views.destination_states(parts.settings.destinations)
    ):
        raise HTTPException(
            404, "Nothing waits for such a destination; /api/v1/destinations lists what there is."
        )
    return asdict(_verbs(parts).forget(name, deed))


@router.post(
    "/commitments/forget",
    response_model=ForgottenCommitments,
    responses=documented(400),
    summary="Give up dead reports of storage commitment",
)
@performs(Verb.FORGET_COMMITMENTS)
def forget_commitments(
    parts: PartsHere, deed: DeedHere, order: ForgetCommitmentsOrder
) -> Mapping[str, int]:
    """Discard the failed reports to a requester that is gone or cannot be reached.

    Reports that are due are still tried. It cannot be undone.
    """
    deed.about(Thing.SENDER, order.calling_ae_title)
    return {"forgotten": _verbs(parts).forget_commitments(order.calling_ae_title, deed)}


def _pause(parts: Dependencies, deed: Deed, name: str, *, is_paused: bool) -> Mapping[str, Any]:
    if name not in parts.settings.destinations:
        raise HTTPException(404, "There is no such destination in the settings.")
    _verbs(parts).pause(name, is_paused=is_paused, deed=deed)
    return next(item for item in destination_states(parts) if item["name"] == name)


@router.post(
    "/studies/{study_instance_uid}/complete",
    response_model=CompletedAnswer,
    responses=documented(400, 404),
    summary="Complete a study now",
)
@performs(Verb.COMPLETE)
def complete_study(
    parts: PartsHere,
    deed: DeedHere,
    study_instance_uid: StudyUid,
    order: CompleteOrder | None = None,
) -> Mapping[str, Any]:
    """End its quiet period: it is reported as soon as its images are read.

    A further image revises it as ever.
    """
    done = _verbs(parts).complete(
        study_instance_uid, is_waiting=order is None or not order.without_waiting, deed=deed
    )
    if done is None:
        raise HTTPException(404, "There is no such study; /api/v1/studies lists what there is.")
    return {"state": done.state, "ended_readings": done.ended_readings, "waits_for": done.waits_for}


@erasing.post(
    "/erase",
    response_model=ErasedAnswer,
    responses=documented(400),
    summary="Erase a patient or a study",
)
@performs(Verb.ERASE)
def erase_patient(
    parts: PartsHere, deed: DeedHere, order: PatientToErase | StudyToErase
) -> Mapping[str, Any]:
    """All studies whose stored header has this Patient ID, or one study.

    Files, headers, results, documents. It cannot be undone.

    Takes as long as reading every header (for a patient) and rewriting the ledger. Ask with
    `is_dry_run` first.
    """
    if isinstance(order, StudyToErase):
        return _verbs(parts).erase_study(
            order.study_instance_uid, is_dry_run=order.is_dry_run, deed=deed
        )
    return _verbs(parts).erase(
        order.patient_id, order.issuer_of_patient_id, is_dry_run=order.is_dry_run, deed=deed
    )


def _verbs(parts: Dependencies) -> Interventions:
    assert parts.interventions is not None  # `create_app` adds these routes only then
    return parts.interventions
