"""A decode that crashes, hangs or has a bug costs one process and names its image.

Neighbours never notice.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from hilum.analyse.decode.pool import DecodePool
from hilum.analyse.decode.process import DecodeProcess
from hilum.analyse.decode.slots import Area, SlotMemory
from hilum.analyse.decode.worker import Answer, DecodedImage, DecodeRequest, NotReady
from hilum.domain import Priority
from hilum.errors import Retry, WorkerDied
from tests.support.machine.waiting import has_ended, wait_for
from tests.support.objects.codecs import load_breaking, load_nothing

T = TypeVar("T")


def request(name: str) -> DecodeRequest:
    return DecodeRequest(Path(f"{name}.dcm"), {"tiny@1": {}}, 1, "cpu")


def with_pool(
    scenario: Callable[[DecodePool], Awaitable[T]],
    processes: int = 1,
    seconds: float = 20.0,
    maximum_pixels: int = 0,
) -> T:
    """A real pool of real processes."""

    async def run() -> T:
        pool = DecodePool(processes, seconds, load_breaking, maximum_pixels=maximum_pixels)
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


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("segv", f"status -{signal.SIGSEGV}"),
        ("hang", "took longer than 4 s"),
        ("bug", "LookupError"),
    ],
)
def test_a_broken_decode_costs_one_process_and_the_next_image_is_served(
    name: str, how: str
) -> None:
    async def scenario(pool: DecodePool) -> None:
        first = await pid_of(pool)
        with pytest.raises(WorkerDied, match=how):
            await pool.ask(request(name))
        second = await pid_of(pool)
        assert second != first
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)

    with_pool(scenario, seconds=4.0)


def test_an_image_that_takes_more_memory_than_any_picture_costs_one_process_and_itself() -> None:
    async def scenario(pool: DecodePool) -> list[object]:
        before = await pid_of(pool)
        ended = await all_at_once(pool, ["good", "memory", "good", "good"])
        assert await pid_of(pool) != before
        return ended

    first, died, *others = with_pool(scenario, maximum_pixels=1_000_000)
    assert isinstance(died, WorkerDied)
    assert "MemoryError" in str(died)
    assert died.is_named
    assert {type(item) for item in (first, *others)} == {int}


def test_a_second_try_takes_no_process_from_the_others() -> None:
    """And no more than one is under way: of many images that hang, the others wait their turn."""

    async def scenario(pool: DecodePool) -> None:
        usual = await pid_of(pool)
        tried = asyncio.create_task(pool.ask(request("hang"), is_suspect=True))
        await asyncio.sleep(0)
        with pytest.raises(Retry) as later:
            await pool.ask(request("hang"), is_suspect=True)
        assert later.value.is_outage, "it is no try of this image"
        assert {await pid_of(pool) for _ in range(20)} == {usual}
        assert not tried.done()
        with pytest.raises(WorkerDied, match="took longer than 4 s") as died:
            await tried
        assert died.value.is_named
        (answer,) = (await pool.ask(request("good"), is_suspect=True)).values()
        assert isinstance(answer, NotReady)
        assert int(answer.detail) != usual
        await asyncio.sleep(0.1)
        assert has_ended(int(answer.detail)), "who tries one alone needs no process afterwards"

    with_pool(scenario, seconds=4.0)


@pytest.mark.parametrize(("name", "is_outage"), [("closed", True), ("bad_block", False)])
def test_a_file_that_cannot_be_read_costs_no_process(name: str, *, is_outage: bool) -> None:
    async def scenario(pool: DecodePool) -> None:
        before = await pid_of(pool)
        with pytest.raises(
            Retry, match=r"the stored file cannot be read: (Permission denied|Input/output error)"
        ) as later:
            await pool.ask(request(name))
        assert later.value.is_outage == is_outage
        assert await pid_of(pool) == before

    with_pool(scenario)


def test_neighbours_are_unaffected() -> None:
    async def scenario(pool: DecodePool) -> None:
        before = {await pid_of(pool), await pid_of(pool)}
        ended = await asyncio.gather(
            pool.ask(request("segv")),
            pid_of(pool, "slow"),
            pid_of(pool),
            pool.ask(request("segv")),
            pid_of(pool),
            return_exceptions=True,
        )
        assert [type(item) for item in ended] == [WorkerDied, int, int, WorkerDied, int]
        assert ended[1] in before, "the slow neighbour's process lived on"

    with_pool(scenario, processes=2)


async def all_at_once(pool: DecodePool, names: list[str]) -> list[object]:
    """What becomes of each: its process id, or what is raised."""
    return list(
        await asyncio.gather(*(pid_of(pool, name) for name in names), return_exceptions=True)
    )


@pytest.mark.parametrize("place", [0, 2, 3, 7])
@pytest.mark.parametrize(
    ("name", "how"), [("segv", f"status -{signal.SIGSEGV}"), ("bug", "LookupError")]
)
def test_of_images_that_one_process_is_asked_for_at_once_the_broken_one_is_named(
    name: str, how: str, place: int
) -> None:
    names = ["good"] * 12
    names[place] = name

    async def scenario(pool: DecodePool) -> list[object]:
        return await all_at_once(pool, names)

    ended = with_pool(scenario)
    died = ended.pop(place)
    assert isinstance(died, WorkerDied)
    assert how in str(died)
    assert {type(item) for item in ended} == {int}


def test_of_images_that_one_process_is_asked_for_at_once_the_one_that_hangs_is_named() -> None:
    """Each has all of its time: what is slow does not take it from the next."""

    async def scenario(pool: DecodePool) -> list[object]:
        return await all_at_once(
            pool, ["slow", "slow", "slow", "hang", "good", "slow", "closed", "good", "good"]
        )

    ended = with_pool(scenario, seconds=1.2)
    assert [type(item) for item in ended] == [int, int, int, WorkerDied, int, int, Retry, int, int]


def test_a_process_that_was_killed_before_it_began_is_no_fault_of_any_image() -> None:
    async def scenario(pool: DecodePool) -> list[object]:
        first = await pid_of(pool)
        os.kill(first, signal.SIGSTOP)
        asked = asyncio.create_task(all_at_once(pool, ["good"] * 9))
        await asyncio.sleep(0.1)
        os.kill(first, signal.SIGKILL)
        return [first, *await asked]

    first, *ended = with_pool(scenario)
    assert {type(item) for item in ended} == {int}
    assert first not in ended


def test_a_process_whose_image_nobody_waits_for_any_more_gets_no_other_before_it_has_answered() -> (
    None
):
    async def scenario(pool: DecodePool) -> None:
        processes = {await pid_of(pool), await pid_of(pool)}
        given_up = asyncio.create_task(pool.ask(request("hang")))
        await asyncio.sleep(0.2)
        given_up.cancel()
        served = [await pid_of(pool) for _ in range(4)]
        assert len(processes) == 2
        assert len(set(served)) == 1, "the busy one would have answered with the image before"

    with_pool(scenario, processes=2, seconds=4.0)


def test_a_bug_says_where_and_never_quotes_the_header() -> None:
    async def scenario(pool: DecodePool) -> str:
        with pytest.raises(WorkerDied) as died:
            await pool.ask(request("bug"))
        return str(died.value)

    text = with_pool(scenario)
    assert "in _answer" in text
    assert "Doe" not in text.replace('raise LookupError("no codec for Doe^Jane")', ""), (
        "the line of code is ours, the message is not"
    )


def test_an_error_on_this_side_goes_to_the_asking_task_and_the_next_image_is_served() -> None:
    async def scenario(pool: DecodePool) -> None:
        before = await pid_of(pool)
        with pytest.raises(AssertionError, match="only with a device"):
            await pool.ask(request("decoded"))
        assert await pid_of(pool) == before

    with_pool(scenario)


def test_terms_that_change_reach_the_process() -> None:
    """They are written once for all images that have them in common."""

    async def scenario(pool: DecodePool) -> list[list[str]]:
        requests = [
            DecodeRequest(Path("good.dcm"), {name: {} for name in names}, 1, "cpu")
            for names in ("a", "a", "ab", "b", "a")
        ]
        return [list(answer) for answer in await asyncio.gather(*map(pool.ask, requests))]

    assert with_pool(scenario) == [["a"], ["a"], ["a", "b"], ["b"], ["a"]]


def test_a_process_that_died_idle_is_no_fault_of_the_next_image() -> None:
    async def scenario(pool: DecodePool) -> None:
        first = await pid_of(pool)
        os.kill(first, signal.SIGKILL)
        await asyncio.to_thread(wait_for, lambda: has_ended(first))
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


def test_a_process_that_the_system_refuses_is_an_outage_and_the_next_image_gets_one() -> None:
    async def scenario(pool: DecodePool) -> None:
        first = await pid_of(pool)
        os.kill(first, signal.SIGKILL)
        await asyncio.to_thread(wait_for, lambda: has_ended(first))
        usual = resource.getrlimit(resource.RLIMIT_NOFILE)
        # No room but what the dead one leaves: enough for a pipe, perhaps, and too little for a
        # process.
        resource.setrlimit(resource.RLIMIT_NOFILE, (_next_descriptor(), usual[1]))
        try:
            with pytest.raises(Retry, match="no decode process") as error:
                await pool.ask(request("good"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, usual)
        assert error.value.is_outage
        assert await pid_of(pool) != first

    with_pool(scenario)


def _next_descriptor() -> int:
    descriptor = os.dup(0)
    os.close(descriptor)
    return descriptor


def test_a_bug_between_images_ends_the_process_in_place_of_letting_images_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(pool: DecodePool) -> None:
        monkeypatch.setattr(pool, "_next", None)
        await pool.ask(request("good"))
        await pool.ask(request("good"))

    with pytest.raises(SystemExit):
        with_pool(scenario)


@pytest.mark.parametrize(
    ("error", "raised"), [(LookupError, LookupError), (StopIteration, RuntimeError)]
)
def test_whatever_a_device_raises_reaches_its_image_and_leaves_the_slot_free(
    error: type[Exception], raised: type[Exception]
) -> None:
    def breaking(_request: DecodeRequest, _decoded: DecodedImage) -> Answer:
        raise error

    async def run() -> None:
        pool = DecodePool(1, 20.0, load_breaking, prepare=breaking)
        await pool.start()
        try:
            for _ in range(4):  # more than there are slots
                with pytest.raises(raised):
                    await asyncio.wait_for(pool.ask(request("decoded")), 5.0)
        finally:
            await pool.stop()

    asyncio.run(run())


def test_a_process_that_is_ended_from_two_threads_at_once() -> None:
    """The pool stops while one of its threads ends a process that broke."""

    class Ending:
        """Its first `kill` is overtaken by a whole second ending."""

        kills = 0

        def kill(self) -> None:
            self.kills += 1
            if self.kills == 1:
                worker.kill()

        def join(self) -> None:
            """At once."""

    with ThreadPoolExecutor(1) as threads:
        worker = DecodeProcess(SlotMemory(Area(1, 1)), threads, load_breaking)
        worker._process = Ending()  # type: ignore[assignment]
        worker.kill()
    assert worker._process is None


def test_a_live_image_overtakes_old_ones_that_wait() -> None:
    async def scenario() -> list[str]:
        pool = DecodePool(1, 20.0, load_breaking)
        order: list[str] = []
        answers = []
        asked = [("old", Priority.REANALYSIS)] * 9 + [("live", Priority.LIVE)]
        for name, priority in asked:
            answer = asyncio.get_running_loop().create_future()
            answer.add_done_callback(lambda _, name=name: order.append(name))
            pool.begin(request("good"), answer, priority=priority)
            answers.append(answer)
        await pool.start()
        try:
            await asyncio.gather(*answers)
        finally:
            await pool.stop()
        return order

    assert asyncio.run(scenario()).index("live") == 0
