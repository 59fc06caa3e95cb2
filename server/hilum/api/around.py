"""What happens around every request: its size is bounded, its duration becomes a metric, its response gets headers that browsers heed."""

from __future__ import annotations

import time
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hilum.api import stow
from hilum.api.problems import HEADERS, problem
from hilum.telemetry import REQUEST_SECONDS

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_MAXIMUM_BODY_BYTES: Final = 65536  # orders are small; a body is read into memory before anybody has shown a token
_STREAMED: Final = f"{stow.PREFIX}/"
_LENGTH_DIGITS = 12  # more is too long whatever the number, and no reason to convert it


class Around:
    """ASGI middleware, outermost of ours: also errors are measured and guarded."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse its body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        is_head, method = scope["method"] == "HEAD", _method(scope)
        if is_head:
            scope = {**scope, "method": "GET"}  # answered alike, without content (RFC 9110 9.3.2); the web server's own stays as it is

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _guard(MutableHeaders(scope=message))
            elif is_head:
                message = {**message, "body": b""}
            await send(message)

        try:
            await (_refusal(scope) or self._app)(scope, receive, send_guarded)
        finally:
            REQUEST_SECONDS.labels(_route(scope), method, str(status)).observe(time.perf_counter() - started)


def _guard(headers: MutableHeaders) -> None:
    """A page may say what else its own browser shall allow; nothing goes without."""
    for name, value in HEADERS.items():
        headers.setdefault(name, value)


def _refusal(scope: Scope) -> Response | None:
    """The answer to a body that is too large, or that does not say how large it is. Images are streamed, and bounded by the disk."""
    if scope["path"].startswith(_STREAMED):
        return None
    headers = Headers(scope=scope)
    if "transfer-encoding" in headers:
        return problem(411, "Send the body with Content-Length, not in chunks.")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        return problem(422, "Content-Length must be a number.")  # a real server refuses it before us
    if len(length) > _LENGTH_DIGITS or int(length) > _MAXIMUM_BODY_BYTES:
        return problem(413, f"Send at most {_MAXIMUM_BODY_BYTES} bytes.")
    return None


def _route(scope: Scope) -> str:
    """The route's template, never the path: that holds UIDs (promise 10), and a scanner would make a label of every guess."""
    return str(getattr(scope.get("route"), "path", "other"))


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in _METHODS else "other"
