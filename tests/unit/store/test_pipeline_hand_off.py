"""Loops that hand on: assemble to report in one process, on a real SQLite ledger, with small handlers in place of the rooms."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from hilum.domain import Advance, Job, ReadingState, ReportJob, ResultState, StudyJob, StudyState
from hilum.pipeline import STAGES, StageLoop
from hilum.settings import Pipeline
from hilum.store.ledger import Ledger
from hilum.store.queue.hand_off import Reservation
from hilum.store.schema import tables
from tests.support.ledger.database import change, transaction
from tests.support.ledger.ledger_steps import arrival, result_for
from tests.support.ledger.ledgers import migrated_sqlite

SETTINGS = Pipeline(
    poll_seconds=3600
)  # a loop looks when it is notified, and so never just when something could be handed on to it
Handler = Callable[[Job], Awaitable[Advance]]


class Watched(Ledger):
    """Counts looks and claimed jobs by stage.

    `before_advance` is called in the ledger's thread before studies are closed.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.claimed, self.looked = Counter[str](), Counter[str]()
        self.before_advance: Callable[[], None] = lambda: None

    def seconds_to_next(self, stage: str, *args: Any, **kwargs: Any) -> float:
        self.looked[stage] += 1
        return super().seconds_to_next(stage, *args, **kwargs)

    def claim_and_look(
        self, stage: str, *args: Any, **kwargs: Any
    ) -> tuple[list[Job], float | None]:
        jobs, seconds = super().claim_and_look(stage, *args, **kwargs)
        self.claimed[stage] += len(jobs)
        return jobs, seconds

    def advance_and_hand_off(
        self,
        stage: str,
        decided: Sequence[tuple[Job, Advance]],
        reservations: Mapping[str | None, Reservation],
    ) -> tuple[list[bool], list[Job]]:
        if stage == "assemble":
            self.before_advance()
        return super().advance_and_hand_off(stage, decided, reservations)


@pytest.fixture
def ledger(tmp_path: Path) -> Watched:
    return Watched(migrated_sqlite(tmp_path))


def fill(ledger: Ledger, count: int) -> None:
    """So many studies whose only image is read and whose quiet period is over long ago.

    `arrival` came in the past.
    """
    ledger.record([arrival(number, study=f"1.{number}") for number in range(count)])
    jobs = ledger.claim("analyse", count, "a", 60)
    ledger.advance(
        "analyse", [(job.lease, Advance(ReadingState.ANALYSED, {"logits": [0.5]})) for job in jobs]
    )
    change(ledger, tables.study.update().values(due_at=0, quiet_until=0))


async def close(job: Job) -> Advance:
    assert isinstance(job, StudyJob)
    return Advance(
        StudyState.CLOSED,
        results=[result_for(job.study.study_instance_uid, "digest", float(job.study.id))],
    )


def results(ledger: Ledger) -> list[tuple[str, int, int]]:
    with transaction(ledger) as connection:
        return [
            (row.state, row.attempts, row.lapses)
            for row in connection.execute(select(tables.result))
        ]


def loops(ledger: Ledger, report: Handler) -> tuple[StageLoop, StageLoop]:
    reporting = StageLoop(STAGES["report"], ledger, SETTINGS, "d", report)
    return StageLoop(
        STAGES["assemble"], ledger, SETTINGS, "d", close, next_loops=[reporting]
    ), reporting


async def begun(ledger: Watched, reporting: StageLoop) -> asyncio.Task[None]:
    """It has looked in vain, and takes what is handed on from now on."""
    running = asyncio.create_task(reporting.run())
    async with asyncio.timeout(60):
        while not ledger.looked["report"] or not (reservation := reporting.reserve(1)).places:
            await asyncio.sleep(0.01)
    reporting.accept([], reservation)
    return running


