"""The middleware around every request.

It bounds the body, measures the duration, and adds headers that browsers heed.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hilum.api.problems import HEADERS, problem
from hilum.api.routes import stow
from hilum.observability.telemetry import REQUEST_SECONDS

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_MAXIMUM_BODY_BYTES: Final = (
    65536  # bodies are small, and are read into memory before a token is checked
)
STREAMED: Final = f"{stow.PREFIX}/"
# for all of such a body; one that is streamed has limits of its own
# (receive.network_timeout_seconds)
_BODY_SECONDS: Final = 20.0
_LENGTH_DIGITS = 12  # more is too long whatever the number, and no reason to convert it


class Around:
    """Our outermost ASGI middleware, so that errors are also measured and get the headers."""

    def __init__(self, app: ASGIApp, body_seconds: float = _BODY_SECONDS) -> None:
        self._app = app
        self._body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse its body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        is_head = scope["method"] == "HEAD"
        method = _method(scope)
        if is_head:
            scope = {
                **scope,
                "method": "GET",
            }  # the same answer without content (RFC 9110 9.3.2)

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _guard(MutableHeaders(scope=message))
            elif is_head:
                message = {**message, "body": b""}
            await send(message)

        try:
            await (_refusal(scope) or await self._with_body(scope, receive))(
                scope, receive, send_guarded
            )
        finally:
            REQUEST_SECONDS.labels(_route(scope), method, str(status)).observe(
                time.perf_counter() - started
            )

    async def _with_body(self, scope: Scope, receive: Receive) -> ASGIApp:
        """Return the application with the whole body of the request, or a 408.

        A streamed request passes as it is.
        """
        if (
            scope["path"].startswith(STREAMED)
            or Headers(scope=scope).get("content-length", "0") == "0"
        ):
            return self._app
        try:
            async with asyncio.timeout(self._body_seconds):
                first: Message | None = await _whole(receive)
        except TimeoutError:
            return problem(
                408,
                f"The body did not come within {self._body_seconds:g} s.",
                headers={"Connection": "close"},
            )

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            async def replay() -> Message:
                nonlocal first
                message = first
                first = None
                return message or await receive()

            await self._app(scope, replay, send)

        return answer


async def _whole(receive: Receive) -> Message:
    """The body as one message, or that the peer has gone."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return {**message, "body": body} if message["type"] == "http.request" else message


def _guard(headers: MutableHeaders) -> None:
    """Add the security headers. A page may extend the policy for its own browser."""
    for name, value in HEADERS.items():
        headers.setdefault(name, value)


def _refusal(scope: Scope) -> Response | None:
    """The answer to a body that is too large, or that does not say how large it is.

    Images are streamed, and bounded by the disk.
    """
    if scope["path"].startswith(STREAMED):
        return None
    headers = Headers(scope=scope)
    if "transfer-encoding" in headers:
        return problem(411, "Send the body with Content-Length, not in chunks.")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        return problem(
            422, "Content-Length must be a number."
        )  # a real server refuses it before us
    if len(length) > _LENGTH_DIGITS or int(length) > _MAXIMUM_BODY_BYTES:
        return problem(413, f"Send at most {_MAXIMUM_BODY_BYTES} bytes.")
    return None


def _route(scope: Scope) -> str:
    """The route's template, never the path.

    That holds UIDs, and a scanner would make a label of every guess.
    """
    return str(getattr(scope.get("route"), "path", "other"))


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in _METHODS else "other"
