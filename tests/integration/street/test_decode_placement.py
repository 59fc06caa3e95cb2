"""Real decode processes: the wire tensor is the same in each process that prepares it, and however the pixels travel."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from hilum.analyse.decode.pool import DecodePool
from hilum.analyse.decode.prepare import check_spec, prepare_decoded, prepare_for_releases
from hilum.analyse.decode.worker import Answer, Checked, DecodeRequest, NotReady, Ready, SpecCheck
from hilum.errors import Retry, WorkerDied
from hilum_preprocessing import InputSpec
from testing.phantoms import phantom
from tests.support.machine.page_cache import can_be_dropped, is_in_memory
from tests.support.machine.processes import children_of
from tests.support.machine.waiting import has_ended, wait_for

T = TypeVar("T")
SPECS = {name: {"recipe": name} for name in ("torchxrayvision_224", "vit_imagenet_half_224")}
SIZES = [(300, 260), (512, 512), (64, 900), (1024, 800), (257, 255), (700, 700)]


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> list[DecodeRequest]:
    folder = tmp_path_factory.mktemp("images")
    saved = [
        phantom.save(phantom.make_instance(n, rows=r, columns=c), folder / f"{n}.dcm")
        for n, (r, c) in enumerate(SIZES)
    ]
    return [DecodeRequest(path, SPECS, 1 << 24, "cpu") for path in saved]


class Pools:
    """Decode processes that serve test after test: each imports torch, which takes two seconds."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._made: dict[tuple[bool, int], DecodePool] = {}

    def run(
        self,
        scenario: Callable[[DecodePool], Awaitable[T]],
        *,
        on_device: bool = False,
        slot_bytes: int = 4 << 20,
    ) -> T:
        kind = on_device, slot_bytes
        if kind not in self._made:
            made = DecodePool(
                1, 60.0, slot_bytes=slot_bytes, prepare=prepare_decoded if on_device else None
            )
            self._loop.run_until_complete(made.start())
            self._made[kind] = made

        async def run() -> T:
            return await scenario(self._made[kind])

        return self._loop.run_until_complete(run())

    def stop(self) -> None:
        for pool in self._made.values():
            self._loop.run_until_complete(pool.stop())
        self._loop.close()


@pytest.fixture(scope="module")
def pools() -> Iterator[Pools]:
    made = Pools()
    yield made
    made.stop()


def with_own_pool(
    scenario: Callable[[DecodePool, Callable[[], list[int]]], Awaitable[T]], processes: int = 1
) -> T:
    """A pool for one scenario, which can look for its process ids."""
    others = set(decode_processes())

    def own() -> list[int]:
        return [pid for pid in decode_processes() if pid not in others]

    async def run() -> T:
        pool = DecodePool(processes, 60.0, slot_bytes=4 << 20, prepare=None)
        await pool.start()
        try:
            return await scenario(pool, own)
        finally:
            await pool.stop()

    return asyncio.run(run())


def ask_all(
    pools: Pools,
    requests: list[DecodeRequest],
    *,
    on_device: bool = False,
    slot_bytes: int = 4 << 20,
) -> list[Answer]:
    """All at once, twice, so that slots are used again."""
    wanted = [replace(request, is_decoded_only=on_device) for request in requests * 2]

    async def scenario(pool: DecodePool) -> list[Answer]:
        return await asyncio.gather(*(pool.ask(request) for request in wanted))

    return pools.run(scenario, on_device=on_device, slot_bytes=slot_bytes)


def require_same(answers: list[Answer], requests: list[DecodeRequest]) -> None:
    for answer, request in zip(answers, requests * 2, strict=True):
        for name, expected in prepare_for_releases(request).items():
            found = answer[name]
            assert isinstance(found, Ready)
            assert isinstance(expected, Ready)
            assert np.array_equal(found.tensor, expected.tensor), (request.path.name, name)
            assert (found.view, found.flags, found.preprocessing_version) == (
                expected.view,
                expected.flags,
                expected.preprocessing_version,
            )


@pytest.mark.parametrize("slot_bytes", [4 << 20, 1 << 16], ids=["in slots", "larger than a slot"])
@pytest.mark.parametrize("on_device", [False, True], ids=["worker", "device"])
def test_the_tensor_is_the_same_wherever_it_is_made(
    pools: Pools, requests: list[DecodeRequest], *, on_device: bool, slot_bytes: int
) -> None:
    require_same(ask_all(pools, requests, on_device=on_device, slot_bytes=slot_bytes), requests)


@pytest.mark.parametrize("drops_page_cache", [True, False])
@pytest.mark.parametrize("on_device", [False, True], ids=["worker", "device"])
def test_the_memory_of_a_file_is_given_back_where_it_is_read_once(
    pools: Pools, tmp_path: Path, *, on_device: bool, drops_page_cache: bool
) -> None:
    path, another = (
        phantom.save(phantom.make_instance(n, rows=512, columns=512), tmp_path / f"{n}.dcm")
        for n in range(2)
    )
    if not can_be_dropped(path):
        pytest.skip("this file system keeps its files in memory")
    wanted = DecodeRequest(
        path, SPECS, 1 << 24, "cpu", is_decoded_only=on_device, drops_page_cache=drops_page_cache
    )

    async def scenario(pool: DecodePool) -> None:
        answer = await pool.ask(wanted)
        assert all(isinstance(item, Ready) for item in answer.values())
        if drops_page_cache:
            await asyncio.to_thread(wait_for, lambda: not is_in_memory(path))
            return
        await pool.ask(
            replace(wanted, path=another)
        )  # answered after whatever followed the one before
        assert is_in_memory(path)

    pools.run(scenario, on_device=on_device)


