"""Who may read, and what may be asked.

A token where one is set (Bearer, or as the password of HTTP Basic: a browser asks for that by itself), else only callers that
address this host by a loopback name. Nothing is changed for a page of another site. No unknown query parameter, and none twice that
is no list: a filter with a typo must not answer with everything, nor one of two as if it were both.
"""

from __future__ import annotations

import base64
import secrets
from collections import Counter
from collections.abc import Callable
from typing import Annotated, get_args, get_origin
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException

_BEARER = HTTPBearer(auto_error=False, description="The token of the setting api.token. Not needed where none is set.")
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_READING = frozenset({"GET", "HEAD"})
API_CHALLENGE = "Bearer"
PAGE_CHALLENGE = 'Basic realm="Hilum", charset="UTF-8"'


def admit(token: str, challenge: str = API_CHALLENGE) -> Callable[..., None]:
    """A dependency that lets a request pass or raises 401 with this challenge, or 403."""

    def check(request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]) -> None:
        if token:
            given = credentials.credentials.encode("latin-1") if credentials else _password(request.headers.get("authorization", ""))
            _require(token, given, challenge)
        elif (request.url.hostname or "") not in _LOOPBACK_NAMES:
            # A page in a browser on this machine could reach us under a name of its own (DNS rebinding) and read patient data.
            raise HTTPException(403, "Without a token only loopback names are answered: use 127.0.0.1, or set HILUM_API__TOKEN.")

    return check


def refuse_other_sites(request: Request) -> None:
    """Raise 403 if a browser sends a change for a page that is not ours: it adds the password by itself, whoever asks.

    Browsers say who asks in Sec-Fetch-Site, on plain HTTP only in Origin. Programs send neither.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if request.method in _READING or site in ("same-origin", "none") or (site is None and origin is None):
        return
    if site is None and _host_of(origin or "") == request.headers.get("host"):
        return
    raise HTTPException(403, "A page of another site cannot change anything here.")


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # no URL
        return None


def only_known_parameters(request: Request) -> None:
    """Raise RequestValidationError if the query names a parameter that this route does not have, or one twice that is no list."""
    known = {field.alias: field.field_info.annotation for field in request.scope["route"].dependant.query_params}
    given = Counter(name for name, _ in request.query_params.multi_items())
    if given.keys() - known.keys():
        message = f"unknown parameter; known here: {', '.join(known) or 'none'}"
        raise RequestValidationError([{"type": "extra_forbidden", "loc": ("query",), "msg": message}])
    repeated = [name for name, times in given.items() if times > 1 and not _is_list(known[name])]
    if repeated:
        message = "given more than once; give it once"
        raise RequestValidationError([{"type": "repeated", "loc": ("query", name), "msg": message} for name in repeated])


def _is_list(annotation: object) -> bool:
    """Also where it may be None."""
    return list in {get_origin(kind) for kind in (annotation, *get_args(annotation))}


def _password(authorization: str) -> bytes:
    """The password of HTTP Basic (RFC 7617), whatever the user's name; empty if there is none."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(encoded, validate=True).partition(b":")[2]
    except ValueError:
        return b""


def _require(token: str, given: bytes, challenge: str) -> None:
    if not secrets.compare_digest(given, token.encode()):  # as long for a near miss as for a far one
        advice = "Give the token: Authorization: Bearer <api.token>." if challenge == API_CHALLENGE else "Give api.token as the password."
        raise HTTPException(401, advice, {"WWW-Authenticate": challenge})
