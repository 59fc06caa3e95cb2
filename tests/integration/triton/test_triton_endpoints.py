"""Several real tritonservers as one gateway.

Who gets a batch, what becomes of it when one dies or hangs, and when that one is back.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import tritonclient.grpc.aio as triton

from hilum.analyse.inference.endpoints import Endpoints
from hilum.errors import Retry
from hilum.models.known_answers.canary import Canary, read_canary
from hilum.observability.telemetry import TRITON_HEALTHY, TRITON_REQUESTS
from hilum.triton.server import EmbeddedTriton
from tests.support.machine.waiting import WAIT_SECONDS
from tests.support.models.releases import TINY_WEIGHTS, Tiny, make_tiny, pictures, tiny_logits
from tests.support.models.triton import killed_afterwards

pytestmark = pytest.mark.usefixtures("embedded_triton")

T = TypeVar("T")
_SHORT_SECONDS = (
    5.0  # a deadline that a test can wait for, and that who is well keeps on a busy machine
)


@dataclass(frozen=True)
class Pair:
    """Two servers of one release, and addresses that are free to be used by name."""

    servers: tuple[EmbeddedTriton, EmbeddedTriton]
    urls: dict[str, str]
    tiny: Tiny
    canary: Canary

    def run(self, use: Callable[[Endpoints], Awaitable[T]], deadline_seconds: float = 30.0) -> T:
        """What `use` gives for a gateway of its own; both servers run again afterwards."""

        async def session() -> T:
            gateway = Endpoints(self.urls, deadline_seconds)
            try:
                return await asyncio.wait_for(use(gateway), WAIT_SECONDS)
            finally:
                await gateway.close()

        return asyncio.run(session())

    async def prove(self, gateway: Endpoints) -> None:
        """As the analyser's watch does."""
        assert await gateway.check_canary(self.tiny.release, self.canary) is None

    async def ask(self, gateway: Endpoints, seed: int) -> None:
        """One batch, whose answer is right."""
        images = pictures(3, seed)
        inference = await gateway.infer(self.tiny.release, images)
        assert np.abs(inference.logits - tiny_logits(images)).max() < 1e-4


@pytest.fixture
def pair(tiny: Tiny, tmp_path: Path) -> Iterator[Pair]:
    name = tiny.release.triton_name
    first, second = (
        EmbeddedTriton(tiny.built_dir, tmp_path / word, [name], 60, 1) for word in ("one", "two")
    )
    with killed_afterwards(first), killed_afterwards(second):
        urls = {
            f"{tmp_path.name}-{word}": server.start()
            for word, server in (("one", first), ("two", second))
        }
        yield Pair((first, second), urls, tiny, read_canary(tiny.release, tiny.built_dir))


def counted(pair: Pair, outcome: str) -> list[float]:
    """Requests with this outcome, at each endpoint."""
    return [TRITON_REQUESTS.labels(name, outcome)._value.get() for name in pair.urls]


def healthy(pair: Pair) -> list[float]:
    return [TRITON_HEALTHY.labels(name)._value.get() for name in pair.urls]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.02)


def kill(server: EmbeddedTriton) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    server.stop()


def test_batches_are_spread_and_none_goes_out_before_a_known_answer(pair: Pair) -> None:
    async def use(gateway: Endpoints) -> None:
        assert not gateway.has_room()
        with pytest.raises(Retry, match="no Triton has proved tiny@1 yet") as caught:
            await pair.ask(gateway, 0)
        assert caught.value.is_outage
        await pair.prove(gateway)
        before = counted(pair, "answered")
        await asyncio.gather(*(pair.ask(gateway, seed) for seed in range(20)))
        assert [
            after - was for after, was in zip(counted(pair, "answered"), before, strict=True)
        ] == [10, 10]

    pair.run(use)


def test_one_that_is_killed_under_load_loses_no_batch_and_is_used_again_when_it_is_back(
    pair: Pair,
) -> None:
    async def use(gateway: Endpoints) -> None:
        await pair.prove(gateway)
        asked = [asyncio.create_task(pair.ask(gateway, seed)) for seed in range(40)]
        await asyncio.sleep(0)
        kill(pair.servers[0])
        await asyncio.gather(*asked)
        assert counted(pair, "outage")[0] > 0, "no batch was under way when it died"
        for seed in range(10):
            await pair.ask(gateway, seed)
        await until(lambda: bool(gateway.problems()))
        assert gateway.has_room()
        assert healthy(pair) == [0, 1]
        (problem,) = gateway.problems()
        assert next(iter(pair.urls)) in problem
        pair.servers[
            0
        ].start()  # in this thread: the kernel ends a server with the thread that started it
        await until(lambda: not gateway.problems())
        before = counted(pair, "answered")
        await asyncio.gather(*(pair.ask(gateway, seed) for seed in range(10)))
        assert counted(pair, "answered")[0] > before[0]

    pair.run(use)


