"""A stage loop over readings, run until a condition holds."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable

from sqlalchemy import select

from hilum.domain import Advance, Instance, Job, Priority
from hilum.pipeline import STAGES, StageLoop
from hilum.settings import Pipeline
from hilum.store.ledger import Arrival, Ledger
from hilum.store.schema import tables
from tests.support.ledger.database import transaction

FAST = Pipeline(
    backoff_seconds=0.01, maximum_backoff_seconds=0.02, maximum_attempts=3, poll_seconds=0.2
)


def fill(ledger: Ledger, count: int) -> None:
    template = Instance(
        "", "1.2", "1.2.3", "1.2.3.1", "1.2.840.10008.1.2.1", "a", 1, "d", "p", 0.0, "A", "B"
    )
    items = [
        dataclasses.replace(template, sop_instance_uid=f"1.2.{n}", path=f"{n}")
        for n in range(count)
    ]
    ledger.record([Arrival(item, Priority.LIVE, ("r@1",), 0, 0) for item in items])


def states(ledger: Ledger) -> list[tuple[str, str | None]]:
    with transaction(ledger) as connection:
        return [
            (row.state, row.reason)
            for row in connection.execute(select(tables.reading).order_by(tables.reading.c.id))
        ]


def run_until(
    ledger: Ledger,
    handle: Callable[[Job], Awaitable[Advance]],
    is_done: Callable[[], bool],
    settings: Pipeline = FAST,
) -> None:
    async def serve() -> None:
        loop = StageLoop(STAGES["analyse"], ledger, settings, "test", handle)
        task = asyncio.create_task(loop.run())
        end = time.monotonic() + 120
        while not is_done() and time.monotonic() < end:
            await asyncio.sleep(0.01)
        loop.stop()
        await task

    asyncio.run(serve())
    assert is_done()
