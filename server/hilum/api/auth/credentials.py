"""The token that a request shows, as Bearer or as the password of HTTP Basic."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from fastapi import Request


@dataclass(frozen=True, slots=True)
class Credential:
    """A token as it was sent.

    `user`: the user name of HTTP Basic, which is a name to show and proves nothing.
    """

    secret: str
    user: str = ""


def credential_of(request: Request) -> Credential | None:
    """Return the credential in Authorization (RFC 6750, RFC 7617).

    None: there is no such header. A header that cannot be read is an empty secret.
    """
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    given = given.strip()
    if not given:
        return None
    if scheme.lower() == "bearer":
        return Credential(_text(given.encode("latin-1")))
    return _of_basic(given) if scheme.lower() == "basic" else Credential("")


def _of_basic(encoded: str) -> Credential:
    try:
        user, _, password = base64.b64decode(encoded, validate=True).partition(b":")
    except ValueError:
        return Credential("")
    return Credential(_text(password), _text(user))


def _text(sent: bytes) -> str:
    """Return the text as it was sent: bytes that are not UTF-8 are kept and match no token."""
    return sent.decode("utf-8", "surrogateescape")
