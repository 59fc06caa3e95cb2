"""The loop of a stage, on a real SQLite ledger, with small handlers in place of the rooms."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect, select
from sqlalchemy.exc import OperationalError

from hilum.domain import Advance, ImageReason, Instance, Job, Priority, ReadingJob, ReadingState
from hilum.errors import NotAnalysed, Refused, Retry, WorkerDied
from hilum.pipeline import STAGES, StageLoop, back_off
from hilum.processes.run_stages import readiness_of
from hilum.settings import Pipeline
from hilum.store.database.engines import sync_of
from hilum.store.ledger import Arrival, Ledger
from hilum.store.migrations.migrate import migrate
from hilum.store.schema import tables
from tests.support.ledger.database import change, transaction
from tests.support.ledger.stage_loop import FAST, fill, run_until, states


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    url = f"sqlite:///{tmp_path / 'l.sqlite'}"
    migrate(url)
    return Ledger(url)


async def analysed(_job: Job) -> Advance:
    return Advance(ReadingState.ANALYSED, {"logits": [0.0]})


def test_all_items_are_done_once(ledger: Ledger) -> None:
    seen: list[str] = []

    async def handle(job: Job) -> Advance:
        assert isinstance(job, ReadingJob)
        seen.append(job.instance.sop_instance_uid)
        return await analysed(job)

    fill(ledger, 120)
    run_until(ledger, handle, lambda: all(state == "analysed" for state, _ in states(ledger)))
    assert len(seen) == len(set(seen)) == 120


def test_a_loop_that_cannot_write_says_so_until_it_can(ledger: Ledger) -> None:
    async def handle(job: Job) -> Advance:
        assert isinstance(job, ReadingJob)
        return (
            Advance(ReadingState.ANALYSED, {"logits": {0.0}})
            if job.instance.sop_instance_uid == "1.2.0"
            else await analysed(job)
        )

    async def serve(loop: StageLoop, is_done: Callable[[], bool]) -> None:
        task, end = asyncio.create_task(loop.run()), time.monotonic() + 60
        while not is_done() and time.monotonic() < end:
            await asyncio.sleep(0.01)
        loop.stop()
        await task

    fill(ledger, 1)
    loop = StageLoop(STAGES["analyse"], ledger, FAST, "test", handle)
    asyncio.run(serve(loop, lambda: not readiness_of([loop])[0]))
    assert readiness_of([loop]) == (False, "analyse: unexpected StatementError; see the log")
    brief = StageLoop(
        dataclasses.replace(STAGES["analyse"], lease_seconds=0.3), ledger, FAST, "test", handle
    )

    def is_over() -> bool:
        return readiness_of([brief])[0] and states(ledger)[-1] == ("failed", "worker_crashed")

    ledger.end_leases("test", is_clean=True)
    asyncio.run(serve(brief, is_over))
    assert is_over(), "given up: nothing of that stage may come for days, and be written"
    fill(ledger, 2)
    again = StageLoop(STAGES["analyse"], ledger, FAST, "test", handle)
    again.problem = loop.problem
    asyncio.run(serve(again, lambda: states(ledger)[-1][0] == "analysed"))
    assert readiness_of([again]) == (True, "")


def test_held_items_are_bounded(ledger: Ledger) -> None:
    held, most = 0, 0

    async def handle(job: Job) -> Advance:
        nonlocal held, most
        held += 1
        most = max(most, held)
        await asyncio.sleep(0.005)
        held -= 1
        return await analysed(job)

    fill(ledger, 150)
    run_until(ledger, handle, lambda: all(state == "analysed" for state, _ in states(ledger)))
    assert 1 < most <= STAGES["analyse"].batch


def test_every_error_is_a_verb(ledger: Ledger) -> None:
    tries: dict[str, int] = {}

    async def handle(job: Job) -> Advance:
        assert isinstance(job, ReadingJob)
        uid = job.instance.sop_instance_uid
        tries[uid] = tries.get(uid, 0) + 1
        if uid == "1.2.0":
            raise NotAnalysed(ImageReason.UNDECODABLE, "cut")
        if uid == "1.2.1" and tries[uid] < 3:
            raise Retry("loading", is_outage=True)
        if uid == "1.2.2":
            raise Retry("deadline")
        if uid == "1.2.3":
            raise Refused("sop_class_refused", "no")
        if uid == "1.2.4":
            raise ZeroDivisionError
        if uid == "1.2.5":
            raise WorkerDied
        return await analysed(job)

    fill(ledger, 7)
    run_until(
        ledger, handle, lambda: all(state not in ("due", "leased") for state, _ in states(ledger))
    )
    assert states(ledger) == [
        ("not_analysed", "undecodable"),
        ("analysed", None),
        ("failed", "attempts_exhausted"),
        ("failed", "sop_class_refused"),
        ("failed", "attempts_exhausted"),
        ("failed", "worker_crashed"),
        ("analysed", None),
    ]
    assert (tries["1.2.2"], tries["1.2.5"]) == (3, 3)


def test_an_outage_never_exhausts_the_attempts(ledger: Ledger) -> None:
    tries = 0

    async def handle(job: Job) -> Advance:
        nonlocal tries
        tries += 1
        if tries <= 12:
            raise Retry("PACS is down", is_outage=True)
        return await analysed(job)

    fill(ledger, 1)
    run_until(ledger, handle, lambda: states(ledger) == [("analysed", None)])


def test_what_is_known_to_kill_workers_holds_up_nobody(ledger: Ledger) -> None:
    """Its second and third try stand behind what came later, and beside it."""
    tries: list[str] = []
    beside = asyncio.Event()

    async def handle(job: Job) -> Advance:
        assert isinstance(job, ReadingJob)
        tries.append(job.instance.sop_instance_uid)
        if job.instance.sop_instance_uid != "1.2.0":
            beside.set()
            return await analysed(job)
        if job.lease.lapses:
            beside.clear()
            fill_another()
            await beside.wait()
        raise WorkerDied("it was this one", is_named=True)

    def fill_another() -> None:
        template = Instance(
            "", "1.2", "1.2.3", "1.2.3.1", "1.2.840.10008.1.2.1", "a", 1, "d", "p", 0.0, "A", "B"
        )
        uid = f"1.2.9{len(tries)}"
        ledger.record(
            [
                Arrival(
                    dataclasses.replace(template, sop_instance_uid=uid, path=uid),
                    Priority.LIVE,
                    ("r@1",),
                    0,
                    0,
                )
            ]
        )

    fill(ledger, 3)
    run_until(
        ledger, handle, lambda: all(state not in ("due", "leased") for state, _ in states(ledger))
    )
    assert states(ledger)[0] == ("failed", "worker_crashed")
    assert {state for state, _ in states(ledger)[1:]} == {"analysed"}
    assert tries.count("1.2.0") == 3


@pytest.mark.parametrize(
    "error",
    [None, Retry("later", after_seconds=0.0), WorkerDied("crash")],
    ids=["advance", "retry", "lapse"],
)
def test_what_is_decided_while_the_ledger_is_away_is_written_when_it_is_back(
    ledger: Ledger, error: Exception | None
) -> None:
    calls = 0

    async def handle(job: Job) -> Advance:
        nonlocal calls
        calls += 1
        if calls == 1:
            rename(ledger, "reading", "away")
            asyncio.get_running_loop().call_later(0.7, rename, ledger, "away", "reading")
            if error is not None:
                raise error
        return await analysed(job)

    fill(ledger, 1)
    run_until(ledger, handle, lambda: is_there(ledger) and states(ledger) == [("analysed", None)])
    assert calls == (1 if error is None else 2), "not after the lapse of a lease, but at once"


def rename(ledger: Ledger, old: str, new: str) -> None:
    """As far as the loop can see, the database is away: every statement on the table fails."""
    change(ledger, f"ALTER TABLE {old} RENAME TO {new}")


def is_there(ledger: Ledger) -> bool:
    with transaction(ledger) as connection:
        return inspect(connection).has_table("reading")


def test_stop_finishes_what_is_held(ledger: Ledger) -> None:
    async def serve() -> None:
        started, release = asyncio.Event(), asyncio.Event()

        async def handle(job: Job) -> Advance:
            started.set()
            await release.wait()
            return await analysed(job)

        loop = StageLoop(STAGES["analyse"], ledger, FAST, "test", handle)
        task = asyncio.create_task(loop.run())
        await asyncio.wait_for(started.wait(), 60)
        loop.stop()
        release.set()
        await task

    fill(ledger, 1)
    asyncio.run(serve())
    assert states(ledger) == [("analysed", None)]


def test_work_that_arrives_later_is_heard(ledger: Ledger) -> None:
    slow_poll = Pipeline(poll_seconds=600)

    async def serve() -> None:
        loop = StageLoop(STAGES["analyse"], ledger, slow_poll, "test", analysed)
        task = asyncio.create_task(loop.run())
        await asyncio.sleep(0.2)
        await asyncio.to_thread(fill, ledger, 1)
        async with asyncio.timeout(30):
            while states(ledger) != [("analysed", None)]:
                await asyncio.sleep(0.01)
        loop.stop()
        await task

    asyncio.run(serve())


class _PutOff(Ledger):
    """At the first claim somebody was faster.

    What was due is due a little later, and nothing is notified of that.
    """

    def claim_and_look(self, *args: Any, **kwargs: Any) -> tuple[list[Job], float | None]:
        if not self.is_put_off:
            change(self, tables.reading.update().values(due_at=time.time() + 0.3))
            self.is_put_off = True
        return super().claim_and_look(*args, **kwargs)

    is_put_off = False


def test_who_claims_in_vain_sleeps_until_the_next_is_due(ledger: Ledger) -> None:
    """And not for as long as without any.

    A study grew meanwhile, or another dispatcher woke at the same moment.
    """
    fill(ledger, 1)
    settings = FAST.model_copy(update={"poll_seconds": 3600.0})
    run_until(
        _PutOff(ledger.url), analysed, lambda: states(ledger) == [("analysed", None)], settings
    )


def test_back_off_doubles_and_is_capped() -> None:
    settings = Pipeline(backoff_seconds=2, maximum_backoff_seconds=60)
    pauses = [back_off(attempts, settings) for attempts in (1, 2, 3, 50)]
    for pause, nominal in zip(pauses, (2, 4, 8, 60), strict=True):
        assert 0.75 * nominal <= pause <= 1.25 * nominal


def test_stages_name_tables_of_the_schema() -> None:
    assert {stage.table for stage in STAGES.values()} == set(tables.WORK_TABLES)


def test_rows_that_were_waited_for_are_in_the_synced_log(tmp_path: Path) -> None:
    """What `sync_of` syncs is where SQLite has put the rows.

    Without a log, or after its last user, there is nothing to sync.
    """
    url = f"sqlite:///{tmp_path / 'l.sqlite'}"
    sync_of(url)()
    migrate(url)
    with contextlib.closing(Ledger(url)) as ledger:
        before = (
            (tmp_path / "l.sqlite-wal").stat().st_size
            if (tmp_path / "l.sqlite-wal").exists()
            else 0
        )
        fill(ledger, 1)
        assert (tmp_path / "l.sqlite-wal").stat().st_size > before
        sync_of(url)()


def test_a_disk_that_cannot_sync_is_a_database_that_is_away(tmp_path: Path) -> None:
    (tmp_path / "loop.sqlite-wal").symlink_to("loop.sqlite-wal")
    with pytest.raises(OperationalError, match="symbolic links"):
        sync_of(f"sqlite:///{tmp_path / 'loop.sqlite'}")()


def test_without_room_nothing_is_claimed_and_with_room_everything_is_done(ledger: Ledger) -> None:
    fill(ledger, 3)
    looks = 0

    def has_room() -> bool:
        nonlocal looks
        looks += 1
        return looks > 3

    async def serve() -> None:
        loop = StageLoop(STAGES["analyse"], ledger, FAST, "test", analysed, has_room=has_room)
        task = asyncio.create_task(loop.run())
        while looks < 3:
            assert {state for state, _ in states(ledger)} == {"due"}
            await asyncio.sleep(0.01)
        while {state for state, _ in states(ledger)} != {"analysed"}:
            await asyncio.sleep(0.01)
        loop.stop()
        await task

    asyncio.run(asyncio.wait_for(serve(), 60))
    with transaction(ledger) as connection:
        assert {row.attempts for row in connection.execute(select(tables.reading))} == {1}, (
            "the wait used up no attempt"
        )
