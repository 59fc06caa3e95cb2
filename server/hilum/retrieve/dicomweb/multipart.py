"""A multipart body, read piece by piece (RFC 2046 5.1); a part counts only with its end.

It knows no socket: bytes go in, and a sink gets the parts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.message import Message
from enum import Enum, auto
from typing import Final, Protocol

HEADER_BYTES: Final = 16 << 10
"""Of all headers of a part; real ones have some hundred."""
PREAMBLE_BYTES: Final = 64 << 10
"""Before the first part: text for people whose programs know no multipart."""
PART_BYTES: Final = 4 << 30
"""Of one part. The largest value of a DICOM element is as long (PS3.5 7.1.1)."""
_PADDING_BYTES: Final = 998  # blanks behind a delimiter: one line (RFC 5322 2.1.1)
# Behind the boundary: the two hyphens of the last one, or blanks and a line end.
_BEHIND: Final = re.compile(rb"(--)|[ \t]{0,%d}(?=\r\n)" % _PADDING_BYTES)
_BEHIND_SO_FAR: Final = re.compile(rb"-?|[ \t]{0,%d}\r?" % _PADDING_BYTES)
_BOUNDARY: Final = re.compile(r"[\x20-\x7e]{0,199}[\x21-\x7e]")
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FOLD: Final = re.compile(r"\r\n[ \t]+")


class MultipartError(Exception):
    """The body is no multipart body, or exceeds a bound. The text holds none of its bytes."""


class MultipartSink(Protocol):
    """Takes the parts of a body, one after the other."""

    def begin(self, headers: Mapping[str, str]) -> None:
        """Begin a part. Names of headers are in lower case."""

    def write(self, piece: bytes) -> None:
        """Take the next bytes of the part."""

    def end(self) -> None:
        """End the part: it is whole, for the delimiter behind it was read."""


def content_type(value: str) -> tuple[str, str]:
    """Return media type and boundary of a Content-Type header, each empty where there is none."""
    message = Message()
    message["content-type"] = value
    boundary = message.get_boundary("") or ""
    media_type = message.get_content_type() if "/" in value else ""
    return media_type, boundary


class _Place(Enum):
    PREAMBLE = auto()
    HEADERS = auto()
    DATA = auto()
    EPILOGUE = auto()


class MultipartReader:
    """Splits a body into parts.

    `is_closed`: the closing boundary was read, so no part is missing. `is_within_part`: a part has
    begun and has not ended; at the end of the body it is cut.
    """

    def __init__(self, boundary: str, sink: MultipartSink) -> None:
        """Raises MultipartError for a boundary that cannot be one."""
        if _BOUNDARY.fullmatch(boundary) is None:
            raise MultipartError("its Content-Type has no usable boundary")
        self._mark = b"\r\n--" + boundary.encode("ascii")
        self._sink = sink
        # A first delimiter need have no line end before it.
        self._unread = b"\r\n"
        self._place = _Place.PREAMBLE
        self._size = 0

    @property
    def is_closed(self) -> bool:
        """Whether the closing boundary was read."""
        return self._place is _Place.EPILOGUE

    @property
    def is_within_part(self) -> bool:
        """Whether a part has begun and not ended."""
        return self._place is _Place.DATA

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the body. Raises MultipartError, and the errors of the sink."""
        self._unread += piece
        while self._step():
            pass

    def _step(self) -> bool:
        """Read as far as the next change of place; return whether there was one."""
        if self._place is _Place.EPILOGUE:  # it has no meaning (RFC 2046 5.1.1)
            self._unread = b""
            return False
        if self._place is _Place.HEADERS:
            return self._headers()
        return self._until_delimiter()

    def _headers(self) -> bool:
        """Read the headers of a part. They begin with the line end of their delimiter."""
        end = self._unread.find(b"\r\n\r\n", 0, HEADER_BYTES)
        if end < 0:
            if len(self._unread) >= HEADER_BYTES:
                raise MultipartError(f"the headers of a part are longer than {HEADER_BYTES} bytes")
            return False
        headers = _parsed(self._unread[2:end])
        self._unread = self._unread[end + 4 :]
        self._place = _Place.DATA
        self._size = 0
        self._sink.begin(headers)
        return True

    def _until_delimiter(self) -> bool:
        start = self._unread.find(self._mark)
        while start >= 0:
            behind = _BEHIND.match(self._unread, start + len(self._mark))
            if behind is not None:
                self._delimit(start, behind)
                return True
            start = self._unread.find(self._mark, start + 1)
        passed = len(self._unread) - self._undecided()
        self._pass_on(self._unread[:passed])
        self._unread = self._unread[passed:]
        return False

    def _delimit(self, start: int, behind: re.Match[bytes]) -> None:
        self._pass_on(self._unread[:start])
        self._unread = self._unread[behind.end() :]
        if self._place is _Place.DATA:
            self._sink.end()
        self._place = _Place.EPILOGUE if behind[1] else _Place.HEADERS

    def _undecided(self) -> int:
        """Return how many of the last bytes may be the beginning of a delimiter."""
        last = self._unread.rfind(self._mark)
        if last >= 0 and _BEHIND_SO_FAR.fullmatch(self._unread, last + len(self._mark)):
            return len(self._unread) - last
        longest = min(len(self._mark) - 1, len(self._unread))
        sizes = range(longest, 0, -1)
        return next((size for size in sizes if self._unread.endswith(self._mark[:size])), 0)

    def _pass_on(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        if self._place is _Place.PREAMBLE:
            if self._size > PREAMBLE_BYTES:
                raise MultipartError(f"no part begins in the first {PREAMBLE_BYTES} bytes")
            return
        if self._size > PART_BYTES:
            raise MultipartError(f"a part is longer than {PART_BYTES} bytes")
        self._sink.write(piece)


def _parsed(block: bytes) -> Mapping[str, str]:
    headers: dict[str, str] = {}
    for line in filter(None, _FOLD.sub(" ", block.decode("latin-1")).split("\r\n")):
        name, colon, value = line.partition(":")
        if not colon or _NAME.fullmatch(name.strip()) is None:
            raise MultipartError("the headers of a part are not well formed")
        headers.setdefault(name.strip().lower(), value.strip())
    return headers
