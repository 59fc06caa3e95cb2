"""Connections that ask nothing.

Each is closed in time, and however many there are, others are answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, HTTPException
from fastapi.responses import PlainTextResponse

from hilum.api.connection_limits import Limits
from hilum.api.middleware import STREAMED, Around
from hilum.api.serve import LoopErrors, serve_api

ASKING = b"GET /large HTTP/1.1\r\nHost: localhost\r\n"
MOST = 8


@contextlib.contextmanager
def serving(limits: Limits) -> Iterator[int]:
    """A real web server: its port."""
    app, listening, stop = FastAPI(), socket.create_server(("127.0.0.1", 0)), threading.Event()
    app.add_middleware(Around)
    app.get("/small")(lambda: 1)
    app.get("/large")(lambda: PlainTextResponse(b"x" * (32 << 20)))
    app.post(f"{STREAMED}refused")(refuse)
    thread = threading.Thread(target=serve_api, args=(app, listening, stop, 1, limits))
    thread.start()
    yield listening.getsockname()[1]
    stop.set()
    thread.join(30)


def refuse() -> None:
    raise HTTPException(415)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of one whose limits are short."""
    with serving(Limits(head_seconds=1.0, unread_seconds=1.0, most=1000)) as found:
        yield found


@pytest.fixture
def full() -> Iterator[int]:
    """Of one that takes few, and closes none for being late while a test runs, however slow the machine is."""
    with serving(Limits(head_seconds=600.0, unread_seconds=600.0, most=MOST)) as found:
        yield found


@contextlib.contextmanager
def connected(port: int, sent: bytes) -> Iterator[socket.socket]:
    """A peer that has sent this."""
    with socket.create_connection(("127.0.0.1", port), timeout=15) as peer:
        peer.sendall(sent)
        yield peer


def rest(peer: socket.socket) -> bytes:
    """All that comes until the server closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := peer.recv(1 << 20):
            received += piece
    return received


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b""),
        (ASKING, b""),
        (b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\nGET /small", b"HTTP/1.1 200 OK"),
        (
            f"POST {STREAMED}refused HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\nx".encode(),
            b"HTTP/1.1 415 ",
        ),
    ],
)
def test_a_connection_that_owes_a_request_is_closed(port: int, sent: bytes, answer: bytes) -> None:
    with connected(port, sent) as peer:
        if answer:
            assert peer.recv(1 << 16).startswith(answer)
            peer.sendall(b"x")  # ends uvicorn's own wait for the next request
        began = time.monotonic()
        while time.monotonic() - began < 15:  # byte after byte keeps it no longer
            time.sleep(0.2)
            try:
                peer.sendall(b"x")
            except OSError:
                break
        assert time.monotonic() - began < 15


def test_a_connection_whose_answer_nobody_reads_is_closed(port: int) -> None:
    with connected(port, ASKING + b"\r\n") as peer:
        time.sleep(3)
        assert len(rest(peer)) < 32 << 20


def test_an_answer_that_is_read_slowly_comes_whole(port: int) -> None:
    received = 0
    with connected(port, ASKING + b"Connection: close\r\n\r\n") as peer:
        while piece := peer.recv(1 << 20):
            received += len(piece)
            time.sleep(0.05)
    assert received > 32 << 20


def test_who_sends_a_large_body_that_was_refused_reads_why_behind_it(port: int) -> None:
    with connected(
        port,
        f"POST {STREAMED}refused HTTP/1.1\r\nHost: localhost\r\nContent-Length: 800000\r\n\r\n".encode(),
    ) as peer:
        for _ in range(8):
            peer.sendall(b"x" * 100_000)
            time.sleep(0.4)
        assert peer.recv(1 << 16).startswith(b"HTTP/1.1 415")


def test_beyond_the_most_the_one_that_owes_longest_makes_room(full: int) -> None:
    with contextlib.ExitStack() as opened:
        peers = [opened.enter_context(connected(full, ASKING)) for _ in range(MOST)]
        assert httpx.get(f"http://127.0.0.1:{full}/small", timeout=60).status_code == 200
        assert rest(peers[0]) == b""
        peers[-1].sendall(b"Connection: close\r\n\r\n")
        assert len(rest(peers[-1])) > 32 << 20


def test_beyond_the_most_a_request_whose_small_body_does_not_come_makes_room(full: int) -> None:
    """Such a body is waited for before a token is asked for."""
    owing = (
        b"POST /api/v1/requeue HTTP/1.1\r\nHost: localhost\r\nExpect:"
        b" 100-continue\r\nContent-Length: 9\r\n\r\n"
    )
    with contextlib.ExitStack() as opened:
        peers = [opened.enter_context(connected(full, owing)) for _ in range(MOST)]
        assert [peer.recv(1 << 16).startswith(b"HTTP/1.1 100 ") for peer in peers] == [True] * MOST
        assert httpx.get(f"http://127.0.0.1:{full}/small", timeout=60).status_code == 200
        assert rest(peers[0]) == b""
        peers[-1].sendall(b"123456789")
        assert peers[-1].recv(1 << 16).startswith(b"HTTP/1.1 404 ")


def test_a_body_that_is_no_http_behind_its_answer_is_no_error_of_ours(
    port: int, capfd: pytest.CaptureFixture[str]
) -> None:
    head = (
        f"POST {STREAMED}refused HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding:"
        " chunked\r\n\r\n5\r\nhello\r\n"
    )
    with connected(port, head.encode()) as peer:
        assert peer.recv(1 << 16).startswith(b"HTTP/1.1 415")
        peer.sendall(b"no chunk\r\n")
        assert b"HTTP/1.1" not in rest(peer)
    assert "loop_error" not in "".join(capfd.readouterr())


def test_a_body_that_does_not_come_is_408_and_ends_the_connection() -> None:
    sent: list[Any] = []
    pieces = [{"type": "http.request", "body": b"x", "more_body": True}]

    async def application(*_: object) -> None:
        raise AssertionError("it has no body to read")

    async def receive() -> Any:
        return pieces.pop() if pieces else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/v1/requeue",
        "headers": [(b"content-length", b"60000")],
    }
    asyncio.run(Around(application, 0.05)(scope, receive, send))
    assert (sent[0]["status"], (b"connection", b"close") in sent[0]["headers"]) == (408, True)
    assert json.loads(sent[1]["body"])["detail"] == "The body did not come within 0.05 s."


def test_a_lack_of_descriptors_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    loop, errors = asyncio.new_event_loop(), LoopErrors()
    for _ in range(100):
        errors(
            loop,
            {
                "message": "socket.accept() out of system resource",
                "exception": OSError(errno.EMFILE, "Too many open files"),
            },
        )
    errors(
        loop, {"message": "Task exception was never retrieved", "exception": ValueError("theirs")}
    )
    loop.close()
    text = "".join(capfd.readouterr())
    assert (
        text.count("out_of_file_descriptors"),
        text.count("Too many open files"),
        text.count("loop_error"),
    ) == (1, 1, 1)
