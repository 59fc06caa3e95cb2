"""/api/v1/audit: the actions of each actor. Reading it is a verb, too."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from hilum.api.audited_actions import DeedHere
from hilum.api.dependencies import PartsHere
from hilum.api.fields import (
    UID_PATTERN,
    Cursor,
    Limit,
    Moment,
    QueryMoment,
    ResponseModel,
)
from hilum.api.routes.router import audited_router
from hilum.domain import Channel, Scope
from hilum.store.audit.log import AuditFilter
from hilum.verbs import Thing, Verb, VerbOutcome, performs

router = audited_router("Operations", Scope.OPERATE)


class AuditRow(ResponseModel):
    """One verb of one actor."""

    id: int
    at: Moment
    actor: str = Field(
        description=(
            "The name that was authenticated: a token's, or on the command line the login user's."
        )
    )
    channel: Channel
    address: str = Field(description="Where the request came from; empty: this host.")
    host: str = Field(description="The host that wrote the row.")
    verb: Verb
    study_instance_uid: str | None
    thing: Thing | None = Field(
        description="The kind of thing, if it is not a study; `name` is its name."
    )
    name: str | None
    count: int = Field(description="How many things; of looks, how many.")
    outcome: VerbOutcome
    detail: str | None
    deed: str = Field(
        description="The same for `begun` and the end of a verb that takes several transactions."
    )


class AuditPage(ResponseModel):
    """One page."""

    rows: list[AuditRow]
    next_cursor: str | None


@router.get("/audit", response_model=AuditPage, summary="Who did what")
@performs(Verb.READ_AUDIT)
def list_audit(
    parts: PartsHere,
    deed: DeedHere,
    *,
    since: Annotated[QueryMoment | None, Query(description="At this time or later.")] = None,
    until: Annotated[QueryMoment | None, Query(description="Before this time.")] = None,
    actor: Annotated[str | None, Query(max_length=80, description="Only this name.")] = None,
    verb: Annotated[Verb | None, Query(description="Only this verb.")] = None,
    study_instance_uid: Annotated[
        str | None, Query(pattern=UID_PATTERN, max_length=64, description="Only of this study.")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> dict[str, Any]:
    """Return audit rows, newest first.

    For operators of the server: a read-only token has no access.
    """
    assert parts.audit is not None  # `create_app` adds this route only then
    deed.study_instance_uid = study_instance_uid
    from_moment, to_moment = (moment.timestamp() if moment else None for moment in (since, until))
    found, next_cursor = parts.audit.list(
        AuditFilter(from_moment, to_moment, actor, verb, study_instance_uid),
        limit=limit,
        cursor=cursor,
    )
    deed.count = len(found)
    return {"rows": found, "next_cursor": next_cursor}
