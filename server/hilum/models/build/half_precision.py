"""The artefact with its network in half precision.

TensorRT's networks are strongly typed: the types are those of the ONNX file.
"""

from __future__ import annotations

from pathlib import Path

import onnx

from hilum.models.networks.ensemble_rules import RULE_NODE
from hilum.models.onnx.cleanup import sorted_nodes
from hilum.models.onnx.input_normalisation import cut, join


def write_half(artefact: Path, destination: Path, channels: int) -> None:
    """Write `destination`: the same tensors outside, the network in float16 inside.

    The steps up to the normalised image and the rule of an ensemble stay in float32.
    """
    # A large import, needed here alone.
    from onnxruntime.transformers.float16 import (  # noqa: PLC0415
        convert_float_to_float16,
    )

    model = onnx.load(artefact)
    parts = cut(model, channels, tuple(each.name for each in model.graph.output))
    for number, node in enumerate(parts.network.graph.node):
        node.name = node.name or f"node_{number}"  # the converter knows nodes by name
    kept = [node.name for node in parts.network.graph.node if node.name.startswith(RULE_NODE)]
    half = convert_float_to_float16(parts.network, keep_io_types=True, node_block_list=kept)
    joined = join(parts, half)
    sorted_nodes(joined.graph)
    onnx.checker.check_model(joined, full_check=True)
    onnx.save(joined, destination)
