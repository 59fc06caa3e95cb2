"""Batches by shared memory to a real tritonserver.

The same answers, nothing left behind, and gRPC where it does not work.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from hilum.analyse.inference.gateway import TritonGateway
from hilum.analyse.inference.shared_memory import Regions
from hilum.triton.server import EmbeddedTriton
from tests.support.machine.waiting import wait_for
from tests.support.models.releases import Tiny, pictures, tiny_logits
from tests.support.models.triton import RemoteTriton, killed_afterwards, with_gateway

pytestmark = pytest.mark.usefixtures("embedded_triton")

_FOLDER = Path("/dev/shm")


@pytest.fixture
def server(tiny: Tiny, tmp_path: Path) -> Iterator[EmbeddedTriton]:
    with killed_afterwards(
        EmbeddedTriton(tiny.built_dir, tmp_path / "state", [tiny.release.triton_name], 60, 1)
    ) as made:
        yield made


def run(url: str, use: Callable[[TritonGateway], Awaitable[None]]) -> None:
    with_gateway(url, use, shares_memory=True)


async def ask(gateway: TritonGateway, tiny: Tiny, size: int, seed: int) -> None:
    images = pictures(size, seed)
    inference = await gateway.infer(tiny.release, images)
    assert np.abs(inference.logits - tiny_logits(images)).max() < 1e-4


def mapped(pid: int | None) -> int:
    """Regions of batches that a process has mapped."""
    return Path(f"/proc/{pid}/maps").read_text().count("hilum-batch-")


def test_requests_at_once_do_not_see_each_other_and_regions_are_used_again(
    server: EmbeddedTriton, tiny: Tiny
) -> None:
    async def use(gateway: TritonGateway) -> None:
        for turn in range(4):
            await asyncio.gather(*(ask(gateway, tiny, size, turn) for size in (1, 4, 2, 3, 4, 1)))
        assert gateway._regions is not None, "it fell back to gRPC"
        assert 0 < mapped(server.pid) <= 6 + 2, (
            "six at once, and some that were too small for a later batch"
        )
        names = gateway._regions.names
        assert names
        assert not [name for name in names if (_FOLDER / name).exists()], (
            "a name is left for a killed process to leave behind"
        )

    run(server.start(), use)
    wait_for(lambda: mapped(server.pid) == 0, what="Triton to let the regions go")


def test_a_triton_that_starts_anew_is_served_at_once(server: EmbeddedTriton, tiny: Tiny) -> None:
    async def use(gateway: TritonGateway) -> None:
        await ask(gateway, tiny, 4, 1)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        server.stop()
        server.start()
        while not await gateway.is_loaded(tiny.release):
            await asyncio.sleep(0.05)
        await asyncio.gather(*(ask(gateway, tiny, 4, seed) for seed in range(3)))
        await ask(gateway, tiny, 4, 9)
        assert gateway._regions is not None, "it fell back to gRPC for good"
        assert mapped(server.pid) > 0

    run(server.start(), use)


def test_images_in_memory_are_for_nobody_else_and_room_is_there_before_it_is_touched() -> None:
    seen: list[tuple[int, int]] = []
    files: list[Path] = []

    async def register(name: str, key: str, size_bytes: int) -> None:
        files.append(_FOLDER / key.removeprefix("/"))
        status = files[-1].stat()
        seen.append((stat.S_IMODE(status.st_mode), status.st_blocks * 512))
        assert size_bytes == status.st_size

    async def use() -> None:
        regions = Regions(register)
        _, region = await regions.lend(1 << 20)
        region.fill(pictures(3))
        with pytest.raises(OSError, match=r"space|memory|large"):
            await regions.lend(1 << 50)

    asyncio.run(use())
    assert seen == [(0o600, 1 << 20)]
    assert not files[0].exists()


WAITS_FOR_TRITON = """
import asyncio
from hilum.analyse.inference.shared_memory import Regions

async def register(name, key, size_bytes):
    print(name, flush=True)
    await asyncio.sleep(3600)

asyncio.run(Regions(register).lend(1 << 20))
"""


@contextlib.contextmanager
def lending() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that has made a region, of which Triton says nothing; and the region's file."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITS_FOR_TRITON], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        file = _FOLDER / process.stdout.readline().strip()
        try:
            yield process, file
        finally:
            process.kill()
            file.unlink(missing_ok=True)


def test_what_a_process_left_that_was_killed_before_triton_had_it_is_taken_away() -> None:
    with lending() as (_, in_use), lending() as (killed, left), lending() as (_, young):
        for file in (in_use, left):
            os.utime(file, (0, 0))
        Regions(never)
        assert all(file.is_file() for file in (in_use, left, young)), "their processes are at them"
        killed.kill()
        killed.wait()
        Regions(never)
        assert [file.is_file() for file in (in_use, left, young)] == [True, False, True]


async def never(_name: str, _key: str, _size_bytes: int) -> None:
    raise AssertionError("nothing is lent")


def test_a_triton_that_has_another_shared_memory_is_sent_grpc(tiny: Tiny, tmp_path: Path) -> None:
    """As in a container of its own."""
    if (
        subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode
        != 0
    ):
        pytest.skip("no mount namespace can be made here: it needs CAP_SYS_ADMIN")
    apart = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$0" "$@"']
    remote = RemoteTriton(tiny.built_dir, tmp_path, [tiny.release.triton_name], before=apart)

    async def use(gateway: TritonGateway) -> None:
        await asyncio.gather(*(ask(gateway, tiny, 4, seed) for seed in range(3)))
        assert gateway._regions is None

    with killed_afterwards(remote):
        run(remote.start(), use)
