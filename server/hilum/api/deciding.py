"""/api/v1 for what a person decides about single images: conflicts, and images that shall not count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.exceptions import HTTPException

from hilum.api.fields import API_PREFIX, UID_PATTERN
from hilum.api.operation_answers import ConflictAnswer, RejectedAnswer
from hilum.api.parts import PartsHere
from hilum.api.problems import documented
from hilum.store.decisions import CannotResolve, Decisions
from hilum.store.schema import MAXIMUM_ROW_ID

router = APIRouter(prefix=API_PREFIX, tags=["Operations"])

ConflictId = Annotated[int, Path(ge=1, le=MAXIMUM_ROW_ID, description="`id` of a conflict.", examples=[1])]
ImageUid = Annotated[
    str, Path(title="SOP Instance UID", description="SOP Instance UID (0008,0018).", pattern=UID_PATTERN, max_length=64, examples=["1.2.3"])
]


@router.post("/conflicts/{conflict}/keep", response_model=ConflictAnswer, responses=documented(404, 409), summary="Keep out of everything")
def keep(parts: PartsHere, conflict: ConflictId) -> dict[str, Any]:
    """The first bytes stay in use for good. The quarantined file stays where it is, marked as looked at."""
    return _resolved(conflict, _decisions(parts).keep)


@router.post("/conflicts/{conflict}/replace", response_model=ConflictAnswer, responses=documented(404, 409), summary="Take the other bytes")
def replace(parts: PartsHere, conflict: ConflictId) -> dict[str, Any]:
    """The quarantined bytes become the image: it is read again, and its study gets a new result and report, which supersede.

    The former bytes go to quarantine as a conflict of their own, state `kept`; to take them back, replace by that one.
    """
    return _resolved(conflict, _decisions(parts).replace)


@router.post(
    "/conflicts/{conflict}/discard", response_model=ConflictAnswer, responses=documented(404, 409), summary="Delete the other bytes"
)
def discard(parts: PartsHere, conflict: ConflictId) -> dict[str, Any]:
    """The quarantined file is deleted. The same bytes sent once more are acknowledged and deleted, too."""
    return _resolved(conflict, _decisions(parts).discard)


@router.post("/images/{sop_instance_uid}/reject", response_model=RejectedAnswer, responses=documented(404), summary="Take out an image")
def reject(parts: PartsHere, sop_instance_uid: ImageUid) -> dict[str, Any]:
    """The image takes no part in results any more, as after a rejection note: its study gets a new result without it."""
    found = _decisions(parts).reject(sop_instance_uid)
    if found is None:
        raise HTTPException(404, "No image with this SOP Instance UID is in the ledger.")
    return found


def _decisions(parts: PartsHere) -> Decisions:
    assert parts.decisions is not None  # `create_app` adds these routes only then
    return parts.decisions


def _resolved(conflict: int, decide: Callable[[int], dict[str, Any] | None]) -> dict[str, Any]:
    try:
        found = decide(conflict)
    except CannotResolve as error:
        raise HTTPException(409, str(error)) from error
    if found is None:
        raise HTTPException(404, "No such conflict; GET /api/v1/conflicts lists what there is.")
    return found
