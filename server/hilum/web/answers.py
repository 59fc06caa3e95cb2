"""What the head of an answer says about the next request, and an answer that is read whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime

import httpx


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer with its whole body. `retry_after`: seconds that it asks for; None: it does not.

    `location`: where it redirects to. `warning`: its Warning header, which may name anything.
    """

    status: int
    media_type: str = ""
    body: bytes = b""
    retry_after: float | None = None
    location: str = ""
    warning: str = ""

    @property
    def is_success(self) -> bool:
        """Whether the status is one of 2xx."""
        return 200 <= self.status < 300


def media_type_of(response: httpx.Response) -> str:
    """Return the media type of a body in lower case; empty: it has none, or not a usable one."""
    value = response.headers.get("content-type", "")
    message = Message()
    message["content-type"] = value
    return message.get_content_type() if "/" in value else ""


def retry_after(
    response: httpx.Response, now: Callable[[], datetime] | None = None
) -> float | None:
    """Return the seconds of Retry-After, which is a number or a date (RFC 9110 10.2.3)."""
    value = response.headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}", value):
        return float(value)
    try:
        until = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - (now or _now)()).total_seconds())


def _now() -> datetime:
    return datetime.now(UTC)
