"""A receiver that wants no more (HTTP 410): its destination is paused, and its documents wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hilum.processes.dispatcher import DeliverHandler
from hilum.settings import Pipeline, Settings, WebhookDestination
from hilum.store.audit.log import AuditFilter
from hilum.store.queries.views import LedgerViews
from hilum.supervisor.checks.peers import unserved
from testing.phantoms.phantom import make_study
from testing.webhook_receiver import section_of
from tests.support.ledger.dispatching import Dispatcher, InThisProcess
from tests.support.reports.results import make_release
from tests.support.retrieve.web_server import Reply, WebServer
from tests.support.server.api_client import open_rig

NAME = "program"
STUDIES = 3
QUICK = Pipeline(backoff_seconds=0.01, poll_seconds=0.1)


def kept(status: int) -> Reply:
    """An answer on a connection that stays."""
    return Reply(f"HTTP/1.1 {status} word\r\nContent-Length: 0\r\n\r\n".encode(), keep=True)


class Program:
    """A receiver whose answer changes."""

    def __init__(self) -> None:
        self.answer = kept(410)
        self.server = WebServer(lambda _: self.answer)


@pytest.fixture
def program() -> Iterator[Program]:
    made = Program()
    with made.server:
        yield made


@pytest.fixture
def dispatcher(program: Program, ledger_url: str, tmp_path: Path) -> Iterator[Dispatcher]:
    """Some notices that wait for the program."""
    port = int(program.server.url.rpartition(":")[2])
    destination = WebhookDestination.model_validate(section_of(port, tmp_path))
    settings = Settings(
        ledger={"url": ledger_url},  # type: ignore[arg-type]
        destinations={NAME: destination},
    )
    with closing(Dispatcher(settings, make_release())) as made:
        for number in range(STUDIES):
            (image,) = make_study(number, views=("PA",), rows=32, columns=32)
            made.read(image)
        made.assemble()
        made.report()
        yield made


def serve(dispatcher: Dispatcher, until: Callable[[], bool]) -> None:
    """The loop of the dispatcher's process."""
    destination = dispatcher.settings.destinations[NAME]
    handler = DeliverHandler(NAME, destination, InThisProcess(), QUICK)

    async def run() -> None:
        loop = handler.loop(dispatcher.ledger, "dispatcher-1")
        task = asyncio.create_task(loop.run())
        async with asyncio.timeout(60):
            while not await asyncio.to_thread(until):
                await asyncio.sleep(0.05)
        loop.stop()
        await task

    with closing(handler):
        asyncio.run(run())


def is_paused(url: str) -> bool:
    with closing(LedgerViews(url)) as views:
        return any(item["is_paused"] for item in views.destinations())


def test_the_destination_is_paused_and_goes_on_once_a_person_resumes_it(
    dispatcher: Dispatcher, program: Program, ledger_url: str
) -> None:
    with capture_logs() as logs:
        serve(dispatcher, lambda: is_paused(ledger_url))
    posts = len(program.server.received)
    assert 1 <= posts <= STUDIES
    (said,) = [entry for entry in logs if entry["event"] == "destination_paused"]
    assert "HTTP 410" in said["detail"]
    assert "`hilum destinations resume program`" in said["advice"]

    assert not dispatcher.ledger.acquire_destination(NAME, "another-host", 60.0)
    program.answer = kept(204)
    dispatcher.ledger.pause(NAME, is_paused=False)
    serve(dispatcher, lambda: len(program.server.received) >= posts + STUDIES)
    with closing(LedgerViews(ledger_url)) as views:
        (state,) = views.destination_states(dispatcher.settings.destinations)
    assert (state["is_paused"], state["dead"]) == (False, {})
    assert state["delivered_at"] is not None


def test_people_and_programs_see_it(
    dispatcher: Dispatcher, ledger_url: str, tmp_path: Path
) -> None:
    serve(dispatcher, lambda: is_paused(ledger_url))
    destinations = dispatcher.settings.destinations

    (check,) = [item for item in unserved(dispatcher.settings) if item.name.endswith(NAME)]
    assert not check.ok
    assert check.detail.startswith("paused")
    assert "HTTP 410" in check.detail
    assert "hilum destinations resume program" in check.advice

    with open_rig(tmp_path, url=ledger_url, destinations=destinations) as rig:
        rig.clock.now = time.time()
        shown = {item["name"]: item for item in rig.get("/api/v1/destinations")["destinations"]}
        page = rig.client.get("/destinations").text
        metrics = rig.client.get("/metrics").text
        rows = rig.audit.all(AuditFilter())
    assert shown[NAME]["is_paused"]
    assert "HTTP 410" in shown[NAME]["detail"]
    assert "HTTP 410" in page
    assert 'hilum_destination_paused{destination="program"} 1.0' in metrics
    (pause,) = [item for item in rows if item["verb"] == "pause"]
    assert (pause["actor"], pause["name"]) == ("hilum", NAME)
    assert "HTTP 410" in pause["detail"]
