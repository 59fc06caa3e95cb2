"""`/` and the pages behind it. Reading needs no script; each page is one snapshot of the ledger.

Identifiers, where they are shown, are read right after it.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from hilum.api.answers.operations import RequeueOrder
from hilum.api.audited_actions import DeedHere
from hilum.api.dependencies import Dependencies, PartsHere
from hilum.api.fields import UID_PATTERN, Cursor, StudyUid
from hilum.api.guard import guarded
from hilum.api.identifiers import identifiers_shown
from hilum.api.pages.campaigns.campaign_pages import campaign_pages
from hilum.api.pages.destinations import destination_pages
from hilum.api.pages.find_page import find_form, find_studies
from hilum.api.pages.formatting import association_chip, local, moment
from hilum.api.pages.forms import form_of
from hilum.api.pages.front_page import front_page
from hilum.api.pages.pictures import Picture, Pictures
from hilum.api.pages.render_process import NoPicture
from hilum.api.pages.study_page import study_page
from hilum.api.pages.templating import ICON, PageRoute, no_picture, page, png
from hilum.api.routes import operations
from hilum.api.routes import resend as resending
from hilum.domain import Scope
from hilum.store.audit.log import AuditFilter, Deed
from hilum.verbs import NoVerb, Verb, performs

_STUDIES = 50
_DEEDS = 20
_NO_STUDY = NoVerb("it shows senders, and no study")
_MISSING = (
    "No image of this study is stored here: it never came, was refused, or was erased. The page on"
    " associations says what was refused; send the study again."
)
ImageUid = Annotated[str, Path(pattern=UID_PATTERN, max_length=64)]
DocumentId = Annotated[int, Path(ge=1)]


def pages(pictures: Pictures) -> APIRouter:
    """All pages. Without a session they answer with the form to log in."""
    router = APIRouter(
        route_class=PageRoute, include_in_schema=False, dependencies=guarded(Scope.READ)
    )
    writing = APIRouter(
        route_class=PageRoute, include_in_schema=False, dependencies=guarded(Scope.OPERATE)
    )
    router.add_api_route("/", front_page)
    router.add_api_route("/find", find_form)
    router.add_api_route("/find", find_studies, methods=["POST"])
    router.add_api_route("/studies/{study_instance_uid}", one_study)
    writing.add_api_route("/studies/{study_instance_uid}/requeue", requeue, methods=["POST"])
    writing.add_api_route("/studies/{study_instance_uid}/resend", resend, methods=["POST"])
    router.add_api_route("/associations", associations)

    @router.get("/studies/{study_instance_uid}/images/{sop_instance_uid}.png")
    @performs(Verb.READ_IMAGE)
    def image(study_instance_uid: StudyUid, sop_instance_uid: ImageUid) -> Response:
        return _picture(pictures.image(study_instance_uid, sop_instance_uid))

    @router.get("/documents/{document}.png")
    @performs(Verb.READ_REPORT)
    def document(deed: DeedHere, document: DocumentId) -> Response:
        return _picture(pictures.document(document, deed))

    whole = APIRouter()
    for part in (router, writing, *campaign_pages(), *destination_pages()):
        whole.include_router(part)
    return whole


def icon() -> Response:
    """Return the icon, without a credential, because browsers fetch it without one."""
    return Response(ICON, media_type="image/svg+xml")


@performs(Verb.READ_STUDY)
def one_study(
    parts: PartsHere,
    deed: DeedHere,
    study_instance_uid: StudyUid,
    requeued: Annotated[int | None, Query(ge=0)] = None,
) -> Response:
    """Images, findings, provenance, timeline, requeue."""
    found = parts.views.study(study_instance_uid)
    if found is None:
        raise HTTPException(404, _MISSING)
    now = parts.clock()
    deeds = (
        parts.audit.list(AuditFilter(study_instance_uid=study_instance_uid), limit=_DEEDS)[0]
        if parts.audit
        else []
    )
    identifiers = identifiers_shown(parts, deed, [study_instance_uid]).get(study_instance_uid)
    shown = study_page(
        found,
        parts.releases,
        now,
        can_requeue=parts.requeue is not None,
        deeds=deeds,
        identifiers=identifiers,
    )
    disclaimer = parts.settings.report.disclaimer
    return page(
        "study.html",
        section="study",
        study=shown,
        requeued=requeued,
        now=local(now),
        disclaimer=disclaimer,
    )


@performs(Verb.REQUEUE)
async def requeue(
    parts: PartsHere, deed: DeedHere, request: Request, study_instance_uid: StudyUid
) -> Response:
    """Ended items of one stage of this study become due again, by the rules of REST.

    Then the page again.
    """
    order = _order(form_of(await request.body())("stage"), study_instance_uid)
    count = await run_in_threadpool(_requeue, parts, deed, order)
    return RedirectResponse(f"/studies/{study_instance_uid}?requeued={count}", 303)


@performs(Verb.RESEND)
async def resend(
    parts: PartsHere, deed: DeedHere, request: Request, study_instance_uid: StudyUid
) -> Response:
    """Send the delivered documents of this study to one destination again, by the rules of REST.

    The answer is the page of the study.
    """
    try:
        order = resending.ResendOrder.model_validate(
            {"destination": form_of(await request.body())("destination")}
        )
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error
    done = await run_in_threadpool(resending.resend, parts, deed, study_instance_uid, order)
    return RedirectResponse(f"/studies/{study_instance_uid}?requeued={len(done.due)}", 303)


def _order(stage: str, study_instance_uid: str) -> RequeueOrder:
    try:
        return RequeueOrder.model_validate(
            {"stage": stage, "study_instance_uid": study_instance_uid}
        )
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error


def _requeue(parts: Dependencies, deed: Deed, order: RequeueOrder) -> int:
    if parts.requeue is None:
        raise HTTPException(404, "This process cannot change the ledger.")
    count: int = operations.requeue(parts, deed, order)["requeued"]
    return count


@performs(_NO_STUDY)
def associations(
    parts: PartsHere,
    outcome: Annotated[str, Query(pattern=r"^[a-z_]{0,16}$")] = "",
    cursor: Cursor = None,
) -> Response:
    """Show each association: sender, refused objects, and the change that the sender needs."""
    found, next_cursor = parts.views.associations(
        outcome=outcome or None, limit=_STUDIES, cursor=cursor
    )
    now = parts.clock()
    older = urlencode({"outcome": outcome, "cursor": next_cursor}) if next_cursor else ""
    lines = [
        {**item, "started": moment(item["started_at"], now), "chip": association_chip(item)}
        for item in found
    ]
    return page(
        "associations.html",
        section="associations",
        lines=lines,
        outcome=outcome,
        is_first=cursor is None,
        older=older,
        now=local(now),
    )


def _picture(found: Picture | None) -> Response:
    if found is None:
        raise HTTPException(404, "There is no such picture.")
    return no_picture(found.reason) if isinstance(found, NoPicture) else png(found)
