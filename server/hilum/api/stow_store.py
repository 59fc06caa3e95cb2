"""The interfaces of STOW-RS to the storage of parts, and to the record of refused requests."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException


class Stowed(Protocol):
    """The outcome of one part.

    `failure`: a status of PS3.4 B.2.3 that became a Failure Reason (PS3.18 I.2.2); None: the part
    is stored.
    """

    @property
    def sop_class_uid(self) -> str:
        """Empty: it did not say."""

    @property
    def sop_instance_uid(self) -> str:
        """Empty: it did not say."""

    @property
    def study_instance_uid(self) -> str:
        """Of an image that is stored; else empty."""

    @property
    def failure(self) -> int | None:
        """The reason."""

    @property
    def comment(self) -> str:
        """Return the change that the sender should make."""

    @property
    def is_transient(self) -> bool:
        """Whether the same part may be taken later."""


class Part(Protocol):
    """Stores one part. A fault of its content raises no exception. All methods block."""

    def write(self, piece: bytes) -> None:
        """The next bytes."""

    def end(self) -> Stowed:
        """There are no more: the object is durable, or refused."""

    def abandon(self) -> None:
        """The request has ended within it."""


class Visit(Protocol):
    """One request, treated as an association is, so that its refused objects are found later."""

    def refusal(self) -> str | None:
        """Return why no object can be taken now, or None. Blocks."""

    def begin(self, study_instance_uid: str | None) -> Part:
        """A new part; it must belong to the study, where one is given. Blocks."""

    def end(self, status: int, detail: str) -> None:
        """Record the answer of the request.

        `detail`: the change that the sender should make; empty where the answer is about parts.
        Never blocks.
        """


class Store(Protocol):
    """Where parts go."""

    def open(self, peer_address: str) -> Visit:
        """A request. Never blocks."""

    def close(self, stowed: Sequence[Stowed]) -> None:
        """The request is over, and so are its studies: their images are all there. Blocks."""


class VisitedRoute(APIRoute):
    """A route with a visit for each request, `request.state.visit`, which also records refusals."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's own, with the visit around."""
        handle = super().get_route_handler()

        async def visited(request: Request) -> Response:
            store: Store = request.app.state.parts.store
            visit = request.state.visit = store.open(request.client.host if request.client else "")
            status = 500
            detail = "An error of the server; its log has the details."
            try:
                response = await handle(request)
                status = response.status_code
                detail = ""
            except HTTPException as error:
                status = error.status_code
                detail = str(error.detail)
                raise
            except RequestValidationError:
                status = 422
                detail = "The address is not that of a study, or has parameters: see the answer."
                raise
            finally:
                visit.end(status, detail)
            return response

        return visited
