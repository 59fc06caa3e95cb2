"""Parts of a graph that make an answer depend on chance or on the other images of its batch.

They come from exports that are still in training mode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import onnx
from onnx import numpy_helper

from hilum.models.onnx.cleanup import names_read

_DRAWING: Final = frozenset(
    {
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Multinomial",
        "Bernoulli",
    }
)
_ADVICE: Final = "export the network after net.eval(), without dropout"


def problems(model: onnx.ModelProto, outputs: Iterable[str]) -> Iterator[str]:
    """Yield a line for each kind of operator that one of `outputs` needs."""
    needed = [
        *_needed(model.graph, set(outputs)),
        *(node for function in model.functions for node in _with_inner(function.node)),
    ]
    switches = _switches(model.graph, needed)
    kinds = Counter(kind for node in needed if (kind := _kind(node, switches)))
    yield from (f"{count} x {kind}; {_ADVICE}" for kind, count in kinds.items())


def _needed(graph: onnx.GraphProto, names: set[str]) -> Iterator[onnx.NodeProto]:
    """Return the nodes that the outputs need.

    By a rule of ONNX, nodes follow those whose outputs they read.
    """
    for node in reversed(graph.node):
        if names & set(node.output):
            names |= names_read(node)
            yield from _with_inner([node])


def _with_inner(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield the nodes, and those of the graphs inside them."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            yield from (
                each
                for inner in (attribute.g, *attribute.graphs)
                for each in _with_inner(inner.node)
            )


def _kind(node: onnx.NodeProto, switches: dict[str, bool]) -> str | None:
    if node.op_type in _DRAWING:
        return f"{node.op_type}: answers depend on chance"
    if (
        node.op_type == "Dropout"
        and len(node.input) > 2
        and node.input[2]
        and switches.get(node.input[2], False)
    ):
        return "Dropout in training mode: answers depend on chance"
    if node.op_type == "BatchNormalization" and _is_training(node):
        return (
            "BatchNormalization in training mode: an image's answer depends on its neighbours in"
            " the batch"
        )
    return None


def _is_training(node: onnx.NodeProto) -> bool:
    """Whether a node is in training mode.

    Since opset 14 an attribute says it; before, the node puts out statistics.
    """
    return sum(map(bool, node.output)) > 1 or any(
        each.name == "training_mode" and each.i for each in node.attribute
    )


def _switches(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> dict[str, bool]:
    """Return the constant truth values by name.

    Other switches are found by `build`, which runs the network twice.
    """
    constants = [(each.name, each) for each in graph.initializer]
    constants += [
        (node.output[0], each.t)
        for node in nodes
        if node.op_type == "Constant"
        for each in node.attribute
        if each.name == "value"
    ]
    return {
        name: bool(numpy_helper.to_array(each).any())
        for name, each in constants
        if each.data_type == onnx.TensorProto.BOOL
    }