def test_while_all_are_away_nobody_waits_and_the_first_that_is_back_serves(pair: Pair) -> None:
    async def use(gateway: Endpoints) -> None:
        await pair.prove(gateway)
        for server in pair.servers:
            kill(server)
        with pytest.raises(Retry):
            await pair.ask(gateway, 0)
        await until(lambda: not gateway.has_room())
        met = counted(pair, "outage")
        for seed in range(10):
            with pytest.raises(Retry, match="is it running there") as caught:
                await pair.ask(gateway, seed)
            assert caught.value.is_outage
        assert counted(pair, "outage") == met, "a request went to an address where nobody answers"
        assert not await gateway.is_loaded(pair.tiny.release)
        with pytest.raises(Retry):
            await gateway.load(pair.tiny.release)
        pair.servers[1].start()
        await until(gateway.has_room)
        await pair.ask(gateway, 1)
        assert healthy(pair) == [0, 1]

    pair.run(use)


def test_one_that_hangs_costs_those_under_way_a_deadline_and_nobody_else(pair: Pair) -> None:
    stopped = pair.servers[0].pid
    assert stopped is not None

    async def use(gateway: Endpoints) -> None:
        await pair.prove(gateway)
        os.kill(stopped, signal.SIGSTOP)
        await asyncio.gather(*(pair.ask(gateway, seed) for seed in range(4)))
        assert counted(pair, "outage")[0] >= 1, "the one that hangs was not asked at all"
        await until(lambda: healthy(pair)[0] == 0)
        met = counted(pair, "outage")
        await asyncio.gather(*(pair.ask(gateway, seed) for seed in range(10)))
        assert counted(pair, "outage") == met
        os.kill(stopped, signal.SIGCONT)
        await until(lambda: not gateway.problems())

    try:
        pair.run(use, deadline_seconds=_SHORT_SECONDS)
    finally:
        os.kill(stopped, signal.SIGCONT)


def test_one_with_another_build_behind_the_name_gets_no_batch_until_it_is_mended(
    pair: Pair, tmp_path: Path
) -> None:
    name = pair.tiny.release.triton_name
    kill(pair.servers[1])
    other = make_tiny(tmp_path / "other", weights=-TINY_WEIGHTS)
    wrong = EmbeddedTriton(
        other.built_dir, tmp_path / "two", [name], 60, 1
    )  # at the address of the second

    async def use(gateway: Endpoints) -> None:
        wrong.start()
        await pair.prove(gateway)
        assert "another build is loaded" in "; ".join(gateway.problems())
        await asyncio.gather(*(pair.ask(gateway, seed) for seed in range(10)))
        kill(wrong)
        shutil.copyfile(
            pair.tiny.built_dir / "embedded" / name / "1/model.onnx",
            other.built_dir / "embedded" / name / "1/model.onnx",
        )
        wrong.start()
        await until(lambda: not gateway.problems())
        await asyncio.gather(*(pair.ask(gateway, seed) for seed in range(10)))

    with killed_afterwards(wrong):
        pair.run(use)


def test_a_release_that_one_has_lost_is_read_by_the_other_and_loaded_again(pair: Pair) -> None:
    release = pair.tiny.release

    async def use(gateway: Endpoints) -> None:
        await pair.prove(gateway)
        client = triton.InferenceServerClient(next(iter(pair.urls.values())))
        await client.unload_model(release.triton_name)
        while await client.is_model_ready(release.triton_name):
            await asyncio.sleep(0.02)
        await asyncio.gather(*(pair.ask(gateway, seed) for seed in range(4)))
        await until(lambda: not gateway.problems())
        assert await client.is_model_ready(release.triton_name)
        await client.close()

    pair.run(use)


def test_what_is_unloaded_is_unloaded_everywhere_and_not_brought_back(pair: Pair) -> None:
    async def use(gateway: Endpoints) -> None:
        await pair.prove(gateway)
        await gateway.unload(pair.tiny.release)
        with pytest.raises(Retry):
            await pair.ask(gateway, 0)
        assert not await gateway.is_loaded(pair.tiny.release)
        assert gateway.problems() == []

    pair.run(use)


def test_a_release_that_nobody_serves_is_refused_before_its_image_is_decoded(pair: Pair) -> None:
    absent = dataclasses.replace(pair.tiny.release, name="absent", triton_name="absent__1")

    async def use(gateway: Endpoints) -> None:
        gateway.require("absent@1")  # never checked: others know what becomes of it
        await pair.prove(gateway)
        assert "hilum models build absent@1" in (
            await gateway.check_canary(absent, pair.canary) or ""
        )
        with pytest.raises(Retry) as caught:
            gateway.require("absent@1")
        assert caught.value.is_outage
        gateway.require("tiny@1")
        assert gateway.has_room()
        await asyncio.gather(*(pair.ask(gateway, seed) for seed in range(4)))

    pair.run(use)
