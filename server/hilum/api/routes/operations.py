"""/api/v1 for operators: associations, conflicts, queues, releases, the JSON schema, requeue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from fastapi import Query, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from hilum.api.answers.operations import (
    AssociationPage,
    CommitmentPage,
    ConflictPage,
    QueuesAnswer,
    ReleaseList,
    Requeued,
    RequeueOrder,
)
from hilum.api.audited_actions import DeedHere
from hilum.api.dependencies import Dependencies, PartsHere
from hilum.api.fields import API_PREFIX, Cursor, Limit
from hilum.api.problems import documented
from hilum.api.routes.router import audited_router
from hilum.domain import CommitmentState, Release, RolloutState, Scope, host_items
from hilum.errors import Retry
from hilum.store.audit.log import Deed
from hilum.store.queue.requeue import reasons
from hilum.verbs import NoVerb, Thing, Verb, performs

router = audited_router("Operations", Scope.READ)
writing = audited_router("Operations", Scope.OPERATE)
_NO_STUDY = NoVerb("it shows queues, senders or releases, and no study")
_DAY_SECONDS = 86400.0
_LATER_SECONDS = 60.0
_SENDING = ("deliver", "commit")  # stages that make no rows and no documents


@router.get("/associations", response_model=AssociationPage, summary="List associations")
@performs(_NO_STUDY)
def list_associations(
    parts: PartsHere,
    *,
    outcome: Annotated[
        str | None,
        Query(
            pattern=r"^[a-z_]{1,16}$",
            description="Only associations that ended so.",
            examples=["rejected"],
        ),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> dict[str, Any]:
    """List associations, newest first: refused objects and the change that the sender needs."""
    found, next_cursor = parts.views.associations(outcome=outcome, limit=limit, cursor=cursor)
    return {"associations": found, "next_cursor": next_cursor}


@router.get("/conflicts", response_model=ConflictPage, summary="List conflicts")
@performs(Verb.LIST_CONFLICTS)
def list_conflicts(parts: PartsHere, limit: Limit = 50, cursor: Cursor = None) -> dict[str, Any]:
    """Objects with other pixels under a SOP Instance UID that is taken, newest first.

    They are in quarantine.
    """
    found, next_cursor = parts.views.conflicts(limit=limit, cursor=cursor)
    return {"conflicts": found, "next_cursor": next_cursor}


@router.get(
    "/commitments", response_model=CommitmentPage, summary="List requests for storage commitment"
)
@performs(_NO_STUDY)
def list_commitments(
    parts: PartsHere,
    *,
    state: Annotated[
        CommitmentState | None, Query(description="Only requests in this state.", examples=["dead"])
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> dict[str, Any]:
    """List requests for storage commitment, newest first, with the state of each report."""
    found, next_cursor = parts.views.commitments(state=state, limit=limit, cursor=cursor)
    return {"commitments": found, "next_cursor": next_cursor}


@router.get("/queues", response_model=QueuesAnswer, summary="The street at this moment")
@performs(_NO_STUDY)
def get_queues(parts: PartsHere) -> dict[str, Any]:
    """Return the state of every queue, and of all processes.

    It includes items that need a person, the outcomes of the last 24 hours, the destinations, and
    the hosts.
    """
    views = parts.views
    return {
        "queues": views.queues(),
        "stuck": views.stuck(),
        "failing": views.failing(parts.clock()),
        "outcomes": views.outcomes(parts.clock() - _DAY_SECONDS),
        "destinations": views.destinations(),
        "processes": views.processes(),
        "hosts": host_items(views.hosts(), parts.settings.ledger.clock_tolerance_seconds),
    }


@router.get("/releases", response_model=ReleaseList, summary="List releases")
@performs(_NO_STUDY)
def list_releases(parts: PartsHere) -> dict[str, Any]:
    """Models that have a manifest.

    Those that are active read new studies, as the settings and rollouts want it.
    """
    active = _active(parts)
    return {
        "releases": [
            _release(item, is_active=key in active) for key, item in sorted(parts.releases.items())
        ]
    }


def _active(parts: Dependencies) -> set[str]:
    serving = {
        item["configured"]: item["serving"]
        for item in parts.views.rollouts()
        if item["state"] != RolloutState.CLOSED
    }
    return {serving.get(name, name) for name in parts.settings.active_releases}


def _release(item: Release, *, is_active: bool) -> dict[str, Any]:
    return {
        **asdict(item),
        "id": item.id,
        "is_active": is_active,
        "is_calibrated": item.calibration is not None,
    }


@router.get(
    "/schemas/result.json",
    response_class=Response,
    responses={
        200: {"content": {"application/schema+json": {"schema": {"type": "object"}}}},
        **documented(404),
    },
    summary="JSON schema of the result document",
)
@performs(_NO_STUDY)
def get_result_schema(parts: PartsHere) -> Response:
    """The schema (draft 2020-12) of documents of the kind `json`."""
    return Response(_text(parts.result_schema), media_type="application/schema+json")


def _text(path: Path | None) -> str:
    if path is None or not path.is_file():
        raise HTTPException(404, "This installation carries no result schema.")
    return path.read_text(encoding="utf-8")


def _require_room(parts: Dependencies) -> None:
    """Work that makes rows and documents waits while the listener rejects associations.

    503 with Retry-After.
    """
    limits = parts.settings.receive
    if (free := parts.observer.free()) is None:
        raise Retry("the archive's file system fails: mount it again", after_seconds=_LATER_SECONDS)
    if free.bytes < limits.reject_below_bytes:
        raise Retry("the disk is nearly full: free space", after_seconds=_LATER_SECONDS)
    if free.files is not None and free.files < limits.reject_below_files:
        raise Retry(
            "the disk can hold hardly any file more: delete some", after_seconds=_LATER_SECONDS
        )
    maximum = limits.maximum_due_readings
    if maximum and parts.views.due_readings(maximum) >= maximum:
        raise Retry(
            "too many readings wait already (receive.maximum_due_readings)",
            after_seconds=_LATER_SECONDS,
        )


def _require_reason(order: RequeueOrder) -> None:
    """Raise 422 for a reason with which no item of the stage ends, such as a misspelt one."""
    if order.reason is not None and order.reason not in (known := reasons(order.stage)):
        message = f"no item of {order.stage} ends for it; known: {', '.join(known)}"
        raise RequestValidationError([{"type": "enum", "loc": ("body", "reason"), "msg": message}])


def _say(deed: Deed, order: RequeueOrder) -> None:
    deed.about(Thing.STAGE, order.stage).study_instance_uid = order.study_instance_uid
    deed.detail = (
        " ".join(filter(None, (order.reason, order.destination and f"to {order.destination}")))
        or None
    )


@writing.post(
    "/requeue",
    response_model=Requeued,
    response_model_exclude_unset=True,
    responses=documented(400, 404),
    summary="Do it again",
)
@performs(Verb.REQUEUE)
def requeue(parts: PartsHere, deed: DeedHere, order: RequeueOrder) -> Mapping[str, Any]:
    """Ended items become due again with a clean record.

    Documents are sent with the bytes that were stored, under the same UID.

    A report that was withheld is released where its cause is gone.
    """
    assert parts.requeue is not None  # `create_app` adds this route only then
    if order.stage not in _SENDING:
        _require_room(parts)
    _require_reason(order)
    _say(deed, order)
    known = parts.settings.destinations
    if order.destination is not None and order.destination not in known:
        raise HTTPException(
            404,
            f"It is not in the settings; POST {API_PREFIX}/destinations/{{name}}/forget gives up"
            " its queue.",
        )
    chosen = {
        "reason": order.reason,
        "study_uid": order.study_instance_uid,
        "destination_name": order.destination,
    }
    count = parts.requeue(order.stage, **chosen, among=known, deed=deed)
    withheld = _still_withheld(parts, order) if order.stage == "deliver" else []
    return {"requeued": count, **({"withheld": withheld} if withheld else {})}


def _still_withheld(parts: Dependencies, order: RequeueOrder) -> list[dict[str, Any]]:
    found = parts.views.withheld(parts.settings.destinations, order.study_instance_uid)
    return [
        item
        for item in found
        if order.destination in (None, item["destination"])
        and order.reason in (None, item["reason"])
    ]
