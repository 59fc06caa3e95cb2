"""A delivery ends within its lease: after it, another host would send the document, too."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from hilum.domain import Advance, DeliveryJob, DeliveryState, Lease
from hilum.errors import Retry
from hilum.pipeline import delivery_stage
from hilum.processes.dispatcher import DeliverHandler
from hilum.settings import (
    Destination,
    DicomDestination,
    FolderDestination,
    Pipeline,
    WebhookDestination,
)
from testing.webhook_receiver import section_of
from tests.support.deliver.webhook_receiver import SENT
from tests.support.ledger.dispatching import InThisProcess
from tests.support.retrieve.web_server import Received, Reply, WebServer, reply


class SlowReceiver:
    """Takes 61 s for a document, by the clock that it moves."""

    def __init__(self, slow: list[bool]) -> None:
        self.now = 1000.0
        self._slow = iter(slow)

    def clock(self) -> float:
        return self.now

    def answer(self, _request: Received) -> Reply:
        self.now += 61.0 if next(self._slow) else 0.0
        return reply(204)


def delivered_together(
    receiver: SlowReceiver, folder: Path
) -> tuple[list[Advance | BaseException], int]:
    """The outcomes of three documents that are claimed at once, and the number of requests."""
    job = DeliveryJob(Lease(1, "token", 1, 0, 0.0), "program", SENT, "1.2", "m@1", True, 0.0, 0.0)
    with WebServer(receiver.answer) as server:
        port = int(server.url.rpartition(":")[2])
        destination = WebhookDestination.model_validate(section_of(port, folder))
        handler = DeliverHandler(
            "program", destination, InThisProcess(), Pipeline(), receiver.clock
        )

        async def run() -> list[Advance | BaseException]:
            jobs = [handler.handle(job) for _ in range(3)]
            return await asyncio.gather(*jobs, return_exceptions=True)

        with closing(handler):
            return asyncio.run(run()), len(server.received)


def test_a_document_whose_turn_comes_late_is_given_back_unsent(tmp_path: Path) -> None:
    (first, *late), requests = delivered_together(SlowReceiver([True]), tmp_path)
    assert isinstance(first, Advance)
    assert first.state is DeliveryState.DELIVERED
    for outcome in late:
        assert isinstance(outcome, Retry)
        assert (outcome.is_outage, outcome.after_seconds) == (True, 0.0), "no try is used up"
    assert requests == 1


def test_documents_in_their_turn_are_all_sent(tmp_path: Path) -> None:
    outcomes, requests = delivered_together(SlowReceiver([False, False, True]), tmp_path)
    assert all(isinstance(outcome, Advance) for outcome in outcomes)
    assert requests == 3


@pytest.mark.parametrize("timeout_seconds", [1.0, 30.0, 100.0])
def test_a_lease_lasts_longer_than_a_turn_and_the_longest_request(timeout_seconds: float) -> None:
    for destination in (
        DicomDestination(timeout_seconds=timeout_seconds),
        WebhookDestination(
            url="http://127.0.0.1:1/", secret_files=(Path("s"),), timeout_seconds=timeout_seconds
        ),
    ):
        assert delivery_stage(destination).lease_seconds >= 60 + 4 * timeout_seconds


def test_a_folder_has_the_lease_of_the_stage() -> None:
    destination: Destination = FolderDestination(path=Path("share"))
    assert delivery_stage(destination).lease_seconds == 180
