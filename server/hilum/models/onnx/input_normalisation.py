"""The first steps of every artefact, from wire image to normalised float32.

They are separate from the network behind them: a network is quantised, or converted to half
precision, without its normalisation. 12-bit pixel values would lose the most there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper

from hilum.errors import ConfigurationError
from hilum.models.onnx.cleanup import pruned, replace_nodes
from hilum_preprocessing.spec.input_spec import InputSpec

Array = np.ndarray[Any, np.dtype[Any]]
_STEPS: Final = frozenset({"Identity", "Cast", "Sub", "Div"})
INPUT: Final = "hilum_network_input"
"""Name of the input of a network without its first steps: (N, C, H, W) float32."""
_NORMALISED: Final = "hilum_normalised"


def normalised(spec: InputSpec, images: Array) -> Array:
    """(n, 1, H, W) on the wire → (n, C, H, W) float32, (x - mean) / std as the network takes it."""
    mean, std = (
        np.array(values, np.float32).reshape(1, -1, 1, 1)
        for values in (spec.normalise.mean, spec.normalise.std)
    )
    inputs: Array = (images.astype(np.float32) - mean) / std
    return np.broadcast_to(inputs, (len(images), spec.model_channels, *spec.wire_shape[1:])).copy()


@dataclass(frozen=True, slots=True)
class Cut:
    """An artefact in two parts: `network` takes the result that `steps` compute from `image`."""

    steps: tuple[onnx.NodeProto, ...]
    constants: tuple[onnx.TensorProto, ...]
    image: onnx.ValueInfoProto
    network: onnx.ModelProto


def cut(artefact: onnx.ModelProto, channels: int, outputs: tuple[str, ...]) -> Cut:
    """Return the artefact in two parts, with the named outputs.

    Raises ConfigurationError when it does not begin with a cast.
    """
    graph = artefact.graph
    steps = _first_steps(graph)
    if not any(step.op_type == "Cast" for step in steps):
        problem = "the graph does not begin with a cast of the image; it cannot be taken apart"
        raise ConfigurationError([f"{graph.name}: {problem}"])
    (image,) = [value for value in graph.input if value.name == "image"]
    height, width = (dim.dim_value for dim in image.type.tensor_type.shape.dim[2:])
    names = {name for step in steps for name in step.input}
    constants = tuple(each for each in graph.initializer if each.name in names)
    network = _behind(steps, artefact, [channels, height, width], outputs)
    return Cut(_ending_in(_NORMALISED, steps), constants, image, network)


def _first_steps(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the chain of nodes of normalisation behind the image."""
    steps: list[onnx.NodeProto] = []
    joint = "image"
    while len(readers := _readers(graph, joint)) == 1 and readers[0].op_type in _STEPS:
        steps.append(readers[0])
        joint = readers[0].output[0]
    return steps


def _readers(graph: onnx.GraphProto, name: str) -> list[onnx.NodeProto]:
    """Return the nodes that read a tensor, without those that read only the size of its batch.

    Normalisation does not change that size.
    """
    return [node for node in graph.node if name in node.input and not _asks_for_batch(node)]


def _asks_for_batch(node: onnx.NodeProto) -> bool:
    between = {attribute.name: attribute.i for attribute in node.attribute}
    return node.op_type == "Shape" and between.get("start", 0) == 0 and between.get("end") == 1


def join(parts: Cut, network: onnx.ModelProto) -> onnx.ModelProto:
    """Join another network (float32 in, the same outputs) to the same steps."""
    joined = onnx.ModelProto()
    joined.CopyFrom(network)
    del joined.graph.input[:], joined.graph.value_info[:]
    joined.graph.input.append(parts.image)
    bridge = helper.make_node("Identity", [_NORMALISED], [INPUT])
    replace_nodes(joined.graph, [*parts.steps, bridge, *network.graph.node])
    known = {each.name for each in joined.graph.initializer}
    joined.graph.initializer.extend(each for each in parts.constants if each.name not in known)
    return joined


def _ending_in(name: str, steps: list[onnx.NodeProto]) -> tuple[onnx.NodeProto, ...]:
    """Return the steps with this name for their last tensor.

    Its own name stays with the network, where it may have another type.
    """
    last = onnx.NodeProto()
    last.CopyFrom(steps[-1])
    last.output[0] = name
    return (*steps[:-1], last)


def _behind(
    steps: list[onnx.NodeProto],
    artefact: onnx.ModelProto,
    shape: list[int],
    outputs: tuple[str, ...],
) -> onnx.ModelProto:
    network = onnx.ModelProto()
    network.CopyFrom(artefact)
    graph = network.graph
    nodes = _nodes_behind(steps, graph)
    replace_nodes(graph, [helper.make_node("Identity", [INPUT], [steps[-1].output[0]]), *nodes])
    del graph.input[:], graph.value_info[:]
    graph.input.append(helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", *shape]))
    kept = [each for each in graph.output if each.name in outputs]
    del graph.output[:]
    graph.output.extend(kept)
    pruned(graph)
    return network


def _nodes_behind(steps: list[onnx.NodeProto], graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the nodes of the network; those that ask for the batch's size now ask its input."""
    done = {step.output[0] for step in steps}
    nodes = [node for node in graph.node if node.output[0] not in done]
    for node in nodes:
        if _asks_for_batch(node) and node.input[0] in done | {"image"}:
            node.input[0] = INPUT
    return nodes
