"""A network that somebody else exported: its input becomes `image`, its output `logits`, and normalisation moves into the graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf ships no types
from onnx import TensorProto, helper, numpy_helper

from hilum.errors import ConfigurationError
from hilum.models.canary import known_image, tolerance
from hilum.models.embedded_model import onnxruntime_session, open_engine
from hilum.models.manifest import Manifest

_WIRE_TYPES: Final = {"fp16": TensorProto.FLOAT16, "uint8": TensorProto.UINT8}
_PREFIX: Final = "hilum_"
PARITY: Final = 1e-4


def graft(manifest: Manifest, source: Path, destination: Path) -> None:
    """Write `destination`: the network behind a cast and (x - mean) / std. Raises ConfigurationError when it does not fit the manifest."""
    model = _read(source)
    if problems := [f"{source}: {problem}" for problem in _misfits(model.graph, manifest)]:
        raise ConfigurationError(problems)
    _rename_tensor(model.graph, manifest.weights.output, "logits")
    _put_before(model.graph, manifest)
    model.graph.name = manifest.release.triton_name
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, destination)
    _require_parity(manifest, source, destination)


def _read(source: Path) -> onnx.ModelProto:
    try:
        model = onnx.load(source)
        onnx.checker.check_model(model)
    except (DecodeError, onnx.checker.ValidationError, OSError) as error:
        raise ConfigurationError([f"{source}: not a readable ONNX file: {error}"]) from error
    return model


def _misfits(graph: onnx.GraphProto, manifest: Manifest) -> Iterator[str]:
    weights, spec = manifest.weights, manifest.spec
    wanted = [None, spec.model_channels, *spec.wire_shape[1:]]
    constants = {each.name for each in graph.initializer}
    inputs = {each.name: each.type.tensor_type for each in graph.input if each.name not in constants}
    outputs = {each.name: each.type.tensor_type for each in graph.output}
    if set(inputs) != {weights.input}:
        yield f"its inputs are {', '.join(inputs)}; weights.input says {weights.input}"
    elif inputs[weights.input].elem_type != TensorProto.FLOAT:
        yield f"its input {weights.input} is not float32"
    elif _clash(_sizes(inputs[weights.input]), wanted):
        yield f"its input is {_sizes(inputs[weights.input])}; the manifest's is {wanted} (None: any size)"
    if weights.output not in outputs:
        yield f"its outputs are {', '.join(outputs)}; weights.output says {weights.output}"
    elif _clash(_sizes(outputs[weights.output]), [None, len(manifest.release.labels)]):
        yield f"its output is {_sizes(outputs[weights.output])}; the manifest has {len(manifest.release.labels)} labels"


def _sizes(kind: onnx.TypeProto.Tensor) -> list[int | None]:
    """None: any size."""
    return [dim.dim_value or None for dim in kind.shape.dim]


def _clash(found: list[int | None], wanted: list[int | None]) -> bool:
    """A fixed batch size clashes too: batches of any size are sent."""
    return len(found) != len(wanted) or found[0] is not None or any(a and b and a != b for a, b in zip(found, wanted, strict=True))


def _rename_tensor(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [new if name == old else name for name in names]
    for value in (*graph.output, *graph.value_info):
        value.name = new if value.name == old else value.name


def _put_before(graph: onnx.GraphProto, manifest: Manifest) -> None:
    """Wire image → Cast → Sub → Div → the network's own input; a 3-channel mean repeats the one channel by broadcasting."""
    spec, inner = manifest.spec, manifest.weights.input
    columns = {name: np.array(values, np.float32) for name, values in (("mean", spec.normalise.mean), ("std", spec.normalise.std))}
    for name, values in columns.items():
        column = np.broadcast_to(values, spec.model_channels).reshape(1, -1, 1, 1).copy()
        graph.initializer.append(numpy_helper.from_array(column, f"{_PREFIX}{name}"))
    before = [
        helper.make_node("Cast", ["image"], [f"{_PREFIX}float"], to=TensorProto.FLOAT),
        helper.make_node("Sub", [f"{_PREFIX}float", f"{_PREFIX}mean"], [f"{_PREFIX}centred"]),
        helper.make_node("Div", [f"{_PREFIX}centred", f"{_PREFIX}std"], [inner]),
    ]
    after = list(graph.node)
    del graph.node[:]
    graph.node.extend([*before, *after])
    constants = {each.name for each in graph.initializer}
    kept = [each for each in graph.input if each.name in constants]  # before IR version 4 these were listed too
    del graph.input[:]
    graph.input.extend(kept)
    graph.input.append(helper.make_tensor_value_info("image", _WIRE_TYPES[spec.wire_dtype], ["batch", *spec.wire_shape]))


def _require_parity(manifest: Manifest, source: Path, artefact: Path) -> None:
    """The network behind our prologue gives what it gives by itself for the same normalised input."""
    spec, engine = manifest.spec, manifest.engine
    images = np.concatenate([known_image(spec, number) for number in range(3)])
    mean, std = (np.array(values, np.float32).reshape(1, -1, 1, 1) for values in (spec.normalise.mean, spec.normalise.std))
    inputs = np.broadcast_to((images.astype(np.float32) - mean) / std, (len(images), spec.model_channels, *spec.wire_shape[1:]))
    (alone,) = onnxruntime_session(source, engine.optimisation).run([manifest.weights.output], {manifest.weights.input: inputs.copy()})
    if not np.isfinite(alone).all():
        raise ConfigurationError([f"{source}: its outputs are not finite; the weights are damaged"])
    grafted = open_engine(artefact, "onnxruntime", engine.precision, engine.optimisation)(images)["logits"]
    worst = float(np.abs(grafted - alone).max())
    if not worst <= (PARITY if engine.precision == "f32" else tolerance(engine)):
        raise ConfigurationError([f"{manifest.release.id}: the network behind our normalisation differs by {worst:.2g} from itself"])
