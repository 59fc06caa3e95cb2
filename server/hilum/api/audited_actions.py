"""The verb of a request, on its way to a row of the audit.

Each route declares its verb with `performs`. A change writes its row in its own transaction, with
the deed that it gets here. A read writes its row when it is answered. A request that is not
admitted does nothing; a wrong token has its own verb.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any, Final

from fastapi import Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from hilum.api.auth.actor import actor_of
from hilum.domain import Actor, Channel
from hilum.store.audit.log import AuditLog, Deed
from hilum.verbs import MEANINGS, Thing, Verb, VerbOutcome, verb_of

_NOBODY: Final = Actor("", Channel.REST)
_NOT_ADMITTED: Final = (401, 403)
# The thing that each name in a path stands for; a study is the deed's own field.
_THINGS: Final[Mapping[str, Thing]] = {
    "sop_instance_uid": Thing.IMAGE,
    "document": Thing.DOCUMENT,
    "conflict": Thing.CONFLICT,
    "name": Thing.DESTINATION,
    "alias": Thing.ALIAS,
}
_NAMED_BY_VERB: Final[Mapping[Verb, Thing]] = {
    Verb.RUN_CAMPAIGN: Thing.CAMPAIGN,
    Verb.CHANGE_CAMPAIGN: Thing.CAMPAIGN,
}


def _deed(request: Request) -> Deed:
    """Of an admitted request: it names its actor."""
    deed: Deed = request.state.deed
    deed.actor = actor_of(request)
    return deed


DeedHere = Annotated[Deed, Depends(_deed)]


class AuditedRoute(APIRoute):
    """A route whose verb becomes a row, however it ends.

    One that declares no verb is served as it is.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's own, with the deed around."""
        handle = super().get_route_handler()
        verb = verb_of(self.endpoint)

        async def audited(request: Request) -> Response:
            if not isinstance(verb, Verb):
                return await handle(request)
            request.state.deed = _begun(request, verb)
            try:
                response = await handle(request)
            except Exception as error:
                await _end(request, _outcome_of(request, error))
                raise
            await _end(request, VerbOutcome.DONE)
            return response

        return audited


def _begun(request: Request, verb: Verb) -> Deed:
    deed = Deed(verb, _NOBODY, request.path_params.get("study_instance_uid"))
    for name, value in request.path_params.items():
        if name in _THINGS:
            deed.about(_NAMED_BY_VERB.get(verb, _THINGS[name]), value)
    return deed


def _outcome_of(request: Request, error: Exception) -> VerbOutcome | None:
    """Return the outcome of an error; None: the request was not admitted, so nothing was asked.

    A known actor without the needed scope is refused.
    """
    if (
        isinstance(error, HTTPException)
        and error.status_code in _NOT_ADMITTED
        and not hasattr(request.state, "actor")
    ):
        return None
    is_refusal = isinstance(error, RequestValidationError) or (
        isinstance(error, HTTPException) and error.status_code < 500
    )
    return VerbOutcome.REFUSED if is_refusal else VerbOutcome.FAILED


async def _end(request: Request, outcome: VerbOutcome | None) -> None:
    audit: AuditLog | None = request.app.state.parts.audit
    if audit is None or outcome is None:
        return
    deed = _deed(request)
    if not MEANINGS[deed.verb].is_look:
        await run_in_threadpool(audit.end, deed, outcome)
    elif outcome is VerbOutcome.DONE:  # data that was not shown was not read
        await run_in_threadpool(audit.looks.note, deed)
