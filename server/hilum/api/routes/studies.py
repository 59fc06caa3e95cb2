"""/api/v1/studies and /api/v1/documents: received images, findings, documents and deliveries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from hilum.api.answers.studies import DocumentList, StudyAnswer, StudyPage, history_of
from hilum.api.audited_actions import DeedHere
from hilum.api.dependencies import PartsHere
from hilum.api.fields import (
    AE_PATTERN,
    RELEASE_PATTERN,
    UID_PATTERN,
    Cursor,
    Limit,
    QueryMoment,
    StudyUid,
)
from hilum.api.negotiation import preferred
from hilum.api.problems import documented
from hilum.api.routes.router import audited_router
from hilum.domain import DOCUMENT_KINDS, FHIR, JSON, Outcome, Scope, StudyState, kind_of
from hilum.store.queries.studies import Item
from hilum.store.queries.views import StudyFilter
from hilum.store.schema.tables import MAXIMUM_ROW_ID
from hilum.verbs import Thing, Verb, performs

router = audited_router("Studies", Scope.READ)
_NO_STUDY = (
    "No image of this study is stored here: it never came, was refused, or was erased."
    " /api/v1/associations says what was refused; send the study again."
)
_MEDIA_TYPES = {
    kind.media_type: {
        "schema": {"type": "object"}
        if kind.media_type == JSON.media_type
        else {"type": "string", "format": "binary"}
    }
    for kind in DOCUMENT_KINDS.values()
}
# Those in which a result can be asked for, each of one media type.
_FORMS = {kind.media_type: kind.key for kind in (JSON, FHIR)}
ResultKey = Annotated[
    int,
    Path(ge=1, le=MAXIMUM_ROW_ID, description="`id` of a result of the study.", examples=[1]),
]
DocumentKey = Annotated[
    str,
    Path(
        title="Document",
        description="`id` of a document, or its SOP Instance UID.",
        pattern=UID_PATTERN,
        max_length=64,
        examples=["1", "2.25.1993"],
    ),
]


@router.get("/studies", response_model=StudyPage, summary="List studies")
@performs(Verb.LIST_STUDIES)
def list_studies(
    parts: PartsHere,
    *,
    state: Annotated[StudyState | None, Query(description="State of the study.")] = None,
    release: Annotated[
        str | None,
        Query(
            pattern=RELEASE_PATTERN,
            max_length=80,
            description="Has a current result of this release.",
        ),
    ] = None,
    outcome: Annotated[
        Outcome | None,
        Query(description="Has a current result (of that release) with this outcome."),
    ] = None,
    calling_ae_title: Annotated[
        str | None, Query(pattern=AE_PATTERN, description="Sender of the first image.")
    ] = None,
    received_since: Annotated[
        QueryMoment | None, Query(description="Last image received at this time or later.")
    ] = None,
    received_until: Annotated[
        QueryMoment | None, Query(description="Last image received before this time.")
    ] = None,
    withheld: Annotated[
        bool | None,
        Query(description="true: a current report of it is withheld from a destination."),
    ] = None,
    order: Annotated[
        Literal["newest", "oldest", "changed"],
        Query(
            description=(
                "By last image received; or `changed`, to follow results: by the last change"
                " of the values in this list. "
                "That takes no filters, its `next_cursor` is never null, and a page without studies"
                " says that there is no news."
            )
        ),
    ] = "newest",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> dict[str, Any]:
    """Studies by last image received or by their last change, page by page.

    All filters hold together.
    """
    since, until = (
        moment.timestamp() if moment else None for moment in (received_since, received_until)
    )
    filters = (state, release, outcome, calling_ae_title, since, until, withheld)
    if order == "changed":
        _require_none(filters)
        studies, after = parts.views.list_changed(limit=limit, cursor=cursor)
        return {"studies": studies, "next_cursor": after}
    chosen = StudyFilter(*filters[:-1], order, is_withheld=bool(withheld))
    studies, next_cursor = parts.views.list_studies(chosen, limit=limit, cursor=cursor)
    return {"studies": studies, "next_cursor": next_cursor}


def _require_none(filters: Iterable[object]) -> None:
    """Raise 422 for following with a filter: a study that leaves the filter would be missed."""
    if any(value is not None for value in filters):
        message = (
            "changed takes no filters: a study that does not pass them any more would never be met;"
            " choose among what comes"
        )
        raise RequestValidationError([{"type": "enum", "loc": ("query", "order"), "msg": message}])


@router.get(
    "/studies/{study_instance_uid}",
    response_model=StudyAnswer,
    responses=documented(404),
    summary="Everything about one study",
)
@performs(Verb.READ_STUDY)
def get_study(parts: PartsHere, study_instance_uid: StudyUid) -> dict[str, Any]:
    """Return images with readings or reasons, results, documents, deliveries, and the times."""
    found = parts.views.study(study_instance_uid)
    if found is None:
        raise HTTPException(404, _NO_STUDY)
    history = history_of(parts.audit, study_instance_uid)
    return {"disclaimer": parts.settings.report.disclaimer, **found, "history": history}


@router.get(
    "/studies/{study_instance_uid}/documents",
    response_model=DocumentList,
    responses=documented(404),
    summary="Documents of a study",
)
@performs(Verb.READ_STUDY)
def list_documents(parts: PartsHere, study_instance_uid: StudyUid) -> dict[str, Any]:
    """All documents, oldest first, with their deliveries."""
    found = parts.views.documents(study_instance_uid)
    if found is None:
        raise HTTPException(404, _NO_STUDY)
    return {"documents": found}


@router.get(
    "/documents/{document}",
    response_class=Response,
    responses={
        200: {"description": "The bytes that were sent.", "content": _MEDIA_TYPES},
        **documented(404),
    },
    summary="One document's bytes",
)
@performs(Verb.READ_REPORT)
def get_document(parts: PartsHere, deed: DeedHere, document: DocumentKey) -> Response:
    """The bytes as they were stored and sent: a DICOM file (PS3.10), JSON, or a FHIR Bundle."""
    found = parts.views.document(int(document) if document.isdigit() else document)
    if found is None:
        raise HTTPException(
            404, "There is no such document; /api/v1/studies/{uid}/documents lists a study's."
        )
    deed.about(Thing.DOCUMENT, found["id"]).study_instance_uid = found["study_instance_uid"]
    return _bytes_of(found)


@router.get(
    "/studies/{study_instance_uid}/results/{result}",
    response_class=Response,
    responses={
        200: {
            "description": "The bytes that were stored.",
            "content": {name: _MEDIA_TYPES[name] for name in _FORMS},
        },
        **documented(404, 406),
    },
    summary="One result in the form that Accept asks for",
)
@performs(Verb.READ_REPORT)
def get_result(
    parts: PartsHere,
    deed: DeedHere,
    study_instance_uid: StudyUid,
    result: ResultKey,
    request: Request,
) -> Response:
    """Return the stored document of a result by its media type: JSON, or a FHIR Bundle."""
    listed = parts.views.documents(study_instance_uid)
    if listed is None:
        raise HTTPException(404, _NO_STUDY)
    papers = [item for item in listed if item["result_id"] == result]
    if not papers:
        raise HTTPException(
            404,
            "The study has no such result, or its documents are not made yet; `results` of"
            " /api/v1/studies/{uid} lists them.",
        )
    forms = {item["media_type"]: item for item in papers if item["kind"] in _FORMS.values()}
    wanted = preferred(
        ",".join(request.headers.getlist("accept")), [name for name in _FORMS if name in forms]
    )
    if wanted is None:
        raise HTTPException(406, _not_stored(forms))
    found = parts.views.document(forms[wanted]["id"])
    if found is None:
        raise HTTPException(404, "The document was erased with its patient or study.")
    deed.about(Thing.DOCUMENT, found["id"]).study_instance_uid = study_instance_uid
    return _bytes_of(found, {"Vary": "Accept"})


def _not_stored(forms: Iterable[str]) -> str:
    """Return the advice on a form that a result does not have."""
    return (
        f"This result is stored as {', '.join(forms) or 'DICOM alone'}. Another form is made with"
        " the result, if a destination takes it: name it in destinations.<name>.documents."
    )


def _bytes_of(found: Item, headers: Mapping[str, str] | None = None) -> Response:
    """Return a document as it is stored."""
    name = f"{found['sop_instance_uid'] or found['id']}.{kind_of(found['kind']).suffix}"
    return Response(
        found["content"],
        media_type=found["media_type"],
        headers={"Content-Disposition": f'inline; filename="{name}"', **(headers or {})},
    )
