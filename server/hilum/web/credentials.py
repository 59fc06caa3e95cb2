"""The Authorization header of a request: basic, a bearer token, or OAuth 2 client credentials.

Secrets are read when they are needed and stand in no error, log line or representation.
"""

from __future__ import annotations

import base64
import ipaddress
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote, urlsplit

import httpx
import orjson

from hilum.settings import HttpPeer
from hilum.web.body import bounded
from hilum.web.problems import HttpError, transport_problem

_SECRET_BYTES: Final = 64 << 10
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")
_ERROR_CODE: Final = re.compile(r"[a-z_]{1,40}")  # RFC 6749 5.2
_REFUSALS: Final = {400, 401, 403}
_LIFE_SECONDS: Final = 300.0  # of a token whose expires_in is missing
_USED_LIFE: Final = 0.8

OpenClient = Callable[[str], httpx.Client]
"""Returns a client for the host of a URL."""


class HttpCredentials(Protocol):
    """Makes the Authorization header. Errors: HttpError."""

    def header(self) -> str:
        """Return its value for the next request; empty: none."""

    def renew(self) -> bool:
        """After a 401: return whether another value is now there for one more try."""


def credentials_of(
    settings: HttpPeer,
    open_client: OpenClient,
    clock: Callable[[], float] = time.monotonic,
) -> HttpCredentials:
    """Return the credentials that the settings name."""
    if settings.oauth_url:
        return ClientCredentials(settings, open_client, clock)
    if settings.token_file is not None:
        return FileCredentials(settings, settings.token_file, _bearer)
    if settings.password_file is not None:
        user = settings.user
        return FileCredentials(settings, settings.password_file, lambda text: _basic(user, text))
    return NoCredentials()


class NoCredentials:
    """For a server that asks for none."""

    def header(self) -> str:
        """Return nothing."""
        return ""

    def renew(self) -> bool:
        """Return False: there is nothing to renew."""
        return False


class FileCredentials:
    """A password or a token in a file, which is read for each request: it may change."""

    def __init__(self, settings: HttpPeer, file: Path, header_of: Callable[[str], str]) -> None:
        self._settings = settings
        self._file = file
        self._header_of = header_of
        self._last = ""

    def header(self) -> str:
        """See `HttpCredentials`."""
        require_secrecy(self._settings, self._settings.url)
        self._last = self._header_of(read_secret(self._file))
        return self._last

    def renew(self) -> bool:
        """Return whether the file has changed since the last request."""
        before = self._last
        return self.header() != before


