"""The two ways to serve a release from one ONNX file, with the same names and tensors: Python backend here, ONNX Runtime's in NGC images.

`render` gives a `config.pbtxt`, `check` refuses one that Triton would refuse or that is known to harm. Of tritonclient only the schema of
`config.pbtxt` is used here; calls go through the analyser's gateway.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from google.protobuf import text_format  # type: ignore[import-untyped]  # protobuf ships no types
from tritonclient.grpc import model_config_pb2

from hilum.errors import ConfigurationError

_WIRE_TYPES: Final = {"uint8": "TYPE_UINT8", "fp16": "TYPE_FP16"}
# Triton's onnxruntime backend counts in its own way; 0, its default, means all.
_GRAPH_LEVELS: Final = {"all": 0, "extended": 1, "basic": -1, "disabled": 2}


@dataclass(frozen=True, slots=True)
class Served:
    """What a profile has to say: the tensor contract and what the release pins."""

    triton_name: str
    wire_type: str
    height: int
    width: int
    outputs: int
    cam_grid: tuple[int, int] | None
    max_batch: int
    engine: str
    precision: str
    optimisation: str


def _head(served: Served, backend: str) -> str:
    cam = (
        f'  {{ name: "cam" data_type: TYPE_FP16 dims: [{served.outputs}, {served.cam_grid[0]}, {served.cam_grid[1]}] }},\n'
        if served.cam_grid
        else ""
    )
    return (
        f'name: "{served.triton_name}"\n'
        f'backend: "{backend}"\n'
        f"max_batch_size: {served.max_batch}\n"
        f'input [ {{ name: "image" data_type: {_WIRE_TYPES[served.wire_type]} dims: [1, {served.height}, {served.width}] }} ]\n'
        f"output [\n{cam}"
        f'  {{ name: "logits" data_type: TYPE_FP32 dims: [{served.outputs}] }}\n]\n'
        "instance_group [ { kind: KIND_CPU count: 1 } ]\n"
        f"dynamic_batching {{ preferred_batch_size: {preferred_sizes(served.max_batch)} max_queue_delay_microseconds: 2000 }}\n"
    )


def preferred_sizes(max_batch: int) -> list[int]:
    """Half a batch and a whole one."""
    return sorted({max(1, max_batch // 2), max_batch})


def _parameters(values: Mapping[str, str]) -> str:
    return "".join(f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n' for key, value in values.items())


def _embedded(served: Served) -> str:
    pinned = {
        "engine": served.engine,
        "precision": served.precision,
        "optimisation": served.optimisation,
        "artefact": "model.onnx",
        "threads": "0",
    }
    return _head(served, "python") + _parameters(pinned)


def _onnxruntime(served: Served) -> str:
    if served.precision == "bf16":
        problem = "the release pins bf16, which Triton's onnxruntime backend cannot run; use the embedded profile"
        raise ConfigurationError([f"{served.triton_name}: {problem}"])
    tensor = f"data_type: {_WIRE_TYPES[served.wire_type]} dims: [1, {served.height}, {served.width}] zero_data: true"
    image = f'inputs {{ key: "image" value: {{ {tensor} }} }}'
    warm = "".join(f'model_warmup {{ name: "batch {size}" batch_size: {size} {image} }}\n' for size in sorted({1, served.max_batch}))
    return _head(served, "onnxruntime") + f"optimization {{ graph {{ level: {_GRAPH_LEVELS[served.optimisation]} }} }}\n" + warm


PROFILES: Final[Mapping[str, Callable[[Served], str]]] = {"embedded": _embedded, "onnxruntime": _onnxruntime}


def render(served: Served, profile: str) -> str:
    """`config.pbtxt` of one release in one profile, checked."""
    text = PROFILES[profile](served)
    if problems := list(check(text, served)):
        raise ConfigurationError(problems)
    return text


def check(text: str, served: Served) -> Iterator[str]:
    """Every reason why Triton must not be given this text."""
    try:
        config = text_format.Parse(text, model_config_pb2.ModelConfig())
    except text_format.ParseError as error:
        yield f"{served.triton_name}: config.pbtxt: {error}"
        return
    for problem in itertools.chain(_contract_problems(config, served), _queue_problems(config)):
        yield f"{served.triton_name}: config.pbtxt: {problem}"


def _contract_problems(config: model_config_pb2.ModelConfig, served: Served) -> Iterator[str]:
    if config.name != served.triton_name:
        yield f"name {config.name!r} is not the folder's name"
    tensors = {t.name: (model_config_pb2.DataType.Name(t.data_type), list(t.dims)) for t in (*config.input, *config.output)}
    wanted = {"image": (_WIRE_TYPES[served.wire_type], [1, served.height, served.width]), "logits": ("TYPE_FP32", [served.outputs])}
    if served.cam_grid:
        wanted["cam"] = ("TYPE_FP16", [served.outputs, *served.cam_grid])
    for name in sorted(set(tensors) | set(wanted)):
        if tensors.get(name) != wanted.get(name):
            yield f"tensor {name!r} is {tensors.get(name)}, the contract says {wanted.get(name)}"
    if any(size > config.max_batch_size for size in config.dynamic_batching.preferred_batch_size):
        yield f"a preferred batch size exceeds max_batch_size {config.max_batch_size}"


def _queue_problems(config: model_config_pb2.ModelConfig) -> Iterator[str]:
    """Triton 2.51 waits up to 500 ms at a time once a queue policy is set; priorities and limits live in the analyser."""
    allowed = {"preferred_batch_size", "max_queue_delay_microseconds"}
    for descriptor, _ in config.dynamic_batching.ListFields():
        if descriptor.name not in allowed:
            yield f"dynamic_batching holds {descriptor.name}, a queue policy: it stalls the batcher 500 ms at a time"
