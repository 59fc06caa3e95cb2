"""From a template to a response.

Everything is escaped. Nothing is loaded from elsewhere, and a header makes the browser enforce it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import FileSystemLoader
from markupsafe import Markup

from hilum import __version__
from hilum.api import problems
from hilum.api.audited_actions import AuditedRoute
from hilum.api.pages.formatting import picture_words
from hilum.html_page import environment

_FOLDER: Final = Path(__file__).parent
_STYLE: Final = (_FOLDER / "page.css").read_text(encoding="utf-8")
_SCRIPT: Final = (_FOLDER / "page.js").read_text(encoding="utf-8")
ICON: Final = (_FOLDER / "icon.svg").read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


HEADERS: Final = {
    # The one style and the one script stand in the page and are named by their digest: nothing that
    # slips in between runs.
    "Content-Security-Policy": (
        f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; img-src"
        " 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # Without a referrer, Origin of a form would be "null" (Fetch, 3.1), and a change by our own
    # page could not be told from others'.
    "Referrer-Policy": "same-origin",
}

_templates = environment(
    FileSystemLoader(_FOLDER / "templates"),
    {"first_capital": lambda text: text[:1].upper() + text[1:]},
)
_templates.globals.update(style=Markup(_STYLE), script=Markup(_SCRIPT), version=__version__)  # noqa: S704 - our own files


def page(template: str, status: int = 200, **context: Any) -> HTMLResponse:  # noqa: ANN401 - names of the template
    """An HTML page."""
    return HTMLResponse(_templates.get_template(template).render(**context), status, HEADERS)


def png(content: bytes) -> Response:
    """A picture."""
    return Response(content, media_type="image/png")


def no_picture(reason: str) -> Response:
    """Return an SVG with the reason why there is no picture, to stand in its place."""
    text = _templates.get_template("no_picture.svg").render(lines=_wrapped(picture_words(reason)))
    return Response(text, 410 if reason == "instance_missing" else 422, media_type="image/svg+xml")


def _wrapped(text: str, width: int = 34) -> list[str]:
    """Lines of about `width` characters: SVG does not break lines by itself."""
    lines = [""]
    for word in text.split():
        lines[-1:] = (
            [f"{lines[-1]} {word}".strip()]
            if len(lines[-1]) + len(word) < width
            else [lines[-1], word]
        )
    return lines


Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(AuditedRoute):
    """A route whose expected errors are pages too: a person reads them."""

    def get_route_handler(self) -> Handler:
        """The route's own handler, with its errors written as HTML."""
        handle = super().get_route_handler()

        async def handle_for_people(request: Request) -> Response:
            try:
                return await handle(request)
            except problems.EXPECTED as error:
                return _error_page(request, problems.answer(request, error))

        return handle_for_people


def login_page(wanted: str, status: int = 200, said: str = "", name: str = "") -> HTMLResponse:
    """Return the login form, which leads to `wanted`. `name`: the user of an open session."""
    return page("login.html", status, section="login", next=wanted, said=said, name=name)


def _error_page(request: Request, problem: Response) -> Response:
    said = json.loads(bytes(problem.body))
    response = _answer_to(request, problem.status_code, said)
    for name in ("www-authenticate", "retry-after"):
        if name in problem.headers:
            response.headers[name] = problem.headers[name]
    return response


def _answer_to(request: Request, status: int, said: dict[str, Any]) -> HTMLResponse:
    if status != HTTPStatus.UNAUTHORIZED:
        return page("error.html", status, section="", problem=said)
    if request.method != "GET":
        return login_page("/", status, "Log in with a valid token.")
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return login_page(
        wanted, status, "Log in with a valid token." if "authorization" in request.headers else ""
    )
