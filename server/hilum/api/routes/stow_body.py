"""The body of a STOW-RS request.

Chunks in the time that a sender has, and the parts in them (RFC 2046 5.1).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from enum import Enum, auto
from typing import Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser
from starlette.exceptions import HTTPException

from hilum.minimum_rate import Pace
from hilum.settings import Receive

_PIECE_BYTES: Final = 1 << 20
_PREAMBLE_BYTES: Final = (
    64 << 10
)  # text for people whose programs know no multipart; real ones are a line
_PADDING_BYTES: Final = (
    998  # blanks behind a delimiter: as many as a line may hold (RFC 5322 2.1.1)
)
STORED: Final = "complete parts before that are stored."


async def chunks(stream: AsyncIterator[bytes], settings: Receive) -> AsyncIterator[bytes]:
    """Yield chunks. Raises 408 if the next one is late, or all together are too slow.

    The time that we need for a chunk is not the sender's.
    """
    seconds = settings.network_timeout_seconds
    minimum = settings.minimum_bytes_per_second
    pace = Pace(minimum, seconds)
    waited = 0.0
    received = 0
    while True:
        began = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                chunk = await anext(stream, None)
        except TimeoutError as error:
            raise _late(
                f"Nothing more came for {seconds:g} s (receive.network_timeout_seconds)"
            ) from error
        if chunk is None:
            return
        waited = waited + time.monotonic() - began
        received = received + len(chunk)
        if pace.is_too_slow(waited, received):
            raise _late(
                f"Less than {minimum} bytes a second came for {2 * seconds:g} s"
                " (receive.minimum_bytes_per_second)"
            )
        yield chunk


def _late(detail: str) -> HTTPException:
    return HTTPException(408, f"{detail}; {STORED}", {"Connection": "close"})


class Mark(Enum):
    """Between the pieces of a body."""

    BEGIN = auto()
    END = auto()


class Events:
    """Converts chunks of a body to events: the beginning of a part, pieces of it, its end.

    Small chunks are gathered. Bytes before the first delimiter are ignored (RFC 2046 5.1.1); the
    parser does not support them.
    """

    def __init__(self, boundary: bytes) -> None:
        """Raises FormParserError."""
        self._first = re.compile(
            rb"(?:\A[\r\n]*|\r\n)(--%b)(?:[ \t]{0,%d}(?=\r\n)|(?=--))"
            % (re.escape(boundary), _PADDING_BYTES)
        )
        self._reach = (
            len(boundary) + 6 + _PADDING_BYTES
        )  # the part of a delimiter that earlier chunks may hold
        self._preamble: bytearray | None = bytearray()
        self._found: list[bytes | Mark] = []
        self._piece = bytearray()
        self.is_complete = False
        callbacks: dict[str, Callable[..., None]] = {
            "on_part_begin": lambda: self._found.append(Mark.BEGIN),
            "on_part_data": self._data,
            "on_part_end": self._part_end,
            "on_end": self._end,
        }
        self._parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]  # its types are a TypedDict of the same

    def of(self, chunk: bytes) -> Iterator[bytes | Mark]:
        """Raises FormParserError."""
        if self._preamble is not None:
            chunk = self._without_preamble(self._preamble, chunk)
        self._parser.write(chunk)
        if len(self._piece) >= _PIECE_BYTES:
            self._flush()
        found = self._found
        self._found = []
        return iter(found)

    def require_beginning(self) -> None:
        """At the end of the body. Raises FormParserError."""
        if self._preamble:
            raise FormParserError("no part begins with it")

    def _without_preamble(self, preamble: bytearray, chunk: bytes) -> bytes:
        looked_at = max(0, len(preamble) - self._reach)
        preamble += chunk
        if (found := self._first.search(preamble, looked_at)) is not None:
            self._preamble = None
            return (
                found[1] + preamble[found.end() :]
            )  # the parser knows padding only of those that follow
        if len(preamble) > _PREAMBLE_BYTES:
            raise FormParserError("no part begins with it in the first 64 KiB")
        return b""

    def _data(self, data: bytes, start: int, end: int) -> None:
        self._piece += memoryview(data)[start:end]

    def _flush(self) -> None:
        if self._piece:
            self._found.append(bytes(self._piece))
            self._piece.clear()

    def _part_end(self) -> None:
        self._flush()
        self._found.append(Mark.END)

    def _end(self) -> None:
        self.is_complete = True
