"""Slots that a GPU reads from where decode processes put the stored values."""

from __future__ import annotations

from typing import Any

import torch

from hilum import telemetry
from hilum.analyse.slots import Array

log = telemetry.logger("analyse")


def lock_pages(memory: Array, device: str) -> bool:
    """Register shared memory with CUDA, once; it stays so until this process ends. Is it?

    Without CUDA: no; what is wrong then is said where the release's known pictures are prepared.
    Where CUDA refuses (RLIMIT_MEMLOCK, say) stored values go through page-locked buffers of their own: a copy more, and nothing else.
    """
    if not torch.cuda.is_available():
        return False
    with torch.cuda.device(device):
        return _is_registered(memory)


def _is_registered(memory: Array) -> bool:
    cuda: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # in torch's own types
    error = int(cuda.cudaHostRegister(memory.ctypes.data, memory.nbytes, 0))
    if error:
        log.warning("slots_not_page_locked", bytes=memory.nbytes, cuda_error=error, advice="raise RLIMIT_MEMLOCK of the analyser")
    return error == 0
