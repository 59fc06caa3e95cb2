"""The tensor contract of an artefact, read off its ONNX graph.

What every profile serves, whoever exported the network.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import onnx
from onnx import TensorProto

from hilum.models.manifest.manifest import Manifest

OPSETS: Final = range(11, 22)
"""Of the ONNX domain: from the first whose Resize and Clip the engines agree on to the last that ONNX Runtime 1.19 reads (Triton 2.51)."""
WIRE_TYPES: Final = {"fp16": TensorProto.FLOAT16, "uint8": TensorProto.UINT8}
Tensor = tuple[int, list[int | None]]


def problems(model: onnx.ModelProto, manifest: Manifest) -> Iterator[str]:
    """Every way in which the artefact is not what the manifest promises, in words."""
    release = manifest.release
    spec = manifest.spec
    yield from opset_problems(model)
    outputs = len(release.labels)
    wanted: dict[str, Tensor] = {
        "image": (WIRE_TYPES[spec.wire_dtype], [None, *spec.wire_shape]),
        "logits": (TensorProto.FLOAT, [None, outputs]),
    }
    if release.has_cam:
        wanted["cam"] = (TensorProto.FLOAT16, [None, outputs, None, None])
    found = tensors(model)
    for name, (kind, sizes) in wanted.items():
        if name not in found:
            yield f"it has no tensor {name}"
        elif found[name][0] != kind or clash(found[name][1], sizes):
            yield (
                f"{name} is {described(found[name])}, the contract says {described((kind, sizes))}"
            )


def opset_problems(model: onnx.ModelProto) -> Iterator[str]:
    """The engines read a range; operators of another domain are known to one of them at most."""
    versions = {each.domain or "ai.onnx": each.version for each in model.opset_import}
    if (version := versions.get("ai.onnx", 0)) not in OPSETS:
        yield (
            f"its opset is {version}; {OPSETS.start} to {OPSETS.stop - 1} are served: export it"
            " with one of these"
        )


def tensors(model: onnx.ModelProto) -> dict[str, Tensor]:
    """Inputs and outputs: type and sizes, None where any size goes."""
    constants = {each.name for each in model.graph.initializer}
    values = (
        *(each for each in model.graph.input if each.name not in constants),
        *model.graph.output,
    )
    return {
        each.name: (each.type.tensor_type.elem_type, sizes(each.type.tensor_type))
        for each in values
    }


def sizes(kind: Any) -> list[int | None]:  # noqa: ANN401 - onnx has no types
    """None: any size."""
    return [dim.dim_value or None for dim in kind.shape.dim]


def clash(found: list[int | None], wanted: list[int | None]) -> bool:
    """A fixed batch size clashes too: batches of any size are sent."""
    return (
        len(found) != len(wanted)
        or found[0] is not None
        or any(a and b and a != b for a, b in zip(found, wanted, strict=True))
    )


def described(tensor: Tensor) -> str:
    """For people."""
    kind, shape = tensor
    return (
        f"{TensorProto.DataType.Name(kind).lower()}"
        f" {['any' if size is None else size for size in shape]}"
    )
