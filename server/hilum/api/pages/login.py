"""`/login` and `/logout`.

A browser shows a token, or the code of a link, once and gets the cookie of a session.
"""

from __future__ import annotations

from typing import Annotated, Final

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import RedirectResponse

from hilum.api.auth.access import Access
from hilum.api.auth.actor import actor_of, set_actor
from hilum.api.auth.credentials import Credential
from hilum.api.auth.sessions import SESSION_SECONDS
from hilum.api.dependencies import Dependencies, PartsHere
from hilum.api.guard import (
    THREADS,
    address_of,
    holder_of,
    name_shown,
    only_known_parameters,
    refuse_other_sites,
)
from hilum.api.pages.forms import form_of
from hilum.api.pages.templating import PageRoute, login_page, page
from hilum.domain import AccessToken
from hilum.observability.telemetry import logger
from hilum.verbs import NoVerb, Verb, performs

router = APIRouter(
    route_class=PageRoute,
    include_in_schema=False,
    dependencies=[Depends(refuse_other_sites), Depends(only_known_parameters)],
)
Code = Annotated[str | None, Query(max_length=64, pattern=r"^[A-Za-z0-9_-]*$")]
_NAME_CHARACTERS: Final = 31  # as the form has it; a browser keeps no cookie above 4 KiB
log = logger("api")


@router.get("/login")
@performs(NoVerb("it shows the form; a login by link writes its own row"))
async def show(request: Request, parts: PartsHere, code: Code = None) -> Response:
    """The form, or the way in of a link. A link is spent by its first use."""
    if code is None:
        holder = await holder_of(request)
        return login_page("/", name=holder.name if holder else "")
    user = await run_sync(parts.access.links.redeem, code, limiter=THREADS)
    if user is None:
        return login_page(
            "/",
            status=401,
            said="This link was used already, or is too old. `hilum login` prints a new one.",
        )
    await _note_login(request, parts, user)
    # A page and no redirect: the cookie is of this site alone, and a browser may have come here
    # from another one.
    return _begun(
        request, parts.access, page("welcome.html", section="login"), parts.access.local, user
    )


async def _note_login(request: Request, parts: Dependencies, user: str) -> None:
    """Of a link. A form's is written by its route."""
    set_actor(request, name_shown(parts.access.local, Credential("", user)))
    if parts.audit is not None:
        await run_sync(parts.audit.note, Verb.LOGIN, actor_of(request), limiter=THREADS)


@router.post("/login")
@performs(Verb.LOGIN)
async def log_in(request: Request, parts: PartsHere) -> Response:
    """Begin a session with a token. The name is one to show beside the token's."""
    form = form_of(await request.body())
    given = Credential(form("token").strip(), form("name")[:_NAME_CHARACTERS])
    token = await run_sync(parts.access.token_of, given, address_of(request), limiter=THREADS)
    set_actor(request, name_shown(token, given))
    return _begun(
        request, parts.access, RedirectResponse(_own_path(form("next")), 303), token, given.user
    )


@router.post("/logout")
@performs(Verb.LOGOUT)
async def log_out(request: Request, parts: PartsHere) -> Response:
    """End the session: its cookie opens nothing any more."""
    if (holder := await holder_of(request)) is not None:
        set_actor(request, holder.name)
    response = RedirectResponse("/login", 303)
    if (
        session := parts.access.sessions.read(request.cookies.get(parts.access.cookie_name, ""))
    ) is not None:
        parts.access.sessions.end(session)
    response.delete_cookie(parts.access.cookie_name)
    return response


def _begun(
    request: Request, access: Access, response: Response, token: AccessToken, user: str
) -> Response:
    log.info("logged_in", token=token.name, address=address_of(request))
    response.set_cookie(
        access.cookie_name,
        access.sessions.begin(token, user),
        max_age=SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


def _own_path(path: str) -> str:
    """Return a path of this server.

    Browsers take two slashes, or a backslash, for the beginning of another host's name.
    """
    return (
        path
        if path.startswith("/")
        and not path.startswith("//")
        and path.isprintable()
        and "\\" not in path
        else "/"
    )