async def run_until(is_done: Callable[[], bool], *running: StageLoop) -> None:
    tasks = [asyncio.create_task(loop.run()) for loop in running]
    async with asyncio.timeout(60):
        while not is_done():
            await asyncio.sleep(0.01)
    for loop in running:
        loop.stop()
    await asyncio.gather(*tasks)


def test_a_result_goes_on_without_a_claim(ledger: Watched) -> None:
    async def report(job: Job) -> Advance:
        assert isinstance(job, ReportJob)
        return Advance(ResultState.REPORTED)

    async def serve() -> None:
        assembling, reporting = loops(ledger, report)
        running = await begun(ledger, reporting)
        await run_until(lambda: results(ledger) == [("reported", 1, 0)], assembling)
        reporting.stop()
        await running

    fill(ledger, 1)
    asyncio.run(serve())
    assert ledger.claimed["report"] == 0


def test_of_many_no_more_are_held_than_there_are_places_and_each_is_done_once(
    ledger: Watched,
) -> None:
    seen: list[int] = []
    held = most = 0

    async def report(job: Job) -> Advance:
        nonlocal held, most
        held += 1
        most = max(most, held)
        await asyncio.sleep(0.01)
        held -= 1
        seen.append(job.lease.row_id)
        return Advance(ResultState.REPORTED)

    async def serve() -> None:
        await run_until(
            lambda: results(ledger) == [("reported", 1, 0)] * 40, *loops(ledger, report)
        )

    fill(ledger, 40)
    asyncio.run(serve())
    assert len(seen) == len(set(seen)) == 40
    assert most <= STAGES["report"].batch


def test_who_is_told_to_stop_while_something_is_handed_on_finishes_it(ledger: Watched) -> None:
    async def report(_job: Job) -> Advance:
        return Advance(ResultState.REPORTED)

    async def serve() -> None:
        assembling, reporting = loops(ledger, report)
        loop, has_stopped = asyncio.get_running_loop(), threading.Event()

        def stop() -> None:
            reporting.stop()
            assembling.stop()
            has_stopped.set()

        def stop_both() -> None:
            loop.call_soon_threadsafe(stop)
            assert has_stopped.wait(30)

        ledger.before_advance = stop_both
        running = await begun(ledger, reporting)
        async with asyncio.timeout(60):
            await asyncio.gather(assembling.run(), running)

    fill(ledger, 1)
    asyncio.run(serve())
    assert results(ledger) == [("reported", 1, 0)]


def test_who_has_been_told_to_stop_inherits_nothing(ledger: Watched) -> None:
    async def report(_job: Job) -> Advance:
        raise AssertionError("it has stopped")

    async def serve() -> None:
        assembling, reporting = loops(ledger, report)
        reporting.stop()
        await run_until(lambda: len(results(ledger)) == 1, assembling)

    fill(ledger, 1)
    asyncio.run(serve())
    assert results(ledger) == [("due", 0, 0)]


def test_beside_what_has_lapsed_nothing_is_inherited(ledger: Watched) -> None:
    """What kills workers shall take no neighbour along."""
    fill(ledger, 1)
    (job,) = ledger.claim("assemble", 1, "d", 60)
    ledger.advance(
        "assemble",
        [(job.lease, Advance(StudyState.CLOSED, results=[result_for("1.0", "digest", 1.0)]))],
    )
    (dead,) = ledger.claim("report", 1, "dead", 60)
    assert ledger.lapse("report", dead.lease)

    async def serve() -> None:
        is_held, release = asyncio.Event(), asyncio.Event()

        async def report(job: Job) -> Advance:
            if job.lease.lapses:
                is_held.set()
                await release.wait()
            return Advance(ResultState.REPORTED)

        _, reporting = loops(ledger, report)
        running = asyncio.create_task(reporting.run())
        async with asyncio.timeout(60):
            await is_held.wait()
            assert reporting.reserve(1).places == 0
            release.set()
            while results(ledger) != [("reported", 2, 1)]:
                await asyncio.sleep(0.01)
            reporting.stop()
            await running

    asyncio.run(serve())
