"""The tensor contract of an artefact, read from its ONNX graph.

Every profile serves it, for our networks and for brought ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import onnx
from onnx import TensorProto

from hilum.models.manifest.manifest import Manifest

OPSETS: Final = range(11, 22)
"""Opsets of the ONNX domain that all engines read.

The first is where engines agree on Resize and Clip, the last is that of ONNX Runtime 1.19 (Triton
2.51).
"""
WIRE_TYPES: Final = {"fp16": TensorProto.FLOAT16, "uint8": TensorProto.UINT8}
Tensor = tuple[int, list[int | None]]


def problems(model: onnx.ModelProto, manifest: Manifest) -> Iterator[str]:
    """Yield every difference between the artefact and its manifest, in words."""
    yield from opset_problems(model)
    found = tensors(model)
    for name, wanted in _wanted(manifest).items():
        if name not in found:
            yield f"it has no tensor {name}"
        elif found[name][0] != wanted[0] or clash(found[name][1], wanted[1]):
            yield f"{name} is {described(found[name])}, the contract says {described(wanted)}"


def _wanted(manifest: Manifest) -> dict[str, Tensor]:
    spec = manifest.spec
    outputs = len(manifest.release.labels)
    wanted: dict[str, Tensor] = {
        "image": (WIRE_TYPES[spec.wire_dtype], [None, *spec.wire_shape]),
        "logits": (TensorProto.FLOAT, [None, outputs]),
    }
    if manifest.release.has_cam:
        wanted["cam"] = (TensorProto.FLOAT16, [None, outputs, None, None])
    return wanted


def opset_problems(model: onnx.ModelProto) -> Iterator[str]:
    """Yield opsets outside the engines' range, and domains that at most one engine knows."""
    versions = {each.domain or "ai.onnx": each.version for each in model.opset_import}
    if (version := versions.get("ai.onnx", 0)) not in OPSETS:
        yield (
            f"its opset is {version}; {OPSETS.start} to {OPSETS.stop - 1} are served: export it"
            " with one of these"
        )


def tensors(model: onnx.ModelProto) -> dict[str, Tensor]:
    """Return the inputs and outputs: type and sizes, None where any size is possible."""
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
    """Return the sizes; None where any is possible."""
    return [dim.dim_value or None for dim in kind.shape.dim]


def clash(found: list[int | None], wanted: list[int | None]) -> bool:
    """Whether two shapes differ.

    A fixed batch size does too: batches of any size are sent.
    """
    return (
        len(found) != len(wanted)
        or found[0] is not None
        or any(a and b and a != b for a, b in zip(found, wanted, strict=True))
    )


def described(tensor: Tensor) -> str:
    """Return a tensor's type and sizes in words."""
    kind, shape = tensor
    return (
        f"{TensorProto.DataType.Name(kind).lower()}"
        f" {['any' if size is None else size for size in shape]}"
    )
