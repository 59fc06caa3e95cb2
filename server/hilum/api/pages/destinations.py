"""`/destinations`: receivers of reports, their problems, and buttons.

Each button does the same as REST.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from hilum.api.answers.operations import RequeueOrder
from hilum.api.audited_actions import DeedHere
from hilum.api.dependencies import Dependencies, PartsHere
from hilum.api.guard import guarded
from hilum.api.pages.destination_boxes import destination_box
from hilum.api.pages.formatting import local
from hilum.api.pages.forms import form_of
from hilum.api.pages.templating import PageRoute, page
from hilum.api.routes import interventions, operations
from hilum.api.routes import probe as probing
from hilum.api.routes.probe import DestinationName
from hilum.domain import Scope
from hilum.store.audit.log import Deed
from hilum.verbs import NoVerb, Verb, performs

_PAGE: Final = "/destinations"
Done = Literal["", "paused", "resumed", "requeued", "forgotten"]
_SAID: Final[Mapping[str, str]] = {
    "paused": "is paused. Documents wait until it is resumed.",
    "resumed": "is in use again. What waited is sent.",
}
Name = Annotated[str, Query(pattern=r"^[A-Za-z0-9_-]{0,64}$")]


def destination_pages() -> tuple[APIRouter, APIRouter]:
    """The sources of the page, and the actions of its buttons."""
    reading = APIRouter(
        route_class=PageRoute, include_in_schema=False, dependencies=guarded(Scope.READ)
    )
    changing = [*guarded(Scope.OPERATE), Depends(_can_change)]
    writing = APIRouter(route_class=PageRoute, include_in_schema=False, dependencies=changing)
    reading.add_api_route(_PAGE, destinations)
    for verb, endpoint in (
        ("probe", probe),
        ("pause", pause),
        ("resume", resume),
        ("requeue", requeue),
        ("forget", forget),
    ):
        writing.add_api_route(f"{_PAGE}/{{name}}/{verb}", endpoint, methods=["POST"])
    return reading, writing


async def _can_change(parts: PartsHere) -> None:
    if parts.interventions is None or parts.requeue is None or parts.probe is None:
        raise HTTPException(404, "This process cannot change the ledger.")


@performs(NoVerb("it shows queues, and no study"))
def destinations(
    parts: PartsHere, done: Done = "", name: Name = "", count: Annotated[int, Query(ge=0)] = 0
) -> Response:
    """Show every destination. `done` to `name`: the action of a button just now."""
    return _page(parts, _said(done, name, count))


@performs(Verb.PROBE)
def probe(parts: PartsHere, name: DestinationName) -> Response:
    """Probe the destination and show its answer."""
    return _page(parts, probed=probing.probe_destination(parts, name))


@performs(Verb.PAUSE)
def pause(parts: PartsHere, deed: DeedHere, name: DestinationName) -> Response:
    """Send it nothing more until it is resumed."""
    interventions.pause_destination(parts, deed, name)
    return _back("paused", name)


@performs(Verb.RESUME)
def resume(parts: PartsHere, deed: DeedHere, name: DestinationName) -> Response:
    """Resume sending to the destination."""
    interventions.resume_destination(parts, deed, name)
    return _back("resumed", name)


@performs(Verb.REQUEUE)
async def requeue(
    parts: PartsHere, deed: DeedHere, request: Request, name: DestinationName
) -> Response:
    """Documents that ended for one reason become due again."""
    field = form_of(await request.body())
    return await run_in_threadpool(_requeue, parts, deed, name, field("reason"))


@performs(Verb.FORGET_DESTINATION)
async def forget(
    parts: PartsHere, deed: DeedHere, request: Request, name: DestinationName
) -> Response:
    """Discard the queue of a destination that left the settings, if the form confirms it."""
    field = form_of(await request.body())
    return await run_in_threadpool(_forget, parts, deed, name, field)


def _requeue(parts: Dependencies, deed: Deed, name: str, reason: str) -> Response:
    try:
        order = RequeueOrder(stage="deliver", destination=name, reason=reason or None)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error
    return _back("requeued", name, operations.requeue(parts, deed, order)["requeued"])


def _forget(parts: Dependencies, deed: Deed, name: str, field: Callable[[str], str]) -> Response:
    if field("confirmed") != "yes":
        message = "it cannot be undone: confirm it on the page"
        raise RequestValidationError([{"type": "missing", "loc": ("confirmed",), "msg": message}])
    return _back(
        "forgotten", name, interventions.forget_destination(parts, deed, name)["cancelled"]
    )


def _back(done: Done, name: str, count: int | None = None) -> Response:
    """The page again, by a redirect: so that to load it anew does nothing again."""
    counted = {} if count is None else {"count": count}
    return RedirectResponse(f"{_PAGE}?{urlencode({'done': done, 'name': name, **counted})}", 303)


def _said(done: Done, name: str, count: int) -> str:
    if not done or not name:
        return ""
    if done in _SAID:
        return f"{name} {_SAID[done]}"
    documents = f"{count} {'document' if count == 1 else 'documents'}"
    if done == "forgotten":
        return f"{name}: {documents} given up."
    return f"{name}: {documents} due again." if count else f"{name}: no document is due again."


def _page(parts: Dependencies, said: str = "", probed: Mapping[str, Any] | None = None) -> Response:
    now = parts.clock()
    refusals = parts.refusals(parts.views.rollouts())
    return page(
        "destinations.html",
        section="destinations",
        boxes=[
            destination_box(item, now, refusals) for item in interventions.destination_states(parts)
        ],
        can_change=parts.interventions is not None,
        said=said,
        probed=probed,
        now=local(now),
    )