def test_a_process_killed_at_work_leaves_nothing_in_the_next_image(
    requests: list[DecodeRequest],
) -> None:
    async def scenario(pool: DecodePool, own: Callable[[], list[int]]) -> list[Answer]:
        for request in requests[:3]:
            asked = asyncio.gather(*(pool.ask(request) for _ in range(3)), return_exceptions=True)
            await asyncio.sleep(0.01)
            # those that died in the round before may not have their successors yet
            killed = await asyncio.to_thread(wait_for, own, what="a decode process")
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            assert all(isinstance(item, WorkerDied | Retry | dict) for item in await asked)
            await asyncio.to_thread(wait_for, lambda: all(map(has_ended, killed)))  # noqa: B023, awaited at once
        return [await pool.ask(request) for request in requests * 2]

    require_same(with_own_pool(scenario, processes=2), requests)


def decode_processes() -> list[int]:
    """Children of this process that multiprocessing has spawned for work."""
    children = children_of(os.getpid())
    found = []
    for pid in children:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
        if b"spawn_main" in words:
            found.append(int(pid))
    return found


def test_a_release_that_does_not_take_the_image_says_why_beside_one_that_does(
    pools: Pools, tmp_path: Path
) -> None:
    lateral = phantom.save(
        phantom.make_instance(1, view="LATERAL", rows=128, columns=128), tmp_path / "ll.dcm"
    )
    written_out = InputSpec.from_mapping({"recipe": "torchxrayvision_224"}).to_mapping()
    specs = {"frontal": {"recipe": "torchxrayvision_224"}, "any": {**written_out, "views": "any"}}
    request = DecodeRequest(lateral, specs, 1 << 24, "cpu", is_decoded_only=True)

    async def scenario(pool: DecodePool) -> Answer:
        return await pool.ask(request)

    answer = pools.run(scenario, on_device=True)
    frontal = answer["frontal"]
    assert isinstance(frontal, NotReady)
    assert frontal.reason == "lateral_not_supported"
    assert isinstance(answer["any"], Ready)


def test_decode_processes_are_spawned_and_each_computes_on_one_thread(
    requests: list[DecodeRequest],
) -> None:
    """Trap 42: a fork after torch's threads have started may deadlock.

    Trap 43: two processes with a thread a core each fight for them.
    """

    async def scenario(pool: DecodePool, own: Callable[[], list[int]]) -> list[int]:
        before = {pid: threads_of(pid) for pid in own()}
        await asyncio.gather(*(pool.ask(request) for request in requests * 2))
        return [threads_of(pid) - count for pid, count in before.items()]

    assert with_own_pool(scenario) == [0], "preparing pictures started no thread"


def threads_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("Threads:"))


@pytest.mark.parametrize("on_device", [False, True], ids=["worker", "device"])
def test_known_pictures_are_checked_where_tensors_are_prepared(
    pools: Pools, *, on_device: bool
) -> None:
    async def scenario(pool: DecodePool) -> list[Checked]:
        checks = [SpecCheck(spec, "cpu") for spec in SPECS.values()]
        return [await pool.check(check, check_spec if on_device else None) for check in checks]

    assert pools.run(scenario) == [Checked(None)] * len(SPECS)


def test_releases_that_want_colour_in_different_ways_each_get_their_own_picture(
    pools: Pools, tmp_path: Path
) -> None:
    colour = phantom.make_instance(3, rows=96, columns=96, modality="SC")
    colour.SamplesPerPixel, colour.PhotometricInterpretation, colour.PlanarConfiguration = (
        3,
        "RGB",
        0,
    )
    colour.PixelData = np.repeat(np.frombuffer(colour.PixelData, np.uint8), 3).tobytes()
    path = phantom.save(colour, tmp_path / "rgb.dcm")
    specs = {
        name: {"recipe": "vit_imagenet_half_224", "source": {"rgb": name}}
        for name in ("luma", "first_channel", "reject")
    }
    request = DecodeRequest(path, specs, 1 << 24, "cpu", is_decoded_only=True)

    async def scenario(pool: DecodePool) -> Answer:
        return await pool.ask(request)

    answer = pools.run(scenario, on_device=True)
    assert {name: type(item) for name, item in answer.items()} == {
        "luma": Ready,
        "first_channel": Ready,
        "reject": NotReady,
    }
    for name, expected in prepare_for_releases(request).items():
        if isinstance(expected, Ready):
            assert np.array_equal(answer[name].tensor, expected.tensor)  # type: ignore[union-attr]
