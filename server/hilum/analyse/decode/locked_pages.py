"""Slots from which a GPU reads the stored values that decode processes put there."""

from __future__ import annotations

from typing import Any

import torch

from hilum.analyse.decode.slots import Array
from hilum.observability import telemetry

log = telemetry.logger("analyse")


def lock_pages(memory: Array, device: str) -> bool:
    """Register shared memory with CUDA until this process ends; return whether that worked.

    Without CUDA: False; the check of the release's known pictures reports the problem. If CUDA
    refuses (for example by RLIMIT_MEMLOCK), stored values go through separate page-locked buffers.
    That costs one copy.
    """
    if not torch.cuda.is_available():
        return False
    with torch.cuda.device(device):
        return _is_registered(memory)


def _is_registered(memory: Array) -> bool:
    cuda: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # in torch's own types
    error = int(cuda.cudaHostRegister(memory.ctypes.data, memory.nbytes, 0))
    if error:
        log.warning(
            "slots_not_page_locked",
            bytes=memory.nbytes,
            cuda_error=error,
            advice="raise RLIMIT_MEMLOCK of the analyser",
        )
    return error == 0
