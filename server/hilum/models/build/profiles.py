"""The ways to serve a release from one ONNX file, with the same names and tensors.

`embedded` is Triton's Python backend, here; `onnxruntime` and `tensorrt` are those of NGC's images.
`render` gives a `config.pbtxt` that has passed `profile_checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from hilum.errors import ConfigurationError
from hilum.models.build import profile_checks
from hilum.models.manifest.served import (
    WIRE_TYPES,
    Served,
    preferred_sizes,
    shape_ranges,
    warm_sizes,
)

# Triton's onnxruntime backend counts in its own way; 0, its default, means all.
_GRAPH_LEVELS: Final = {"all": 0, "extended": 1, "basic": -1, "disabled": 2}
_ENGINES_PER_GPU: Final = 2  # one computes while the other copies

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


def _head(served: Served, runs_in: str, group: str) -> str:
    outputs = ",\n".join(
        f'  {{ name: "{name}" data_type: {kind} dims: {dims} }}'
        for name, (kind, dims) in served.tensors.items()
    )
    return (
        f'name: "{served.triton_name}"\n'
        f"{runs_in}\n"
        f"max_batch_size: {served.max_batch}\n"
        f'input [ {{ name: "image" data_type: {WIRE_TYPES[served.wire_type]} dims:'
        f" {served.image_dims} }} ]\n"
        f"output [\n{outputs}\n]\n"
        f"instance_group [ {{ {group} }} ]\n"
        # No delay: the analyser fills the batches, so a partial batch has nothing to wait for.
        f"dynamic_batching {{ preferred_batch_size: {preferred_sizes(served.max_batch)} }}\n"
    )


def _parameters(values: Mapping[str, str]) -> str:
    return "".join(
        f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'
        for key, value in values.items()
    )


def _warm_up(served: Served) -> str:
    tensor = f"data_type: {WIRE_TYPES[served.wire_type]} dims: {served.image_dims} zero_data: true"
    image = f'inputs {{ key: "image" value: {{ {tensor} }} }}'
    return "".join(
        f'model_warmup {{ name: "batch {size}" batch_size: {size} {image} }}\n'
        for size in warm_sizes(served.max_batch)
    )


def _embedded(served: Served) -> str:
    pinned = {
        "engine": served.engine,
        "precision": served.precision,
        "optimisation": served.optimisation,
        "artefact": "model.onnx",
        "threads": "0",
    }
    return _head(served, 'backend: "python"', "kind: KIND_CPU count: 1") + _parameters(pinned)


def _onnxruntime(served: Served) -> str:
    _require_precision(
        served, "bf16", "Triton's onnxruntime backend cannot run; use the embedded profile"
    )
    group = f"kind: {'KIND_CPU' if served.accelerator == 'none' else 'KIND_GPU'} count: 1"
    optimisation = (
        f"graph {{ level: {_GRAPH_LEVELS[served.optimisation]}"
        f" }}{ACCELERATORS[served.accelerator](served)}"
    )
    return (
        _head(served, 'backend: "onnxruntime"', group)
        + f"optimization {{ {optimisation} }}\n"
        + _warm_up(served)
    )


def _tensorrt(served: Served) -> str:
    _require_precision(served, "bf16", "plans are not made for; use the embedded profile")
    _require_precision(
        served,
        "int8",
        "TensorRT cannot take over from ONNX Runtime; build the release that it was made from",
    )
    group = f"kind: KIND_GPU count: {_ENGINES_PER_GPU}"
    graphs = " ".join(_cuda_graphs(served))
    return (
        _head(served, 'platform: "tensorrt_plan"', group)
        + f"optimization {{ cuda {{ graphs: true {graphs} }} }}\n"
        + _warm_up(served)
    )


def _cuda_graphs(served: Served) -> Iterator[str]:
    """Yield a graph for each warm size; a batch between two sizes uses the larger one's."""
    image = f'input {{ key: "image" value {{ dim: {served.image_dims} }} }}'
    smaller = 0
    for size in warm_sizes(served.max_batch):
        lower = (
            f" graph_lower_bound {{ batch_size: {smaller + 1} {image} }}"
            if size > smaller + 1
            else ""
        )
        yield f"graph_spec {{ batch_size: {size} {image}{lower} }}"
        smaller = size


def _require_precision(served: Served, precision: str, why_not: str) -> None:
    if served.precision == precision:
        raise ConfigurationError(
            [f"{served.triton_name}: the release pins {precision}, which {why_not}"]
        )


PROFILES: Final[Mapping[str, Callable[[Served], str]]] = {
    "embedded": _embedded,
    "onnxruntime": _onnxruntime,
    "tensorrt": _tensorrt,
}


def render(served: Served, profile: str) -> str:
    """Return the checked `config.pbtxt` of one release in one profile."""
    if served.accelerator != "none" and profile != "onnxruntime":
        raise ConfigurationError(
            [
                (
                    f"{served.triton_name}: an accelerator belongs to the onnxruntime profile, not"
                    f" to {profile}"
                )
            ]
        )
    text = PROFILES[profile](served)
    if problems := list(profile_checks.check(text, served)):
        raise ConfigurationError(problems)
    return text
