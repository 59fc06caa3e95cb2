"""The activation that an output of a network comes out of, and the logits before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import onnx

_ACTIVATIONS: Final = {"Sigmoid": "sigmoid", "Softmax": "softmax"}
_SAME_FORM: Final = frozenset(
    {"Identity", "Cast", "Clip", "Dropout", "QuantizeLinear", "DequantizeLinear"}
)
_OTHER_FORM: Final = frozenset(
    {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Slice", "Gather", "Split"}
)
_JOINING: Final = frozenset({"Concat", "Min", "Max"})


@dataclass(frozen=True, slots=True)
class Ending:
    """The activation inside the graph, and the name of the logits before it.

    None where no tensor has them in the form of the output.
    """

    activation: str
    logits: str | None


def ending(model: onnx.ModelProto, output: str) -> Ending | None:
    """Return the sigmoid or softmax that this output, or a part of it, comes out of.

    Nodes that only pass values on are skipped.
    """
    makers = {name: node for node in model.graph.node for name in node.output}
    seen: set[str] = set()
    ahead = [(output, True)]
    while ahead:
        name, is_whole = ahead.pop()
        node = makers.get(name)
        if node is None or name in seen:
            continue
        seen.add(name)
        if node.op_type in _ACTIVATIONS:
            return Ending(_ACTIVATIONS[node.op_type], node.input[0] if is_whole else None)
        ahead += [(each, is_whole and node.op_type in _SAME_FORM) for each in _passed_on(node)]
    return None


def _passed_on(node: onnx.NodeProto) -> list[str]:
    """Return the inputs whose values a node passes on unchanged or limited."""
    if node.op_type in _JOINING:
        return list(node.input)
    return list(node.input[:1]) if node.op_type in _SAME_FORM | _OTHER_FORM else []
