"""STOW-RS in the web process.

What a request that waits must not take from others, and how one that does not go on ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx
import pytest
from starlette.exceptions import HTTPException

from hilum.api.routes.stow import _take
from hilum.api.stow_store import Stowed
from hilum.services.stow import StowOutcome
from tests.support.machine.waiting import wait_for
from tests.support.peers.stow import HEADERS, KEY, begin, everything, served
from tests.support.server.api_client import TOKEN, open_rig
from tests.support.server.listening import unindexed

BODY = b"--B\r\n\r\nan object\r\n--B--\r\n"
REQUESTS = 60  # more than the threads of the web process


class SlowStore:
    """Takes everything; the end of each request waits, as for a ledger that is away."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def open(self, _peer: str) -> SlowVisit:
        return SlowVisit()

    def close(self, _stowed: Sequence[Stowed]) -> None:
        assert self.go_on.wait(60)


class SlowVisit:
    """One part is as good as another."""

    def refusal(self) -> str | None:
        return None

    def begin(self, _study: str | None) -> SlowVisit:
        return self

    def write(self, _piece: bytes) -> None:
        pass

    def end(self, *_: object) -> Stowed:
        return StowOutcome("1.2", "1.3", "1.4")

    def abandon(self) -> None:
        pass


async def ask(app: object, store: SlowStore) -> list[int]:
    """The statuses of a question that is asked while requests wait, and then of those."""
    transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 1))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        waiting = [
            asyncio.create_task(client.post("/dicom-web/studies", content=BODY, headers=HEADERS))
            for _ in range(REQUESTS)
        ]
        await asyncio.sleep(0.5)
        try:
            asked = await asyncio.wait_for(client.get("/api/v1/releases", headers=KEY), 20)
        finally:
            store.go_on.set()
        return [
            asked.status_code,
            *(answer.status_code for answer in await asyncio.gather(*waiting)),
        ]


def test_requests_that_wait_for_the_ledger_leave_threads_for_others(tmp_path: Path) -> None:
    store = SlowStore()
    with open_rig(tmp_path, store=store, token=TOKEN) as rig:
        assert asyncio.run(ask(rig.client.app, store)) == [200] * (1 + REQUESTS)


def test_a_sender_that_drips_is_told_so_and_leaves_nothing(tmp_path: Path) -> None:
    with served(tmp_path, threading.Event(), 2.0) as (port, archive), begin(port) as sender:
        wait_for(lambda: list(unindexed(archive)), what="half of the object")
        sender.settimeout(0.25)
        answer = b""
        while not answer.endswith(b"}"):  # head and body may come apart
            with contextlib.suppress(TimeoutError):
                if not answer:
                    sender.sendall(b"x")
                more = sender.recv(65536)
                assert more, answer
                answer += more
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"receive.minimum_bytes_per_second" in answer
        wait_for(lambda: not list(unindexed(archive)), what="an archive without half of an object")


def test_a_sender_that_stalls_is_told_so_and_leaves_nothing(tmp_path: Path) -> None:
    with served(tmp_path, threading.Event(), 1.0) as (port, archive), begin(port) as sender:
        wait_for(lambda: list(unindexed(archive)), what="half of the object")
        answer = everything(sender)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"receive.network_timeout_seconds" in answer
        assert not list(unindexed(archive))


def test_a_stop_in_the_middle_of_a_request_is_said_and_leaves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stop = threading.Event()
    with served(tmp_path, stop, 600.0) as (port, archive), begin(port) as sender:
        wait_for(lambda: list(unindexed(archive)), what="half of the object")
        stop.set()
        assert everything(sender).startswith(b"HTTP/1.1 503 ")
        assert not list(unindexed(archive))
    assert not [record for record in caplog.records if record.exc_info]
    assert not [
        record
        for record in caplog.records
        if record.levelno >= logging.ERROR and "Cancel" not in record.message
    ]


