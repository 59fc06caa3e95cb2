"""The accelerator, its driver and the versions of a result. Nothing has to be installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import subprocess
from typing import Any, Final

from load_tests.load.machine import commit, machine

_FIELDS: Final = (
    "name",
    "driver_version",
    "memory.total",
    "compute_cap",
    "pcie.link.gen.max",
    "pcie.link.width.max",
    "power.limit",
)
_DISTRIBUTIONS: Final = (
    "torch",
    "numpy",
    "pydicom",
    "onnx",
    "onnxruntime",
    "onnxruntime-gpu",
    "tritonclient",
    "nvidia-pytriton",
    "tensorrt",
    "nvidia-cudnn-cu13",
    "nvidia-cudnn-cu12",
)


def surroundings() -> dict[str, Any]:
    """Return machine, GPUs, commit and versions."""
    return {
        "machine": {**machine(), "gpus": gpus()},
        **commit(),
        "versions": {"python": platform.python_version(), **_installed(), **_of_cuda()},
    }


def gpus() -> list[dict[str, str]]:
    """Return what nvidia-smi says of each; empty where it is absent or fails."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return listed(answer.stdout) if answer.returncode == 0 else []


def listed(answer: str) -> list[dict[str, str]]:
    """Return one entry a line of nvidia-smi's table."""
    return [
        dict(zip(_FIELDS, (word.strip() for word in line.split(",")), strict=False))
        for line in answer.splitlines()
        if line.strip()
    ]


def _installed() -> dict[str, str]:
    found = {}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _of_cuda() -> dict[str, str]:
    """Return the CUDA and cuDNN that torch was built with; empty for a torch of the CPU."""
    if importlib.util.find_spec("torch") is None:
        return {}
    import torch  # noqa: PLC0415 - it may be absent

    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]  # in torch's own types
    found = {"cuda": torch.version.cuda, "cudnn": cudnn}
    return {name: str(value) for name, value in found.items() if value is not None}
