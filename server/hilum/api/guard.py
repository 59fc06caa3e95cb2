"""Authorisation of requests, and checks of their query parameters.

A request needs a token with the scope of its route: as Bearer, as the password of HTTP Basic, or by
a browser's session. A change that a browser makes for a page of another site is refused.

An unknown query parameter is refused, as is a repeated one that is not a list. Otherwise a filter
with a typo would match everything.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, get_args, get_origin

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.params import Depends as Dependency
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from hilum.api.auth.access import CHALLENGE, Access, refusal
from hilum.api.auth.actor import set_actor
from hilum.api.auth.credentials import Credential, credential_of
from hilum.api.auth.host_names import has_own_name
from hilum.api.dependencies import Dependencies
from hilum.domain import AccessToken, Scope
from hilum.settings import Api

# Of their own: requests that wait in all other threads must not keep scrapes and probes from being
# admitted.
THREADS: Final = CapacityLimiter(8)
_BEARER = HTTPBearer(
    auto_error=False,
    description="A token of `hilum token create`, or that of the setting api.token.",
)
_BearerHere = Annotated[
    HTTPAuthorizationCredentials | None, Depends(_BEARER)
]  # for the OpenAPI document; `credential_of` reads it
_READING: Final = frozenset({"GET", "HEAD"})
_NO_NAME_SIGN: Final = re.compile(r"[^A-Za-z0-9._@-]")
_NAME_CHARACTERS: Final = 64  # as long as the ledger's columns for names
# A cookie reaches every port of its host, and so another account's server there. It never opens
# irreversible actions.
_SESSION_SCOPE: Final = Scope.OPERATE


@dataclass(frozen=True, slots=True)
class Admission:
    """A dependency that lets a request pass or raises 401, 403 or 429.

    `is_open`: callers without a token also pass, under one of our host names.
    """

    scope: Scope
    is_open: Callable[[Api], bool] | None = None

    async def __call__(self, request: Request, _given: _BearerHere) -> None:
        """Store the actor for `actor_of`."""
        parts: Dependencies = request.app.state.parts
        if (holder := await holder_of(request)) is None:
            self._admit_stranger(request, parts.settings.api)
            return
        set_actor(request, holder.name)  # also of one that is refused: the audit names it
        if not holder.scope.includes(self.scope):
            raise refusal(
                403,
                "scope",
                f"This token is of the scope {holder.scope.value}; {self.scope.value} is needed.",
            )

    def _admit_stranger(self, request: Request, api: Api) -> None:
        if self.is_open is None or not self.is_open(api):
            raise refusal(
                401,
                "no_token",
                "Give a token: Authorization: Bearer <token>. `hilum token create` makes one.",
                CHALLENGE,
            )
        require_own_name(request, api)
        request.state.is_stranger = True


def guarded(scope: Scope) -> list[Dependency]:
    """The dependencies of each router: it declares the scope of the token that opens its routes.

    The token comes before all else.
    """
    return [Depends(Admission(scope)), Depends(refuse_other_sites), Depends(only_known_parameters)]


def is_stranger(request: Request) -> bool:
    """Whether it was admitted without a token."""
    return getattr(request.state, "is_stranger", False)


def require_own_name(request: Request, api: Api) -> None:
    """Raise 403 for a request under a name that is not ours."""
    if not has_own_name(request, api):
        raise refusal(
            403,
            "host",
            "Without a token only addresses, localhost and the names of api.names are answered.",
        )


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """The holder of a valid credential, and its scopes."""

    name: str
    scope: Scope


async def holder_of(request: Request) -> TokenHolder | None:
    """Return the holder of the token or session that a request shows.

    None: it shows neither. Raises HTTPException 401 or 429 for a wrong token, and Retry.
    """
    parts: Dependencies = request.app.state.parts
    if (credential := credential_of(request)) is not None:
        token = await run_sync(
            parts.access.token_of, credential, address_of(request), limiter=THREADS
        )
        return TokenHolder(name_shown(token, credential), token.scope)
    cookie = request.cookies.get(parts.access.cookie_name)
    return await run_sync(_of_cookie, parts.access, cookie, limiter=THREADS) if cookie else None


def _of_cookie(access: Access, cookie: str) -> TokenHolder | None:
    if (found := access.session_of(cookie)) is None:
        return None
    session, token = found
    scope = token.scope if _SESSION_SCOPE.includes(token.scope) else _SESSION_SCOPE
    return TokenHolder(name_shown(token, Credential("", session.user)), scope)


def address_of(request: Request) -> str:
    """Where it comes from; empty where the web server does not say."""
    return request.client.host if request.client else ""


def name_shown(token: AccessToken, credential: Credential) -> str:
    """The token's name, and behind it the name that its user has given."""
    user = _NO_NAME_SIGN.sub("", credential.user)
    return f"{token.name}/{user}"[:_NAME_CHARACTERS] if user else token.name


async def refuse_other_sites(request: Request) -> None:
    """Raise 403 if a browser sends a change for a page that is not ours.

    A browser adds password and cookie by itself, for any page. It names the page's site in
    Sec-Fetch-Site, and on plain HTTP only in Origin. Programs send neither header, and no cookie.
    """
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if request.method in _READING or site in ("same-origin", "none"):
        return
    if site is None and origin is None and not _has_session(request):
        return
    if site is None and origin == f"{request.url.scheme}://{request.headers.get('host')}":
        return
    raise refusal(403, "other_site", "A page of another site cannot change anything here.")


def _has_session(request: Request) -> bool:
    parts: Dependencies = request.app.state.parts
    return parts.access.cookie_name in request.cookies


async def only_known_parameters(request: Request) -> None:
    """Raise RequestValidationError for an unknown or repeated query parameter.

    A parameter that is a list may be repeated.
    """
    known = {
        field.alias: field.field_info.annotation
        for field in request.scope["route"].dependant.query_params
    }
    given = Counter(name for name, _ in request.query_params.multi_items())
    if given.keys() - known.keys():
        message = f"unknown parameter; known here: {', '.join(known) or 'none'}"
        raise RequestValidationError(
            [{"type": "extra_forbidden", "loc": ("query",), "msg": message}]
        )
    repeated = [name for name, times in given.items() if times > 1 and not _is_list(known[name])]
    if repeated:
        message = "given more than once; give it once"
        raise RequestValidationError(
            [{"type": "repeated", "loc": ("query", name), "msg": message} for name in repeated]
        )


def _is_list(annotation: object) -> bool:
    """Return whether the annotation is a list, also where it may be None."""
    return list in {get_origin(kind) for kind in (annotation, *get_args(annotation))}
