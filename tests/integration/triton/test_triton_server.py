"""The real tritonserver, embedded: its traps, its life and its death."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilum.analyse.inference.answers import InferenceResult
from hilum.analyse.inference.gateway import TritonGateway
from hilum.domain import Release
from hilum.errors import ConfigurationError
from hilum.triton import leftovers, runtime
from hilum.triton.installation import Installation
from hilum.triton.server import EmbeddedTriton
from tests.support.machine.waiting import wait_for
from tests.support.models.releases import Tiny, make_tiny, pictures, tiny_logits
from tests.support.models.triton import (
    is_alive,
    killed_afterwards,
    listening,
    require_triton,
    stubs,
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    require_triton()
    folder = tmp_path_factory.mktemp("triton")
    make_tiny(folder, "slow", max_batch=1, delay_channels=64)
    return make_tiny(folder)


@pytest.fixture
def server(tiny: Tiny, tmp_path: Path) -> Iterator[EmbeddedTriton]:
    """A server that is not started yet, and is stopped whatever happens."""
    made = EmbeddedTriton(
        tiny.built_dir,
        tmp_path,
        [tiny.release.triton_name],
        start_timeout_seconds=60,
        exit_timeout_seconds=10,
    )
    with killed_afterwards(made):
        yield made


def _infer(url: str, release: Release, *batches: np.ndarray[Any, Any]) -> list[InferenceResult]:
    async def run() -> list[InferenceResult]:
        gateway = TritonGateway(url, deadline_seconds=30)
        try:
            return await asyncio.gather(*(gateway.infer(release, batch) for batch in batches))
        finally:
            await gateway.close()

    return asyncio.run(run())


def test_it_listens_on_no_port_and_keeps_our_secrets_out(
    server: EmbeddedTriton, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HILUM_API__TOKEN", "a secret of the supervisor")
    monkeypatch.setenv("PGPASSWORD", "another one")
    server.start()
    assert server.pid is not None
    assert listening(server.pid) == set()
    seen = Path(f"/proc/{server.pid}/environ").read_bytes()
    assert b"a secret" not in seen
    assert b"PGPASSWORD" not in seen


def test_inputs_are_no_constants_and_outputs_no_empty_bytes(
    server: EmbeddedTriton, tiny: Tiny
) -> None:
    """With numpy 2 in the stub, every pixel would read as the first one and the answer would hold no bytes."""
    url = server.start()
    batches = [pictures(size, seed=size) for size in (1, 4, 2, 3, 1)]
    for batch, inference in zip(batches, _infer(url, tiny.release, *batches), strict=True):
        assert np.abs(inference.logits - tiny_logits(batch)).max() < 1e-4
        constant = np.broadcast_to(batch[:, :, :1, :1], batch.shape)
        assert np.abs(inference.logits - tiny_logits(constant)).max() > 0.01


def test_sigterm_finishes_the_queue_and_ends_with_status_0(tiny: Tiny, tmp_path: Path) -> None:
    slow = Tiny(_release(tiny, "slow"), tiny.manifests_dir, tiny.built_dir)
    server = EmbeddedTriton(tiny.built_dir, tmp_path, [slow.release.triton_name], 60, 10)
    url = server.start()
    images = pictures(8)

    async def run() -> tuple[list[InferenceResult], int | None]:
        gateway = TritonGateway(url, deadline_seconds=60)
        waiting = {
            asyncio.create_task(gateway.infer(slow.release, images[i : i + 1])) for i in range(8)
        }
        done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert pending, "the queue was empty before the signal: nothing was tested"
        status = await asyncio.to_thread(server.stop)
        answers = [await task for task in (*done, *pending)]
        await gateway.close()
        return answers, status

    answers, status = asyncio.run(run())
    assert (len(answers), status) == (8, 0)
    assert list(Path("/dev/shm").glob(f"{leftovers.prefix(tmp_path)}*")) == []


def test_regions_of_a_killed_server_are_swept_and_its_address_stays(
    server: EmbeddedTriton, tiny: Tiny, tmp_path: Path
) -> None:
    first = server.start()
    assert server.pid is not None
    (stub,) = stubs(server.pid, tiny.release.triton_name)
    for each in (
        stub,
        server.pid,
    ):  # as the kernel does when memory runs out; a stub that outlives its server may tidy up
        os.kill(each, signal.SIGKILL)
    wait_for(lambda: server.poll() is not None and not is_alive(stub))
    assert server.poll() == -signal.SIGKILL
    left = leftovers.unmapped(leftovers.prefix(tmp_path))
    assert left
    assert server.start() == first
    assert not any(region.exists() for region in left)
    (inference,) = _infer(first, tiny.release, pictures(2))
    assert np.abs(inference.logits - tiny_logits(pictures(2))).max() < 1e-4


def test_a_stub_that_outlives_its_server_is_ended(
    server: EmbeddedTriton, tiny: Tiny, tmp_path: Path
) -> None:
    """Some notice within a second that their server was killed, some never do.

    Each holds an engine in memory.
    """
    server.start()
    assert server.pid is not None
    (stub,) = stubs(server.pid, tiny.release.triton_name)
    assert leftovers.orphans(leftovers.prefix(tmp_path)) == []
    os.kill(stub, signal.SIGSTOP)  # this one shall not notice
    os.kill(server.pid, signal.SIGKILL)
    wait_for(lambda: server.poll() is not None)
    assert leftovers.orphans(leftovers.prefix(tmp_path)) == [stub]
    assert leftovers.orphans("hilum-of-another-installation-") == []
    url = server.start()
    assert not is_alive(stub)
    (inference,) = _infer(url, tiny.release, pictures(1))
    assert np.abs(inference.logits - tiny_logits(pictures(1))).max() < 1e-4


def test_it_dies_with_its_parent(tiny: Tiny, tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from hilum.triton.server import"
        f" EmbeddedTriton\nserver = EmbeddedTriton(Path({str(tiny.built_dir)!r}),"
        f" Path({str(tmp_path)!r}), [{tiny.release.triton_name!r}])\nserver.start(); print('pid',"
        " server.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(next(line for line in parent.stdout if line.startswith("pid ")).split()[1])
        assert is_alive(pid)
        parent.kill()
    wait_for(lambda: not is_alive(pid))


def test_a_model_that_cannot_load_is_named_with_its_reason(tiny: Tiny, tmp_path: Path) -> None:
    name = tiny.release.triton_name
    shutil.copytree(tiny.built_dir, tmp_path / "built")
    (tmp_path / "built/embedded" / name / "1/model.onnx").write_bytes(b"damaged")
    server = EmbeddedTriton(tmp_path / "built", tmp_path / "state", [name], 60, 5)
    with pytest.raises(ConfigurationError, match=name) as caught:
        server.start()
    assert str(server.log_file) in str(caught.value)
    assert "CudaDriverHelper" not in str(caught.value)
    assert server.poll() is not None


def test_a_stub_that_finds_numpy_2_refuses_the_model(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment's own check is passed over, as on a Triton that Hilum does not run."""
    wheel = runtime.find()
    assert wheel is not None
    if wheel.installation.version != f"{sys.version_info.major}.{sys.version_info.minor}":
        pytest.skip("the stub's Python cannot load the numpy of this one")
    found = with_this_numpy(wheel.installation, tmp_path / "numpy-2")
    monkeypatch.setattr(runtime, "find", lambda: dataclasses.replace(wheel, installation=found))
    monkeypatch.setattr(runtime, "preflight", list)
    # The sandbox shows the environment with numpy 2 alone; tritonserver lies in the other one.
    monkeypatch.setenv("LD_LIBRARY_PATH", str(wheel.installation.folder))
    name = tiny.release.triton_name
    server = EmbeddedTriton(tiny.built_dir, tmp_path / "state", [name], 60, 5)
    with pytest.raises(ConfigurationError, match=rf"numpy {np.__version__} .* gives wrong answers"):
        server.start()
    assert server.poll() is not None


