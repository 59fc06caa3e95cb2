"""ONNX files that a user brings.

They are read without trust, and facts about a network are read from its graph alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf ships no types
from onnx import numpy_helper

from hilum.errors import ConfigurationError
from hilum.models.formats import pickled
from hilum.models.onnx import contract
from hilum.models.onnx.contract import Tensor

_FLOATS: Final = {
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.DOUBLE,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
}
# Zero times infinity is no number. A mask of infinities is added, or chosen from, and does no harm.
_MULTIPLYING: Final = frozenset(
    {"Conv", "ConvTranspose", "Gemm", "MatMul", "BatchNormalization", "LayerNormalization"}
)


def read(path: Path) -> onnx.ModelProto:
    """Return the network.

    Raises ConfigurationError: a pickle, not ONNX, weights in other files, weights that are no
    numbers.
    """
    if path.is_file() and pickled.is_pickle(path):
        raise ConfigurationError([f"{path} is {pickled.advice(path)}"])
    try:
        model = onnx.load(path, load_external_data=False)
        problems = [f"{path}: {problem}" for problem in _weights_problems(model.graph)]
    except (
        DecodeError,
        OSError,
        ValueError,
        TypeError,
        KeyError,
    ) as error:  # the last three are raised for numbers that do not fill their shape
        raise ConfigurationError([f"{path}: not a readable ONNX file: {error}"]) from error
    if problems:
        raise ConfigurationError(problems)
    require_valid(model, path, has_shapes=False)
    return model


def require_valid(model: onnx.ModelProto, path: Path, *, has_shapes: bool = True) -> None:
    """Raise ConfigurationError where the graph breaks a rule of ONNX.

    With `has_shapes`, also where its types and shapes contradict each other.
    """
    try:
        onnx.checker.check_model(model, full_check=has_shapes)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError) as error:
        raise ConfigurationError(
            [f"{path}: no valid ONNX network: {' '.join(str(error).split())}"]
        ) from error


def inputs_of(model: onnx.ModelProto) -> dict[str, Tensor]:
    """Return the inputs by name, without constants."""
    outputs = {each.name for each in model.graph.output}
    return {name: tensor for name, tensor in contract.tensors(model).items() if name not in outputs}


def outputs_of(model: onnx.ModelProto) -> dict[str, Tensor]:
    """Return the outputs by name."""
    tensors = contract.tensors(model)
    return {each.name: tensors[each.name] for each in model.graph.output}


def expose(model: onnx.ModelProto, name: str) -> None:
    """Make an inner tensor an output of the graph.

    Logits before an activation are available then. An output stays as it is.
    """
    if name in {each.name for each in model.graph.output}:
        return
    inferred = {
        each.name: each for each in onnx.shape_inference.infer_shapes(model).graph.value_info
    }
    if name in inferred:
        model.graph.output.append(inferred[name])


def is_quantised(model: onnx.ModelProto) -> bool:
    """Whether its weights or activations are whole numbers."""
    return any(
        node.op_type in {"QuantizeLinear", "DynamicQuantizeLinear"}
        or node.op_type.startswith("QLinear")
        for node in model.graph.node
    )


def metadata(model: onnx.ModelProto) -> Mapping[str, str]:
    """Return the exporter's metadata."""
    return {each.key: each.value for each in model.metadata_props}


def _weights_problems(graph: onnx.GraphProto) -> Iterator[str]:
    factors = {name for node in graph.node if node.op_type in _MULTIPLYING for name in node.input}
    for tensor in _constants(graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield (
                "its weights lie in another file, which no digest covers; save it as one (onnx.save"
                " with save_as_external_data=False)"
            )
            return
        if tensor.data_type in _FLOATS and (
            held := _no_numbers(tensor, is_factor=tensor.name in factors)
        ):
            yield f"{tensor.name or 'a constant'} holds {held}: the weights are damaged"


def _no_numbers(tensor: onnx.TensorProto, *, is_factor: bool) -> str | None:
    values = numpy_helper.to_array(tensor)
    values = values if tensor.data_type == onnx.TensorProto.DOUBLE else values.astype(np.float32)
    if np.isnan(values).any():
        return "NaN"
    return "infinite numbers" if is_factor and np.isinf(values).any() else None


def _constants(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        yield from (attribute.t for attribute in node.attribute if attribute.HasField("t"))
