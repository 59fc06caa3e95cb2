"""/api/v1 for a report that a destination has lost: send delivered documents once more."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field
from starlette.exceptions import HTTPException

from hilum.api.audited_actions import DeedHere
from hilum.api.dependencies import Dependencies, PartsHere
from hilum.api.fields import UID_PATTERN, ResponseModel, StudyUid
from hilum.api.problems import documented
from hilum.api.routes.router import audited_router
from hilum.domain import SR, Scope
from hilum.store.audit.log import Deed
from hilum.store.queue.resend import Resent
from hilum.verbs import Verb, performs

router = audited_router("Operations", Scope.OPERATE)


class ResendOrder(ResponseModel):
    """Which delivered documents to send again.

    Left out: all of the study's current results, to each destination that has them.
    """

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"destination": "pacs"}]}
    )

    destination: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = Field(
        None, description="Only to this one."
    )
    sop_instance_uid: Annotated[str, Field(pattern=UID_PATTERN, max_length=64)] | None = Field(
        None, description="Only this document."
    )


class ResentDocument(ResponseModel):
    """A document that is due again."""

    destination: str
    document: str = Field(examples=[SR.key])
    sop_instance_uid: str | None


class LeftDocument(ResentDocument):
    """One that is not sent again."""

    why: str = Field(examples=["it is on its way already"])


class ResentAnswer(ResponseModel):
    """Documents that are due again, and documents that are not."""

    due: list[ResentDocument]
    left: list[LeftDocument]


@router.post(
    "/studies/{study_instance_uid}/resend",
    response_model=ResentAnswer,
    responses=documented(400, 404, 409),
    summary="Send delivered reports again",
)
@performs(Verb.RESEND)
def resend_study(
    parts: PartsHere, deed: DeedHere, study_instance_uid: StudyUid, order: ResendOrder | None = None
) -> dict[str, Any]:
    """Send the stored bytes again under the same UID, as they were delivered.

    A receiver that still has them gets the same object.

    409: no document can be sent again; the message says why. A repeated request sends once.
    """
    done = resend(parts, deed, study_instance_uid, order or ResendOrder())
    return {"due": done.due, "left": done.left}


def resend(parts: Dependencies, deed: Deed, study_uid: str, order: ResendOrder) -> Resent:
    """For REST and the pages. Raises HTTPException."""
    if parts.interventions is None:
        raise HTTPException(404, "This process cannot change the ledger.")
    if order.destination is not None and order.destination not in parts.settings.destinations:
        raise HTTPException(404, "There is no such destination in the settings.")
    deed.detail = order.destination and f"to {order.destination}"
    done = parts.interventions.resend(study_uid, order.sop_instance_uid, order.destination, deed)
    if done is None:
        raise HTTPException(
            404,
            "There is no such study, or no such document in it; /api/v1/studies/{uid}/documents"
            " lists them.",
        )
    if not done.due:
        left = "; ".join(
            f"{item['document']} to {item['destination']}: {item['why']}" for item in done.left
        )
        raise HTTPException(
            409, left or "Nothing of it was delivered, so there is nothing to send again."
        )
    return done