class ClientCredentials:
    """Tokens of an OAuth 2 server (RFC 6749 4.4), fetched anew at 80 % of their life.

    `clock`: seconds, for the life of a token.
    """

    def __init__(
        self, settings: HttpPeer, open_client: OpenClient, clock: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._open_client = open_client
        self._clock = clock
        self._token = ""
        self._renew_at = 0.0
        self._ends_at = 0.0

    def header(self) -> str:
        """See `HttpCredentials`. A token that still lives outlasts an outage of its server."""
        if not self._token or self._clock() >= self._renew_at:
            try:
                self._fetch()
            except HttpError:
                if not self._token or self._clock() >= self._ends_at:
                    raise
        return _bearer(self._token)

    def renew(self) -> bool:
        """Fetch another token."""
        self._token = ""
        self._fetch()
        return True

    def _fetch(self) -> None:
        require_secrecy(self._settings, self._settings.url)
        require_secrecy(self._settings, self._settings.oauth_url)
        asked_at = self._clock()
        answer = self._answer()
        life = _life(answer)
        self._token = _token(answer)
        self._renew_at = asked_at + _USED_LIFE * life
        self._ends_at = asked_at + life

    def _answer(self) -> dict[str, Any]:
        try:
            status, content = self._posted()
        except httpx.HTTPError as error:
            problem = transport_problem(error, has_begun=False)
            raise _oauth(problem.detail, is_final=problem.is_final) from error
        try:
            answer = orjson.loads(content)
        except orjson.JSONDecodeError:
            answer = None
        if status != httpx.codes.OK:
            raise _refused(status, answer)
        if not isinstance(answer, dict):
            raise _oauth("its answer is no JSON object; check oauth_url")
        return answer

    def _posted(self) -> tuple[int, bytes]:
        """Ask for a token; return the status and the body of the answer."""
        url = self._settings.oauth_url
        form = self._form()
        with (
            self._open_client(url) as client,
            client.stream("POST", url, data=form, headers=self._headers()) as response,
        ):
            return response.status_code, bounded(response, _SECRET_BYTES)

    def _form(self) -> dict[str, str]:
        scope = {"scope": self._settings.oauth_scope} if self._settings.oauth_scope else {}
        return {"grant_type": "client_credentials", **scope}

    def _headers(self) -> dict[str, str]:
        """Return the client's own authentication (RFC 6749 2.3.1)."""
        secret_file = self._settings.oauth_secret_file
        if secret_file is None:
            raise _oauth("oauth_secret_file is missing", is_final=True)
        client = quote(self._settings.oauth_client_id, safe="")
        return {
            "Authorization": _basic(client, quote(read_secret(secret_file), safe="")),
            "Accept": "application/json",
        }


def _token(answer: dict[str, Any]) -> str:
    token = answer.get("access_token")
    kind = answer.get("token_type")
    if not isinstance(token, str) or not isinstance(kind, str) or kind.lower() != "bearer":
        raise _oauth("it gives no bearer token")
    return token


def _life(answer: dict[str, Any]) -> float:
    """Return the seconds for which a token lives (RFC 6749 5.1)."""
    life = answer.get("expires_in", _LIFE_SECONDS)
    if isinstance(life, bool) or not isinstance(life, int | float) or life <= 0:
        raise _oauth("its expires_in is no number of seconds")
    return float(life)


def _refused(status: int, answer: object) -> HttpError:
    """Return the error for a status that is no success. The server's own text is not shown."""
    code = answer.get("error") if isinstance(answer, dict) else None
    if status in _REFUSALS and isinstance(code, str):
        shown = code if _ERROR_CODE.fullmatch(code) else "an unknown error"
        return _oauth(
            f"it refuses ({shown}); correct oauth_client_id, oauth_secret_file and oauth_scope",
            is_final=True,
        )
    return _oauth(f"HTTP {status}; check oauth_url, and its own log for the reason")


def _oauth(text: str, *, is_final: bool = False) -> HttpError:
    """Return an error of the token endpoint: without a token every request fails alike."""
    return HttpError(f"the token endpoint: {text}", is_outage=True, is_final=is_final)


def read_secret(file: Path) -> str:
    """Return a file's text without its line end. Raises HttpError; its text is not shown."""
    try:
        with file.open("rb") as opened:
            content = opened.read(_SECRET_BYTES + 1)
    except OSError as error:
        raise _unusable(file, f"cannot be read: {error.strerror}") from error
    try:
        text = content.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise _unusable(file, "is no text in UTF-8") from None  # the error would hold the bytes
    if not text or len(content) > _SECRET_BYTES:
        raise _unusable(file, "is empty or too long for a secret")
    return text


def _unusable(file: Path, text: str) -> HttpError:
    return HttpError(f"{file} {text}; correct it", is_outage=True, is_final=True)


def _basic(user: str, password: str) -> str:
    """RFC 7617."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode("ascii")


def _bearer(token: str) -> str:
    """RFC 6750 2.1."""
    if _VISIBLE.fullmatch(token) is None:
        raise HttpError(
            "the bearer token holds blanks or control characters; give the token alone",
            is_outage=True,
            is_final=True,
        )
    return f"Bearer {token}"


def require_secrecy(settings: HttpPeer, url: str) -> None:
    """Raise HttpError if secrets would go to another machine unencrypted."""
    parts = urlsplit(url)
    if parts.scheme == "https" or settings.allow_unencrypted or _is_loopback(parts.hostname or ""):
        return
    raise HttpError(
        f"secrets are not sent to {parts.hostname} over http://; use https://, or set"
        " allow_unencrypted = true there",
        is_outage=True,
        is_final=True,
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
