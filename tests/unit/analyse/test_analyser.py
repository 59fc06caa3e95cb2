"""Jobs of one image share its decoding, whenever they come, and a release may go meanwhile.

Decode processes are real.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hilum.analyse.analyser import Analyser
from hilum.analyse.decode.pool import DecodePool
from hilum.domain import Instance, Job, Lease, Priority, ReadingJob, Release
from hilum.errors import NotAnalysed, Retry
from hilum.settings import Analyse
from tests.support.objects.codecs import load_breaking

NAMES = ("a", "b", "c")
IMAGE = Instance(
    "1.2.3",
    "1.2",
    "1.2.4",
    "1.2.5",
    "1.2.840.10008.1.2.1",
    "good.dcm",
    1,
    "d",
    "p",
    0.0,
    "A",
    "B",
    id=1,
)


def release(name: str) -> Release:
    spec = {"recipe": "torchxrayvision_224"}
    return Release(
        name,
        "1",
        "onnx",
        f"{name}__1",
        spec,
        (),
        "sigmoid",
        "max",
        "f32",
        "openvino",
        False,
        True,
        None,
        "x",
        "x",
        "x",
        "x",
        "",
    )


def there(_: Instance) -> Path:
    return Path("good.dcm")


def with_analyser(
    scenario: Callable[[Analyser], Awaitable[list[NotAnalysed]]],
    find: Callable[[Instance], Path] = there,
) -> list[NotAnalysed]:
    """A decode process says `undecodable`, and its id, for every image."""

    async def run() -> list[NotAnalysed]:
        pool = DecodePool(1, 20.0, load_breaking)
        await pool.start()
        try:
            releases = {f"{name}@1": release(name) for name in NAMES}
            return await scenario(Analyser(Analyse(), releases, None, pool, find))  # type: ignore[arg-type]
        finally:
            await pool.stop()

    return asyncio.run(run())


async def ended(analyser: Analyser, name: str) -> NotAnalysed:
    job: Job = ReadingJob(Lease(1, "t", 1, 0), f"{name}@1", Priority.LIVE, IMAGE)
    try:
        await analyser.handle(job)
    except NotAnalysed as error:
        return error
    raise AssertionError("it was analysed")


def test_each_gets_its_own_answer_although_they_come_in_turns_of_their_own() -> None:
    async def scenario(analyser: Analyser) -> list[NotAnalysed]:
        loop, tasks = asyncio.get_running_loop(), list[asyncio.Task[NotAnalysed]]()

        def come(*names: str) -> None:
            tasks.extend(loop.create_task(ended(analyser, name)) for name in names)

        loop.call_soon(come, "b")
        come("a")
        loop.call_soon(come, "c")
        await asyncio.sleep(0.05)
        return list(await asyncio.gather(*tasks))

    assert [error.reason for error in with_analyser(scenario)] == ["undecodable"] * 3


def test_a_release_that_goes_before_the_decoding_starts() -> None:
    """Its reading, which was under way, gets its answer; neighbours do not notice."""

    async def scenario(analyser: Analyser) -> list[NotAnalysed]:
        tasks = [asyncio.create_task(ended(analyser, name)) for name in NAMES]
        asyncio.get_running_loop().call_soon(analyser.remove, "a@1")
        return list(await asyncio.gather(*tasks))

    assert [error.reason for error in with_analyser(scenario)] == ["undecodable"] * 3


@pytest.mark.parametrize(
    ("number", "is_outage"),
    [
        (errno.EACCES, True),
        (errno.ESTALE, True),
        (errno.EUCLEAN, False),
        (errno.EBADMSG, False),
        (errno.ENOMEM, False),
    ],
)
def test_what_the_archive_does_not_give_now_waits_and_what_is_of_one_file_alone_ends(
    number: int, *, is_outage: bool
) -> None:
    def closed(_: Instance) -> Path:
        raise OSError(number, os.strerror(number), "ab/cd/name.dcm")

    async def scenario(analyser: Analyser) -> list[NotAnalysed]:
        with pytest.raises(
            Retry, match=f"the stored file cannot be read: {os.strerror(number)}"
        ) as later:
            await ended(analyser, NAMES[0])
        assert later.value.is_outage == is_outage
        return []

    with_analyser(scenario, closed)


def test_whatever_is_raised_while_a_file_is_looked_for_reaches_the_reading() -> None:
    """A future refuses StopIteration: the reading would wait for ever."""

    def nowhere(_: Instance) -> Path:
        return next(iter(()))

    async def scenario(analyser: Analyser) -> list[NotAnalysed]:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(ended(analyser, NAMES[0]), 5.0)
        return []

    with_analyser(scenario, nowhere)