class SlowPart:
    """Notes what is done to it; a piece takes half a second."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.is_writing = threading.Event()

    def write(self, _piece: bytes) -> None:
        self.is_writing.set()
        time.sleep(0.5)
        self.done.append("written")

    def end(self) -> Stowed:
        raise NotImplementedError

    def abandon(self) -> None:
        self.done.append("abandoned")


async def pieces(*chunks: bytes, then: float = 0.0) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
    await asyncio.sleep(then)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_part_is_abandoned_when_its_thread_has_written(times: int) -> None:
    part = SlowPart()

    async def cancel() -> None:
        taking = asyncio.create_task(
            _take(pieces(b"--B\r\n\r\n" + bytes(2 << 20), then=60.0), b"B", lambda: part, 10_000)
        )
        await asyncio.to_thread(part.is_writing.wait)
        for _ in range(times):
            taking.cancel()
            await asyncio.sleep(0.01)
        await asyncio.wait([taking])
        assert taking.cancelled()

    asyncio.run(cancel())
    assert part.done == ["written", "abandoned"]


class QuickPart:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.content = b""

    def write(self, piece: bytes) -> None:
        self.content += piece

    def end(self) -> Stowed:
        return StowOutcome("1.2", "1.3", "1.4")

    def abandon(self) -> None:
        pass


def taken(*chunks: bytes, boundary: bytes = b"B", maximum_parts: int = 10_000) -> list[bytes]:
    """The parts of a body."""
    parts: list[QuickPart] = []

    def begin_part() -> QuickPart:
        parts.append(QuickPart())
        return parts[-1]

    stowed = asyncio.run(_take(pieces(*chunks), boundary, begin_part, maximum_parts))
    assert len(stowed) == len(parts)
    return [part.content for part in parts]


PREAMBLES = [
    b"",
    b"\r\n",
    b"\n\n",
    b"This is a message - in --B parts.\r\n",
    b"--Bogus\r\n",
    b"\r\n--B-\r\n\r\n",
    b"x" * 60_000 + b"\r\n",
]


@pytest.mark.parametrize("preamble", PREAMBLES)
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_what_is_before_the_first_part_is_ignored(preamble: bytes, step: int) -> None:
    body = preamble + b"--B\r\n\r\none\r\n--B\r\n\r\n\r\n--two\r\n--B--\r\nand after"
    assert taken(*(body[start : start + step] for start in range(0, len(body), step))) == [
        b"one",
        b"\r\n--two",
    ]


@pytest.mark.parametrize("step", [1, 5, 1 << 20])
@pytest.mark.parametrize("preamble", [b"", b"--B in a line \r\n"])
def test_delimiters_may_have_blanks_behind_them(preamble: bytes, step: int) -> None:
    body = preamble + b"--B \t" + b" " * 900 + b"\r\n\r\none\r\n--B  \r\n\r\ntwo\r\n--B-- \r\n"
    assert taken(*(body[start : start + step] for start in range(0, len(body), step))) == [
        b"one",
        b"two",
    ]


@pytest.mark.parametrize("body", [b"x" * 100_000, b"no part at all"])
def test_a_body_that_never_begins_is_said_so(body: bytes) -> None:
    with pytest.raises(HTTPException) as refused:
        taken(*(body[start : start + 1000] for start in range(0, len(body), 1000)))
    assert (refused.value.status_code, "not a multipart body" in refused.value.detail) == (
        400,
        True,
    )


def test_a_boundary_that_is_longer_than_any_is_said_so(tmp_path: Path) -> None:
    headers = {"Content-Type": f'multipart/related; type="application/dicom"; boundary={"B" * 300}'}
    with open_rig(tmp_path, store=SlowStore()) as rig:
        assert (
            rig.client.post("/dicom-web/studies", content=b"--B", headers=headers).status_code
            == 400
        )


@pytest.mark.parametrize(
    ("body", "maximum_parts", "status", "advice"),
    [
        (b"--B\r\n\r\n\r\n" * 1_000_000, 100, 413, "stow.maximum_parts"),
        (b"--B\r\n\r\nobject\r\n" * 11, 10, 413, "more than 10 parts"),
        (b"--B" + b"\r\nA: b" * 9 + b"\r\n\r\nobject\r\n--B--\r\n", 10, 400, "header"),
        (b"--B\r\nA: " + b"b" * 5000 + b"\r\n\r\nobject\r\n--B--\r\n", 10, 400, "header"),
        (b"--B\r\n" + b"A" * 5000 + b"\r\n\r\nobject\r\n--B--\r\n", 10, 400, "header"),
    ],
    ids=[
        "a million empty parts",
        "one part too many",
        "many headers",
        "a long value",
        "a long name",
    ],
)
def test_a_body_of_too_much_ends_early(
    body: bytes, maximum_parts: int, status: int, advice: str
) -> None:
    with pytest.raises(HTTPException) as refused:
        taken(
            *(body[start : start + 65536] for start in range(0, len(body), 65536)),
            maximum_parts=maximum_parts,
        )
    assert refused.value.status_code == status
    assert advice in refused.value.detail.lower()


def test_as_many_parts_as_a_request_may_have_are_taken() -> None:
    assert taken(b"--B\r\n\r\nobject\r\n" * 10 + b"--B--\r\n", maximum_parts=10) == [b"object"] * 10
