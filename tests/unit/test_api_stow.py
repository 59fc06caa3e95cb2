"""STOW-RS in the web process: what a request that waits must not take from others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import httpx

from hilum.api.stow import Stowed
from hilum.wiring.stowing import Outcome
from tests.support.api_client import open_rig

BODY = b"--B\r\n\r\nan object\r\n--B--\r\n"
HEADERS = {"Content-Type": 'multipart/related; type="application/dicom"; boundary=B'}
REQUESTS = 60  # more than the threads of the web process


class SlowStore:
    """Takes everything; the end of each request waits, as for a ledger that is away."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def refusal(self) -> str | None:
        return None

    def begin(self, _study: str | None, _peer: str) -> SlowStore:
        return self

    def write(self, _piece: bytes) -> None:
        pass

    def end(self) -> Stowed:
        return Outcome("1.2", "1.3", "1.4")

    def abandon(self) -> None:
        pass

    def close(self, _stowed: Sequence[Stowed]) -> None:
        assert self.go_on.wait(60)


async def ask(app: object, store: SlowStore) -> list[int]:
    """The statuses of a question that is asked while requests wait, and then of those."""
    transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 1))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        waiting = [asyncio.create_task(client.post("/dicom-web/studies", content=BODY, headers=HEADERS)) for _ in range(REQUESTS)]
        await asyncio.sleep(0.5)
        try:
            asked = await asyncio.wait_for(client.get("/api/v1/releases"), 20)
        finally:
            store.go_on.set()
        return [asked.status_code, *(answer.status_code for answer in await asyncio.gather(*waiting))]


def test_requests_that_wait_for_the_ledger_leave_threads_for_others(tmp_path: Path) -> None:
    store = SlowStore()
    with open_rig(tmp_path, store=store) as rig:
        assert asyncio.run(ask(rig.client.app, store)) == [200] * (1 + REQUESTS)
