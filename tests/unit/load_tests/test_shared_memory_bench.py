"""The bench's shared memory leaves nothing behind, also where nobody takes it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from load_tests.infer.shared_memory import SharedMemory
from testing.serving import free_ports


def test_regions_that_nobody_registers_are_given_back() -> None:
    async def begin() -> None:
        async with SharedMemory(f"127.0.0.1:{free_ports(1)[0]}", size_bytes=4096, slots=2):
            raise AssertionError("nobody listens there")

    with pytest.raises(InferenceServerException):
        asyncio.run(begin())
    assert list(Path("/dev/shm").glob(f"hilum-bench-{os.getpid()}-*")) == []
