"""A queue in front of a destination that is away.

A few documents probe, the rest of it is not touched, and all goes out afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hilum.pipeline import STAGES, StageLoop
from hilum.processes.dispatcher import DeliverHandler
from hilum.settings import FolderDestination, Pipeline
from hilum.store.ledger import Ledger
from hilum.store.queries.views import LedgerViews
from hilum.store.schema.tables import delivery
from tests.support.ledger.street import Clock, Street

WAITING = 24
PATIENT, QUICK = (
    Pipeline(backoff_seconds=100.0, poll_seconds=0.2),
    Pipeline(backoff_seconds=0.01, poll_seconds=0.2),
)


class Running(Clock):
    """Goes on by itself."""

    def __init__(self) -> None:
        super().__init__()
        self._began = time.monotonic()

    def __call__(self) -> float:
        return self.now + time.monotonic() - self._began


@pytest.fixture
def street(ledger_url: str) -> Iterator[Street]:
    clock = Running()
    ledger = Ledger(ledger_url, clock)
    street = Street(ledger, clock, ("share",))
    for number in range(WAITING):
        street.receive(f"1.2.{number}", 1)
    street.read()
    street.assemble()
    street.report()
    yield street
    ledger.close()


def serve(street: Street, folder: Path, settings: Pipeline, until: Callable[[], bool]) -> None:
    handler = DeliverHandler("share", FolderDestination(path=folder), None, settings)  # type: ignore[arg-type] # nothing is derived

    async def run() -> None:
        stage = STAGES["deliver"]
        loop = StageLoop(
            stage, street.ledger, settings, "d", handler.handle, "share", has_room=handler.has_room
        )
        task = asyncio.create_task(loop.run())
        async with asyncio.timeout(60):
            while not await asyncio.to_thread(until):
                await asyncio.sleep(0.05)
        loop.stop()
        await task

    with contextlib.closing(handler):
        asyncio.run(run())


def met(street: Street) -> int:
    return sum(row.detail is not None for row in street.rows(delivery))


def test_the_queue_is_not_worn_out_while_its_destination_is_away(
    street: Street, tmp_path: Path, ledger_url: str
) -> None:
    looks: list[int] = []

    def has_looked_often() -> bool:
        looks.append(met(street))
        return (
            looks[-1] > 0 and len(looks) > 20
        )  # a second: in that time all of them were tried before

    serve(street, tmp_path / "mount" / "share", PATIENT, has_looked_often)
    tried = STAGES["deliver"].batch
    assert looks[-1] == tried < WAITING
    assert {(row.state, row.attempts) for row in street.rows(delivery)} == {("due", 0)}
    views = LedgerViews(ledger_url, street.clock)
    (failing,) = views.failing(street.clock() + 1)
    assert (failing["destination"], failing["items"]) == ("share", WAITING), (
        "those that wait for a probe are not taken either"
    )
    last = views.documents(f"1.2.{WAITING - 1}") or []
    views.close()
    (said,) = [sent["detail"] for item in last for sent in item["deliveries"]]
    assert said.startswith("not tried yet; another document for share met: ")
    assert "mounted" in said


def test_all_of_it_goes_out_when_the_destination_is_back(street: Street, tmp_path: Path) -> None:
    serve(street, tmp_path / "mount" / "share", QUICK, lambda: met(street) > 0)
    (tmp_path / "mount").mkdir()
    serve(
        street,
        tmp_path / "mount" / "share",
        QUICK,
        lambda: {row.state for row in street.rows(delivery)} == {"delivered"},
    )
    assert len(list((tmp_path / "mount" / "share").iterdir())) == WAITING


def test_it_goes_out_to_a_destination_that_comes_back_while_it_is_probed(
    street: Street, tmp_path: Path
) -> None:
    def until() -> bool:
        if met(street) and not (tmp_path / "mount").exists():
            (tmp_path / "mount").mkdir()
        return {row.state for row in street.rows(delivery)} == {"delivered"}

    serve(street, tmp_path / "mount" / "share", QUICK, until)
    assert {row.attempts for row in street.rows(delivery)} == {1}
