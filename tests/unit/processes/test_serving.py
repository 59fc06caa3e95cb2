"""The frame of a process with stage loops: it ends when asked, and when any part of it fails."""

from __future__ import annotations

import asyncio

import pytest

from hilum.processes.run_stages import serve


async def for_ever() -> None:
    await asyncio.Event().wait()


async def failing() -> None:
    raise RuntimeError("the canaries cannot be read")


def test_a_failed_background_part_ends_the_process() -> None:
    async def scenario() -> None:
        await asyncio.wait_for(serve([], asyncio.Event(), [for_ever(), failing()]), 60)

    with pytest.raises(RuntimeError, match="canaries"):
        asyncio.run(scenario())


def test_asked_to_stop_it_ends_and_cancels_the_background() -> None:
    cancelled = []

    async def watched() -> None:
        try:
            await for_ever()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def scenario() -> None:
        stopping = asyncio.Event()
        task = asyncio.create_task(serve([], stopping, [watched()]))
        await asyncio.sleep(0.01)
        stopping.set()
        await asyncio.wait_for(task, 60)

    asyncio.run(scenario())
    assert cancelled == [True]
