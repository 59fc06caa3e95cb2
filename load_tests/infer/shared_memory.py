"""Batches to a Triton on the same machine by shared memory.

What the transport itself costs, beside gRPC. Hilum sends gRPC.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import tritonclient.grpc.aio as triton
from tritonclient.utils import np_to_triton_dtype
from tritonclient.utils import shared_memory as region

from hilum.domain import Release
from load_tests.infer.loops import Array


@dataclass(frozen=True, slots=True)
class Slot:
    """A registered region."""

    name: str
    handle: Any


class SharedMemory:
    """A few regions of `size_bytes`, taken in turns. An async context manager."""

    def __init__(self, url: str, size_bytes: int, slots: int) -> None:
        self._client = triton.InferenceServerClient(url)
        self._size = size_bytes
        self._count = slots
        self._free: asyncio.Queue[Slot] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        """Make and register the regions; where that fails, none is left."""
        try:
            for number in range(self._count):
                await self._add(f"hilum-bench-{os.getpid()}-{number}")
        except BaseException:
            await self._give_back()
            raise
        return self

    async def _add(self, name: str) -> None:
        slot = Slot(name, region.create_shared_memory_region(name, f"/{name}", self._size))
        self._free.put_nowait(slot)
        await self._client.register_system_shared_memory(name, f"/{name}", self._size)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Take them back."""
        try:
            await self._client.unregister_system_shared_memory()
        finally:
            await self._give_back()

    async def _give_back(self) -> None:
        while not self._free.empty():
            region.destroy_shared_memory_region(self._free.get_nowait().handle)
        await self._client.close()

    async def infer(self, release: Release, batch: Array) -> object:
        """The batch through a region; small outputs come by gRPC."""
        slot = await self._free.get()
        try:
            region.set_shared_memory_region(slot.handle, [batch])
            image = triton.InferInput("image", list(batch.shape), np_to_triton_dtype(batch.dtype))
            image.set_shared_memory(slot.name, batch.nbytes)
            names = ["logits", "cam"] if release.has_cam else ["logits"]
            wanted = [triton.InferRequestedOutput(name) for name in names]
            answer = await self._client.infer(release.triton_name, [image], outputs=wanted)
            return [answer.as_numpy(name) for name in names]
        finally:
            self._free.put_nowait(slot)
