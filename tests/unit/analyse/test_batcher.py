"""Batching rules, with a gateway whose engine is a switch in the test's hand."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import numpy as np
import pytest

from hilum.analyse.inference.batcher import Batcher
from hilum.domain import Priority
from hilum.errors import Retry
from tests.support.models.engine import RELEASE, Engine, image


async def started(
    batcher: Batcher, values: list[float], priorities: list[Priority] | None = None
) -> list[asyncio.Task[Any]]:
    priorities = priorities or [Priority.LIVE] * len(values)
    tasks = [
        asyncio.create_task(batcher.infer(image(value), priority))
        for value, priority in zip(values, priorities, strict=True)
    ]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


def test_what_waits_for_a_release_that_is_removed_is_tried_again() -> None:
    async def scenario() -> None:
        engine = Engine()
        batcher = Batcher(RELEASE, engine, batches_in_flight=1)
        pump = asyncio.create_task(batcher.run())
        (sent,) = await started(batcher, [1.0])
        waiting = await started(batcher, [2.0, 3.0])
        batcher.close()
        pump.cancel()
        for task in waiting:
            with pytest.raises(Retry, match="unloaded"):
                await task
        engine.open.set()
        assert (await sent).logits[0] == 1.0, "what is on its way is finished"

    asyncio.run(scenario())


def test_the_first_leaves_at_once_and_the_rest_fill_batches_while_the_engine_works() -> None:
    async def scenario() -> None:
        engine = Engine()
        batcher = Batcher(RELEASE, engine, batches_in_flight=2)
        pump = asyncio.create_task(batcher.run())
        first = await started(batcher, [1.0])
        assert engine.batches == [[1.0]], "an idle engine gets a batch of one"
        rest = await started(batcher, [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
        assert len(engine.batches) == 2, "two in flight, no more"
        engine.open.set()
        answers = await asyncio.gather(*first, *rest)
        assert [float(answer.logits[0]) for answer in answers] == [1, 2, 3, 4, 5, 6, 7, 8]
        assert max(len(batch) for batch in engine.batches) == 4, (
            "never over the release's max_batch"
        )
        pump.cancel()

    asyncio.run(scenario())


def test_urgent_images_overtake() -> None:
    async def scenario() -> None:
        engine = Engine()
        batcher = Batcher(dataclasses.replace(RELEASE, max_batch=2), engine, batches_in_flight=1)
        pump = asyncio.create_task(batcher.run())
        tasks = await started(batcher, [1.0])
        tasks += await started(
            batcher,
            [2.0, 3.0, 4.0, 5.0],
            [Priority.LIVE, Priority.REANALYSIS, Priority.LIVE, Priority.URGENT],
        )
        engine.open.set()
        await asyncio.gather(*tasks)
        assert engine.batches == [[1.0], [5.0, 2.0], [4.0, 3.0]]
        pump.cancel()

    asyncio.run(scenario())


def test_an_error_reaches_every_image_of_the_batch_and_only_those() -> None:
    async def scenario() -> None:
        engine = Engine()
        batcher = Batcher(RELEASE, engine, batches_in_flight=1)
        pump = asyncio.create_task(batcher.run())
        engine.error = Retry("engine died")
        engine.open.set()
        failed = await asyncio.gather(*(await started(batcher, [1.0])), return_exceptions=True)
        engine.error = None
        (answer,) = await asyncio.gather(*(await started(batcher, [2.0])))
        assert isinstance(failed[0], Retry)
        assert float(answer.logits[0]) == 2.0
        pump.cancel()

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["cam", "member_logits"])
def test_an_answer_that_is_too_short_is_an_error_of_every_image_and_of_no_other_batch(
    name: str,
) -> None:
    async def scenario() -> None:
        engine = Engine()
        engine.beside = {name: np.zeros((1, 1, 2, 2), np.float16)}
        batcher = Batcher(RELEASE, engine, batches_in_flight=1)
        pump = asyncio.create_task(batcher.run())
        first = await started(batcher, [1.0])
        rest = await started(batcher, [2.0, 3.0, 4.0])
        engine.open.set()
        await asyncio.gather(*first)
        for _ in range(10):
            await asyncio.sleep(0)
        assert all(task.done() for task in rest), "nobody waits for what never comes"
        assert all(isinstance(task.exception(), IndexError) for task in rest)
        engine.beside = {}
        assert [
            float(answer.logits[0])
            for answer in await asyncio.gather(*(await started(batcher, [5.0])))
        ] == [5.0]
        pump.cancel()

    asyncio.run(scenario())


def test_a_cancelled_caller_does_not_disturb_its_neighbours() -> None:
    async def scenario() -> None:
        engine = Engine()
        batcher = Batcher(RELEASE, engine, batches_in_flight=1)
        pump = asyncio.create_task(batcher.run())
        (task,) = await started(batcher, [1.0])
        task.cancel()
        engine.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        (answer,) = await asyncio.gather(*(await started(batcher, [2.0])))
        assert float(answer.logits[0]) == 2.0
        pump.cancel()

    asyncio.run(scenario())
