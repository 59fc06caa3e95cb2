"""/api/v1 for decisions of a person about single images.

It resolves conflicts, and rejects images that must not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Path
from starlette.exceptions import HTTPException

from hilum.api.answers.operations import ConflictAnswer, RejectedAnswer
from hilum.api.audited_actions import DeedHere
from hilum.api.dependencies import PartsHere
from hilum.api.fields import UID_PATTERN
from hilum.api.problems import documented
from hilum.api.routes.router import audited_router
from hilum.domain import Scope
from hilum.store.admin.decisions import CannotResolve, Decisions
from hilum.store.audit.log import Deed
from hilum.store.schema.tables import MAXIMUM_ROW_ID
from hilum.verbs import Verb, performs

router = audited_router("Operations", Scope.OPERATE)

ConflictId = Annotated[
    int, Path(ge=1, le=MAXIMUM_ROW_ID, description="`id` of a conflict.", examples=[1])
]
ImageUid = Annotated[
    str,
    Path(
        title="SOP Instance UID",
        description="SOP Instance UID (0008,0018).",
        pattern=UID_PATTERN,
        max_length=64,
        examples=["1.2.3"],
    ),
]


@router.post(
    "/conflicts/{conflict}/keep",
    response_model=ConflictAnswer,
    responses=documented(404, 409),
    summary="Keep out of everything",
)
@performs(Verb.KEEP_CONFLICT)
def keep(parts: PartsHere, deed: DeedHere, conflict: ConflictId) -> dict[str, Any]:
    """The first bytes stay in use for good.

    The quarantined file stays where it is, marked as looked at.
    """
    return _resolved(_decisions(parts).keep, conflict, deed)


@router.post(
    "/conflicts/{conflict}/replace",
    response_model=ConflictAnswer,
    responses=documented(404, 409),
    summary="Take the other bytes",
)
@performs(Verb.REPLACE_CONFLICT)
def replace(parts: PartsHere, deed: DeedHere, conflict: ConflictId) -> dict[str, Any]:
    """The quarantined bytes become the image.

    It is read again, and its study gets a new result and report, which supersede.

    The former bytes go to quarantine as a conflict of their own, state `kept`; to take them back,
    replace by that one.
    """
    return _resolved(_decisions(parts).replace, conflict, deed)


@router.post(
    "/conflicts/{conflict}/discard",
    response_model=ConflictAnswer,
    responses=documented(404, 409),
    summary="Delete the other bytes",
)
@performs(Verb.DISCARD_CONFLICT)
def discard(parts: PartsHere, deed: DeedHere, conflict: ConflictId) -> dict[str, Any]:
    """The quarantined file is deleted.

    The same bytes sent once more are acknowledged and deleted, too.
    """
    return _resolved(_decisions(parts).discard, conflict, deed)


@router.post(
    "/images/{sop_instance_uid}/reject",
    response_model=RejectedAnswer,
    responses=documented(404),
    summary="Take out an image",
)
@performs(Verb.REJECT_IMAGE)
def reject(parts: PartsHere, deed: DeedHere, sop_instance_uid: ImageUid) -> dict[str, Any]:
    """The image takes no part in results any more, as after a rejection note.

    Its study gets a new result without it.
    """
    found = _decisions(parts).reject(sop_instance_uid, deed)
    if found is None:
        raise HTTPException(404, "No image with this SOP Instance UID is in the ledger.")
    return found


def _decisions(parts: PartsHere) -> Decisions:
    assert parts.decisions is not None  # `create_app` adds these routes only then
    return parts.decisions


def _resolved(
    decide: Callable[[int, Deed], dict[str, Any] | None], conflict: int, deed: Deed
) -> dict[str, Any]:
    try:
        found = decide(conflict, deed)
    except CannotResolve as error:
        raise HTTPException(409, str(error)) from error
    if found is None:
        raise HTTPException(404, "No such conflict; GET /api/v1/conflicts lists what there is.")
    return found
