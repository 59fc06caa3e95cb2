"""A tritonserver that dies, or hangs, while it starts.

It is started again, and a stop need not wait for it.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hilum.supervisor.triton_keeper import TritonKeeper
from hilum.triton.server import EmbeddedTriton
from tests.support.machine.waiting import wait_for
from tests.support.models.releases import Tiny
from tests.support.models.triton import killed_afterwards, stubs

pytestmark = pytest.mark.usefixtures("embedded_triton")


@pytest.fixture
def triton(tiny: Tiny, tmp_path: Path) -> Iterator[EmbeddedTriton]:
    shutil.copytree(tiny.built_dir, tmp_path / "built")
    made = EmbeddedTriton(
        tmp_path / "built", tmp_path / "state", [tiny.release.triton_name], 60, 10
    )
    with killed_afterwards(made):
        yield made


def test_one_that_ends_is_started_again_at_its_address(triton: EmbeddedTriton) -> None:
    ready = threading.Semaphore(0)
    keeper = TritonKeeper(triton, ready.release)
    keeper.start()
    assert ready.acquire(timeout=60)
    url, first = keeper.url, triton.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: triton.poll() is not None)
    keeper.look()
    assert ready.acquire(timeout=60)
    assert keeper.url == url
    assert triton.pid != first
    keeper.stop()
    assert triton.poll() is not None


def test_one_that_stands_still_while_it_starts_can_be_stopped(
    triton: EmbeddedTriton, tiny: Tiny
) -> None:
    keeper = TritonKeeper(triton, lambda: None)
    keeper.start()
    wait_for(lambda: stands_still(triton, tiny.release.triton_name))
    keeper.stop()
    assert triton.poll() is not None


def stands_still(server: EmbeddedTriton, triton_name: str) -> bool:
    """Whether a stub of the model could be stopped.

    One that was seen may have gone: the first is only asked for the configuration.
    """
    for stub in stubs(server.pid, triton_name) if server.pid is not None else ():
        with suppress(ProcessLookupError):
            os.kill(stub, signal.SIGSTOP)
            return True
    return False


def test_one_that_cannot_load_its_model_is_tried_again(
    triton: EmbeddedTriton, tiny: Tiny, tmp_path: Path
) -> None:
    network = tmp_path / "built/embedded" / tiny.release.triton_name / "1/model.onnx"
    whole = network.read_bytes()
    network.write_bytes(b"damaged")
    ready = threading.Semaphore(0)
    keeper = TritonKeeper(triton, ready.release)
    keeper.start()
    wait_for(lambda: triton.poll() is not None, what="the first try")
    assert keeper.url == ""
    network.write_bytes(whole)
    assert ready.acquire(timeout=60)
    keeper.stop()