def with_this_numpy(like: Installation, folder: Path) -> Installation:
    """An environment of the same Python, with the numpy of this process and nothing else."""
    base = like.base / f"bin/python{like.version}"
    subprocess.run([base, "-I", "-m", "venv", "--without-pip", folder], check=True)
    made = Installation(folder, like.version)
    packages = Path(np.__file__).parents[1]
    for part in ("numpy", "numpy.libs"):
        shutil.copytree(packages / part, made.packages / part)
    return made


def test_a_server_that_is_never_ready_is_ended(tiny: Tiny, tmp_path: Path) -> None:
    server = EmbeddedTriton(
        tiny.built_dir,
        tmp_path,
        [tiny.release.triton_name],
        start_timeout_seconds=0.01,
        exit_timeout_seconds=5,
    )
    with pytest.raises(ConfigurationError, match=r"not ready within 0\.01 s"):
        server.start()
    assert server.poll() is not None


def test_one_that_is_killed_while_it_starts_is_started_again(
    server: EmbeddedTriton, tiny: Tiny
) -> None:
    killed: list[int] = []

    def kill_the_first() -> None:
        pid = wait_for(lambda: server.pid)
        assert pid is not None
        killed.append(pid)
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_the_first)
    killer.start()
    url = server.start()
    killer.join()
    assert server.pid not in killed
    assert len(_infer(url, tiny.release, pictures(1))) == 1


def test_starting_twice_is_a_bug(server: EmbeddedTriton) -> None:
    server.start()
    with pytest.raises(RuntimeError, match="already running"):
        server.start()


def _release(tiny: Tiny, name: str) -> Release:
    from hilum.models.manifest import catalogue

    return catalogue.load_catalogue(tiny.manifests_dir)[f"{name}@1"]
