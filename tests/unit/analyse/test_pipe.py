"""The analyser's end of a decode process's pipe.

An answer comes whole however it is cut up, and one that never ends stops nobody else.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import struct
from collections.abc import Awaitable, Callable
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import TypeVar

import numpy as np
import pytest

from hilum.analyse.decode.connection import WorkerConnection

T = TypeVar("T")


def with_pipe(scenario: Callable[[WorkerConnection, Connection], Awaitable[T]]) -> T:
    """Our end in the loop, the other one as a decode process has it."""

    async def run() -> T:
        ours, theirs = connection.Pipe()
        pipe = await WorkerConnection.of(ours)
        try:
            return await scenario(pipe, theirs)
        finally:
            pipe.close()
            theirs.close()

    return asyncio.run(run())


async def asked_and_heard(pipe: WorkerConnection, question: object, seconds: float) -> object:
    pipe.send(question)
    return await pipe.receive(seconds)


async def heard(theirs: Connection) -> object:
    return await asyncio.to_thread(theirs.recv)


def test_questions_and_answers_of_any_size() -> None:
    async def scenario(pipe: WorkerConnection, theirs: Connection) -> None:
        for size in (0, 1, 16 << 10, 5 << 20):
            asked = asyncio.create_task(asked_and_heard(pipe, bytes(size), 20.0))
            assert await heard(theirs) == bytes(size)
            sending = asyncio.create_task(asyncio.to_thread(theirs.send, np.arange(size)))
            assert np.array_equal(await asked, np.arange(size))
            await sending

    with_pipe(scenario)


@pytest.mark.parametrize("header", ["!i", "!iQ"])
def test_an_answer_in_pieces(header: str) -> None:
    content = pickle.dumps({"logits": [1.0, 2.0]})
    framed = (
        struct.pack(header, *([len(content)] if header == "!i" else [-1, len(content)])) + content
    )

    async def scenario(pipe: WorkerConnection, theirs: Connection) -> object:
        asked = asyncio.create_task(asked_and_heard(pipe, "?", 20.0))
        await heard(theirs)
        for at in range(len(framed)):
            os.write(theirs.fileno(), framed[at : at + 1])
            await asyncio.sleep(0)
        return await asked

    assert with_pipe(scenario) == {"logits": [1.0, 2.0]}


def test_messages_that_come_faster_than_they_are_heard() -> None:
    async def scenario(pipe: WorkerConnection, theirs: Connection) -> list[object]:
        for number in range(3):
            theirs.send(number)
        await asyncio.sleep(0.05)
        theirs.close()
        messages = [await pipe.receive(20.0) for _ in range(3)]
        with pytest.raises(EOFError):
            await pipe.receive(20.0)
        return messages

    assert with_pipe(scenario) == [0, 1, 2]


def test_half_an_answer_ends_in_time_and_the_loop_goes_on() -> None:
    async def scenario(pipe: WorkerConnection, theirs: Connection) -> int:
        os.write(theirs.fileno(), struct.pack("!i", 100) + b"half")
        asked, turns = asyncio.create_task(asked_and_heard(pipe, "?", 0.3)), 0
        while not asked.done():
            turns += 1
            await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            await asked
        return turns

    assert with_pipe(scenario) > 1


def test_each_question_has_all_of_its_time() -> None:
    async def scenario(pipe: WorkerConnection, theirs: Connection) -> tuple[float, float]:
        asked, loop = (
            asyncio.create_task(asked_and_heard(pipe, "?", 0.3)),
            asyncio.get_running_loop(),
        )
        await heard(theirs)
        await asyncio.sleep(0.2)
        theirs.send("in time")
        assert await asked == "in time"
        waits = []
        for seconds in (0.3, 0.05):
            began = loop.time()
            with pytest.raises(TimeoutError):
                await asked_and_heard(pipe, "again", seconds)
            waits.append(loop.time() - began)
        return waits[0], waits[1]

    first, second = with_pipe(scenario)
    assert first >= 0.3 - 0.01
    assert 0.05 - 0.01 <= second < 0.25


def test_a_process_that_ended_before_or_while_it_was_asked() -> None:
    async def scenario(pipe: WorkerConnection, theirs: Connection) -> None:
        asked = asyncio.create_task(asked_and_heard(pipe, "?", 20.0))
        await heard(theirs)
        theirs.close()
        with pytest.raises(EOFError):
            await asked
        with pytest.raises(EOFError):
            await asked_and_heard(pipe, "again", 20.0)

    with_pipe(scenario)
