"""Who may read, and what may be asked.

A bearer token where one is set, else only callers that address this host by a loopback name. No unknown query parameter: a
filter with a typo must not answer with everything.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException

_BEARER = HTTPBearer(auto_error=False, description="The token of the setting api.token. Not needed where none is set.")
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def admit(token: str) -> Callable[..., None]:
    """A dependency that lets a request pass or raises 401 or 403."""

    def check(request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]) -> None:
        if token:
            _require(token, credentials)
        elif (request.url.hostname or "") not in _LOOPBACK_NAMES:
            # A page in a browser on this machine could reach us under a name of its own (DNS rebinding) and read patient data.
            raise HTTPException(403, "Without a token only loopback names are answered: use 127.0.0.1, or set HILUM_API__TOKEN.")

    return check


def only_known_parameters(request: Request) -> None:
    """Raise RequestValidationError if the query names a parameter that this route does not have."""
    known = [field.alias for field in request.scope["route"].dependant.query_params]
    if set(request.query_params) - set(known):
        message = f"unknown parameter; known here: {', '.join(known) or 'none'}"
        raise RequestValidationError([{"type": "extra_forbidden", "loc": ("query",), "msg": message}])


def _require(token: str, credentials: HTTPAuthorizationCredentials | None) -> None:
    given = credentials.credentials.encode() if credentials else b""
    if not secrets.compare_digest(given, token.encode()):  # as long for a near miss as for a far one
        raise HTTPException(401, "Give the token: Authorization: Bearer <api.token>.", {"WWW-Authenticate": "Bearer"})
