"""Errors on the wire: application/problem+json (RFC 9457).

They hold a remedy, never a value that was sent, never a traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema
from sqlalchemy.exc import DatabaseError
from starlette.exceptions import HTTPException

from hilum.errors import Retry
from hilum.store.database.engines import AWAY, DAMAGED, RESTORE, is_damaged
from hilum.store.schema.cursor import BadCursor

MEDIA_TYPE = "application/problem+json"
HEADERS: Final = {
    "Cache-Control": "no-store",
    # Inline style: the one page that we have, /docs.
    "Content-Security-Policy": (
        "default-src 'none'; frame-ancestors 'none'; style-src 'unsafe-inline'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""On every response."""
_RETRY_SECONDS = 5.0


class Violation(BaseModel):
    """One thing wrong with a request."""

    place: str = Field(description="Where it stands.", examples=["query.limit"])
    detail: str


class Problem(BaseModel):
    """A problem detail (RFC 9457).

    `type` is about:blank: `title` is that of the HTTP status, `detail` holds the remedy.
    """

    type: str = "about:blank"
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str
    errors: list[Violation] | None = None


def schemas() -> dict[str, Any]:
    """OpenAPI schemas of problems."""
    _, document = models_json_schema(
        [(Problem, "serialization")], ref_template="#/components/schemas/{model}"
    )
    found: dict[str, Any] = document["$defs"]
    return found


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses for these statuses."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in statuses
    }


def problem(
    status: int,
    detail: str,
    errors: Sequence[Violation] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """The response of one problem."""
    body = Problem(
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        errors=list(errors) if errors else None,
    )
    return JSONResponse(body.model_dump(exclude_none=True), status, headers, media_type=MEDIA_TYPE)


def _on_http(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, error.detail, headers=error.headers)


def _on_invalid(_request: Request, error: Exception) -> JSONResponse:
    """Return the errors without Pydantic's own `input`, which may be a patient's name."""
    assert isinstance(error, RequestValidationError)
    found = [
        Violation(place=".".join(str(part) for part in item["loc"]), detail=_words(item))
        for item in error.errors()
    ]
    return problem(422, "The request is not valid; see errors.", found)


def _words(item: Mapping[str, Any]) -> str:
    # A JSON syntax error quotes the body; its position says enough.
    return (
        "not valid JSON"
        if item["type"] == "json_invalid"
        else str(item["msg"]).removeprefix("Value error, ")
    )


def _on_bad_cursor(_request: Request, error: Exception) -> JSONResponse:
    found = Violation(place="query.cursor", detail=f"{error}; leave it out for the first page")
    return problem(422, "The request is not valid; see errors.", [found])


def _on_retry(_request: Request, error: Exception) -> JSONResponse:
    """503. The words of a database's own error stay in the log."""
    if is_damaged(error) or (
        error.__cause__ is not None and is_damaged(error.__cause__)
    ):  # views raise Retry for each database error
        return problem(503, f"{DAMAGED}. {RESTORE}")  # without a time: no later try mends it
    seconds = (error.after_seconds if isinstance(error, Retry) else None) or _RETRY_SECONDS
    detail = error.detail if isinstance(error, Retry) else "the ledger does not answer"
    return problem(
        503, f"{detail}; try again later", headers={"Retry-After": str(max(1, round(seconds)))}
    )


def _on_database(request: Request, error: Exception) -> JSONResponse:
    """Re-raise an error that is not damage: a bug is to be seen with its traceback."""
    if not is_damaged(error):
        raise error
    return _on_retry(request, error)


def _on_bug(_request: Request, _error: Exception) -> JSONResponse:
    # Starlette answers bugs outside of all middleware.
    return problem(500, "An error of the server; its log has the details.", headers=HEADERS)


_ANSWERS: Final[Mapping[type[Exception], Callable[[Request, Exception], JSONResponse]]] = {
    HTTPException: _on_http,
    RequestValidationError: _on_invalid,
    BadCursor: _on_bad_cursor,
    **dict.fromkeys((Retry, *AWAY), _on_retry),
    DatabaseError: _on_database,  # behind those of AWAY that are of its kind
}
EXPECTED: Final = tuple(_ANSWERS)
"""Errors that have an answer of their own; anything else is a bug."""


def answer(request: Request, error: Exception) -> JSONResponse:
    """The problem of an expected error."""
    return next(handler for kind, handler in _ANSWERS.items() if isinstance(error, kind))(
        request, error
    )


def install(app: FastAPI) -> None:
    """Answer every error of this application as a problem."""
    for kind, handler in _ANSWERS.items():
        app.add_exception_handler(kind, handler)
    app.add_exception_handler(Exception, _on_bug)
