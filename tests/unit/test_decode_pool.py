"""A decode that crashes, hangs or has a bug costs one process and names its image; neighbours never notice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from hilum.analyse.decode_pool import DecodePool
from hilum.analyse.worker import NotReady, Request
from hilum.errors import Retry, WorkerDied
from tests.support.codecs import load_breaking, load_nothing

T = TypeVar("T")


def request(name: str) -> Request:
    return Request(Path(f"{name}.dcm"), {"tiny@1": {}}, 1, "cpu")


def with_pool(scenario: Callable[[DecodePool], Awaitable[T]], processes: int = 1, seconds: float = 20.0) -> T:
    """A real pool of real processes."""

    async def run() -> T:
        pool = DecodePool(processes, seconds, load_breaking)
        await pool.start()
        try:
            return await scenario(pool)
        finally:
            await pool.stop()

    return asyncio.run(run())


async def pid_of(pool: DecodePool, name: str = "good") -> int:
    """Process that served this request."""
    (answer,) = (await pool.ask(request(name))).values()
    assert isinstance(answer, NotReady)
    return int(answer.detail)


@pytest.mark.parametrize(("name", "how"), [("segv", f"status -{signal.SIGSEGV}"), ("hang", "took longer than 1 s"), ("bug", "LookupError")])
def test_a_broken_decode_costs_one_process_and_the_next_image_is_served(name: str, how: str) -> None:
    async def scenario(pool: DecodePool) -> None:
        first = await pid_of(pool)
        with pytest.raises(WorkerDied, match=how):
            await pool.ask(request(name))
        second = await pid_of(pool)
        assert second != first
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)

    with_pool(scenario, seconds=1.0)


def test_neighbours_are_unaffected() -> None:
    async def scenario(pool: DecodePool) -> None:
        before = {await pid_of(pool), await pid_of(pool)}
        ended = await asyncio.gather(
            pool.ask(request("segv")), pid_of(pool, "slow"), pid_of(pool), pool.ask(request("segv")), pid_of(pool), return_exceptions=True
        )
        assert [type(item) for item in ended] == [WorkerDied, int, int, WorkerDied, int]
        assert ended[1] in before, "the slow neighbour's process lived on"

    with_pool(scenario, processes=2)


def test_a_bug_says_where_and_never_quotes_the_header() -> None:
    async def scenario(pool: DecodePool) -> str:
        with pytest.raises(WorkerDied) as died:
            await pool.ask(request("bug"))
        return str(died.value)

    text = with_pool(scenario)
    assert "in _answer" in text
    assert "Doe" not in text.replace('raise LookupError("no codec for Doe^Jane")', ""), "the line of code is ours, the message is not"


def test_a_process_that_died_idle_is_no_fault_of_the_next_image() -> None:
    async def scenario(pool: DecodePool) -> None:
        first = await pid_of(pool)
        os.kill(first, signal.SIGKILL)
        await asyncio.sleep(0.2)
        assert await pid_of(pool) != first

    with_pool(scenario)


def test_a_process_that_cannot_start_is_an_outage_and_no_lapse() -> None:
    async def run() -> None:
        pool = DecodePool(1, 5.0, load_nothing)
        try:
            await pool.start()
        finally:
            await pool.stop()

    with pytest.raises(Retry, match="no decode process") as error:
        asyncio.run(run())
    assert error.value.is_outage
