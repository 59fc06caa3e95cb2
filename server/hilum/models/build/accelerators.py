"""How Triton's ONNX Runtime backend uses a GPU.

The keys are its `execution_accelerators`, with the parameters that the backend's source reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from hilum.models.manifest.served import Served, shape_ranges

ENGINE_CACHE: Final = "/cache"
"""Folder in which the TensorRT accelerator keeps engines between starts of the container."""


def _accelerator(name: str, values: Mapping[str, str]) -> str:
    parameters = " ".join(
        f'parameters {{ key: "{key}" value: "{value}" }}' for key, value in values.items()
    )
    return (
        f' execution_accelerators {{ gpu_execution_accelerator : [ {{ name : "{name}" {parameters}'
        " } ] }"
    )


def _cuda(_served: Served) -> str:
    """Return the settings of CUDA.

    TF32 is off: it keeps ten bits of a float32, so the numbers would not be those of the release.
    """
    return _accelerator("cuda", {"use_tf32": "0"})


def _tensorrt_in_onnxruntime(served: Served, mode: str) -> str:
    """Return the settings of TensorRT inside ONNX Runtime.

    One engine serves all batch sizes. It is built at the first start, which takes minutes, and
    kept.
    """
    shapes = {
        f"trt_profile_{name}_shapes": f"image:{'x'.join(map(str, shape))}"
        for name, shape in shape_ranges(served).items()
    }
    cache = {
        "trt_engine_cache_enable": "true",
        "trt_engine_cache_path": ENGINE_CACHE,
        "trt_timing_cache_enable": "true",
        "trt_timing_cache_path": ENGINE_CACHE,
    }
    return _accelerator("tensorrt", {"precision_mode": mode, **cache, **shapes})


ACCELERATORS: Final[Mapping[str, Callable[[Served], str]]] = {
    "none": lambda _: "",
    "cuda": _cuda,
    "tensorrt": lambda served: _tensorrt_in_onnxruntime(served, "FP32"),
    "tensorrt_fp16": lambda served: _tensorrt_in_onnxruntime(served, "FP16"),
}
