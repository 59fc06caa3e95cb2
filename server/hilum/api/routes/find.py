"""POST /api/v1/studies/find: studies by the identifiers that a hospital uses.

The query is in the body, because proxies log addresses.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field
from starlette.exceptions import HTTPException

from hilum.api.answers.studies import StudySummary
from hilum.api.audited_actions import DeedHere
from hilum.api.dependencies import Dependencies, PartsHere
from hilum.api.fields import Cursor, Limit, Moment, ResponseModel
from hilum.api.identifiers import OFF, FoundStudies, StudyQuery, note_query, row_of
from hilum.api.problems import documented
from hilum.api.routes.router import audited_router
from hilum.domain import Scope
from hilum.store.audit.log import Deed
from hilum.verbs import Verb, performs

router = audited_router("Studies", Scope.READ)


class IdentifiersAnswer(ResponseModel):
    """The identifiers in the header that matched; empty: it has no such value."""

    patient_id: str
    issuer: str = Field(
        description="Issuer of Patient ID (0010,0021): two hospitals may have issued the same."
    )
    accession_number: str
    study_date: str = Field(examples=["2026-11-20"])


class FoundStudy(StudySummary):
    """A study that was found."""

    identifiers: IdentifiersAnswer


class FoundPage(ResponseModel):
    """One page of a search.

    It may hold few studies, or no study, and not be the last: a search ends after some seconds.
    """

    studies: list[FoundStudy] = Field(description="By their newest image, newest first.")
    searched_until: Moment | None = Field(
        description="When the image was received that was looked at last; null: all were looked at."
    )
    next_cursor: str | None = Field(
        description=(
            "Give it as `cursor`, with the same body, to search on; null: it has come to the end."
        )
    )


@router.post(
    "/studies/find",
    response_model=FoundPage,
    responses=documented(400, 403),
    summary="Find studies by identifiers",
)
@performs(Verb.FIND_STUDY)
def find_studies(
    parts: PartsHere, deed: DeedHere, query: StudyQuery, limit: Limit = 50, cursor: Cursor = None
) -> dict[str, Any]:
    """Search by Accession Number, Patient ID and Study Date, as the stored headers have them.

    `*` and `?` stand for themselves.

    403 unless `api.show_identifiers` is on. The query is not written anywhere; the audit holds a
    keyed digest.
    """
    found = find(parts, deed, query, limit, cursor)
    lines = parts.views.lines(list(found.identifiers))
    studies = [
        {**item, "identifiers": found.identifiers[item["study_instance_uid"]]} for item in lines
    ]
    return {
        "studies": studies,
        "searched_until": found.received_at,
        "next_cursor": found.next_cursor,
    }


def find(
    parts: Dependencies, deed: Deed, query: StudyQuery, limit: int, cursor: str | None
) -> FoundStudies:
    """Search for REST and the page, and note the query in the deed.

    Raises HTTPException 403 where it is off, BadCursor and Retry.
    """
    if parts.identifiers is None or parts.audit is None:
        raise HTTPException(403, OFF)
    note_query(deed, parts.audit, query)
    found = parts.identifiers.find(query, before=row_of(cursor), limit=limit)
    deed.count = len(found.identifiers)
    return found
