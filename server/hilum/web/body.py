"""The body of an HTTP answer, as it comes: bounded, and not compressed."""

from __future__ import annotations

from collections.abc import Iterator

import httpx

from hilum.web.problems import HttpError


def pieces(response: httpx.Response) -> Iterator[bytes]:
    """Yield the bytes of a body as they come.

    We ask for no compression: DICOM has its own, and a few bytes could become gigabytes.
    """
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding not in {"", "identity"}:
        raise HttpError(
            "it compresses its answer, although we ask it not to; turn compression off for our"
            " address in the server or its proxy",
            is_final=True,
        )
    yield from response.iter_raw()


def bounded(response: httpx.Response, maximum_bytes: int) -> bytes:
    """Return a body. Raises HttpError for a larger one."""
    content = bytearray()
    for piece in pieces(response):
        content += piece
        if len(content) > maximum_bytes:
            raise HttpError(f"its answer is longer than {maximum_bytes} bytes")
    return bytes(content)


def beginning(response: httpx.Response, maximum_bytes: int) -> bytes:
    """Return the first bytes of a body, for the text of an error."""
    content = b""
    for piece in response.iter_raw():
        content += piece
        if len(content) >= maximum_bytes:
            break
    return content[:maximum_bytes]
