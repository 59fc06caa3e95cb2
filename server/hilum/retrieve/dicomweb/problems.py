"""HTTP answers that are no result, as errors with advice."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import httpx
import orjson

from hilum.retrieve.source import SourceError
from hilum.web.answers import retry_after
from hilum.web.problems import HttpError

_LONGEST_WORD: Final = 200
_NOT_SHOWN: Final = re.compile(r"[^\x20-\x7e]+|\s+")
# Members of an error in JSON that hold its text, in the order of preference.
_MEMBERS: Final = ("Details", "detail", "message", "Message", "errorMessage", "title", "error")


class SilentSource(SourceError):
    """No byte came for the time of a message. It may be this series alone, so it is no outage."""


def source_error(error: HttpError) -> SourceError:
    """Return the error of a request as one of the source."""
    kind = SilentSource if error.is_silent else SourceError
    return kind(error.detail, is_outage=error.is_outage, is_final=error.is_final)


@dataclass(frozen=True, slots=True)
class _Meaning:
    """The advice for one status."""

    advice: str
    is_outage: bool = False
    is_final: bool = False


# Outages and final problems are those that every request would meet: a series that is forbidden,
# deleted or slow must not keep the others from being read.
_MEANINGS: Final = {
    400: _Meaning(
        "it refuses the request; a key that it does not know belongs in `ignores`, and a lower"
        " `maximum_results` keeps within its limit"
    ),
    401: _Meaning(
        "it wants other credentials: correct user, token_file or oauth_client_id of this source",
        is_outage=True,
        is_final=True,
    ),
    403: _Meaning("our account may not read this there; have it allowed"),
    404: _Meaning("it does not know this; if it should, check `url` of this source"),
    406: _Meaning("it cannot send this as DICOM files; have WADO-RS enabled there"),
    408: _Meaning("it waited too long for us; try again later"),
    410: _Meaning("it had this and has deleted it"),
    413: _Meaning("the answer would be too large for it; ask for less"),
    429: _Meaning("it is asked too often; lower `utilisation`", is_outage=True),
    501: _Meaning("it does not support this request; check `url` of this source"),
    502: _Meaning("the server behind its gateway does not answer", is_outage=True),
    503: _Meaning("it is overloaded or down", is_outage=True),
    504: _Meaning("its gateway waited too long for the server; allow it more seconds there"),
}
_UNEXPECTED: Final = _Meaning("its own log has the reason")


def status_problem(response: httpx.Response, word: str = "") -> SourceError:
    """Return the error for a status that is no success. `word`: the server's own text."""
    status = response.status_code
    meaning = _MEANINGS.get(status, _UNEXPECTED)
    text = f"HTTP {status}: {meaning.advice}"
    if word:
        text += f" (it says: {word})"
    seconds = retry_after(response)
    if meaning.is_outage and seconds is not None:
        text += f"; it asks to come back in {seconds:.0f} s"
    return SourceError(text, is_outage=meaning.is_outage, is_final=meaning.is_final)


def server_word(content: bytes, media_type: str) -> str:
    """Return the server's text about an error, on one line; empty: it gave none for people."""
    text = content.decode("utf-8", errors="replace")
    if "json" in media_type:
        text = _json_word(content)
    elif not media_type.startswith("text/plain"):
        return ""
    return _NOT_SHOWN.sub(" ", text).strip()[:_LONGEST_WORD]


def _json_word(content: bytes) -> str:
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(document, dict):
        return ""
    texts = (document.get(name) for name in _MEMBERS)
    return next((text for text in texts if isinstance(text, str) and text), "")
