"""Reasons why Triton must not load a `config.pbtxt`.

It is read with Triton's own schema and compared with contract, ONNX and plan. Only the schema of
tritonclient is used here; calls go through the analyser's gateway.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from google.protobuf import text_format  # type: ignore[import-untyped]  # protobuf ships no types
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # the same
from tritonclient.grpc import model_config_pb2

from hilum.models.manifest.served import WIRE_TYPES, Served

_ONNX_TYPES: Final = {"FLOAT": "TYPE_FP32", "FLOAT16": "TYPE_FP16", "UINT8": "TYPE_UINT8"}
Tensors = Mapping[str, tuple[str, Sequence[int | None]]]


def check(text: str, served: Served) -> Iterator[str]:
    """Yield the problems of a config.pbtxt for this release."""
    try:
        config = text_format.Parse(text, model_config_pb2.ModelConfig())
    except text_format.ParseError as error:
        yield f"{served.triton_name}: config.pbtxt: {error}"
        return
    for problem in itertools.chain(
        _contract_problems(config, served), _queue_problems(config), _size_problems(config, served)
    ):
        yield f"{served.triton_name}: config.pbtxt: {problem}"


def check_onnx(file: Path, served: Served) -> Iterator[str]:
    """Yield the problems of an ONNX file for this release.

    Compared are names, types and dimensions; the batch must be free.
    """
    import onnx  # noqa: PLC0415 - a build tool, not needed to serve

    from hilum.models.onnx import contract  # noqa: PLC0415 - the same

    title = f"{served.triton_name}: {file.name}"
    try:
        found = {
            name: (_triton_type(onnx.TensorProto.DataType.Name(kind)), sizes)
            for name, (kind, sizes) in contract.tensors(onnx.load(file)).items()
        }
    except (OSError, DecodeError) as error:
        yield f"{title}: not a readable ONNX file: {error}"
        return
    wanted = {"image": (WIRE_TYPES[served.wire_type], served.image_dims), **served.tensors}
    for name in sorted(set(found) | set(wanted)):
        kind, sizes = found.get(name, (None, []))
        wanted_kind, dims = wanted.get(name, (None, []))
        if kind is None or kind != wanted_kind or contract.clash(sizes, [None, *dims]):
            shown = f"{found.get(name)}, the contract says {wanted.get(name)}"
            yield f"{title}: tensor {name!r} is {shown}"


def _triton_type(onnx_type: str) -> str:
    return _ONNX_TYPES.get(onnx_type, onnx_type)


def check_shape_ranges(ranges: Mapping[str, Sequence[int]], served: Served) -> Iterator[str]:
    """Yield the problems of an optimization profile.

    TensorRT refuses a batch outside its range at the first request of that size.
    """
    shapes = [list(ranges.get(name, [])) for name in ("min", "opt", "max")]
    if any(shape[1:] != served.image_dims for shape in shapes):
        yield (
            f"{served.triton_name}: the optimization profile's images are {shapes}, the contract's"
            f" {served.image_dims}"
        )
        return
    smallest, usual, largest = (shape[0] for shape in shapes)
    if not 1 == smallest <= usual <= largest or largest < served.max_batch:
        yield (
            f"{served.triton_name}: the optimization profile takes {smallest} to {largest} images;"
            f" 1 to {served.max_batch} are sent"
        )


def _contract_problems(config: model_config_pb2.ModelConfig, served: Served) -> Iterator[str]:
    if config.name != served.triton_name:
        yield f"name {config.name!r} is not the folder's name"
    if config.max_batch_size != served.max_batch:
        yield f"max_batch_size is {config.max_batch_size}, the release's is {served.max_batch}"
    tensors = {
        t.name: (model_config_pb2.DataType.Name(t.data_type), list(t.dims))
        for t in (*config.input, *config.output)
    }
    yield from _differences(
        tensors, {"image": (WIRE_TYPES[served.wire_type], served.image_dims), **served.tensors}
    )


def _differences(tensors: Tensors, wanted: Tensors) -> Iterator[str]:
    for name in sorted(set(tensors) | set(wanted)):
        if tensors.get(name) != wanted.get(name):
            yield f"tensor {name!r} is {tensors.get(name)}, the contract says {wanted.get(name)}"


def _queue_problems(config: model_config_pb2.ModelConfig) -> Iterator[str]:
    """Yield a problem where a queue policy is set.

    Triton 2.51 then waits up to 500 ms at a time. The analyser has priorities and limits.
    """
    allowed = {"preferred_batch_size", "max_queue_delay_microseconds"}
    for descriptor, _ in config.dynamic_batching.ListFields():
        if descriptor.name not in allowed:
            yield (
                f"dynamic_batching holds {descriptor.name}, a queue policy: it stalls the batcher"
                " 500 ms at a time"
            )


def _size_problems(config: model_config_pb2.ModelConfig, served: Served) -> Iterator[str]:
    """Yield the warm-ups and graphs larger than the batch.

    Triton refuses to load a model with one.
    """
    used = {
        "a preferred batch size": config.dynamic_batching.preferred_batch_size,
        "a warm-up": [each.batch_size for each in config.model_warmup],
        "a CUDA graph": [each.batch_size for each in config.optimization.cuda.graph_spec],
    }
    for what, sizes in used.items():
        if any(size > config.max_batch_size for size in sizes):
            yield f"{what} exceeds max_batch_size {config.max_batch_size}"
    shapes = [list(each.inputs["image"].dims) for each in config.model_warmup]
    shapes += [list(each.input["image"].dim) for each in config.optimization.cuda.graph_spec]
    if any(shape != served.image_dims for shape in shapes):
        yield f"a warm-up or CUDA graph has other images than {served.image_dims}"
