"""A network that was exported elsewhere.

Its input becomes `image`, its output `logits`, and normalisation moves into the graph.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hilum.errors import ConfigurationError
from hilum.models.formats.triton_model import onnxruntime_errors, onnxruntime_session, open_engine
from hilum.models.known_answers.canary import known_image, tolerance
from hilum.models.manifest.manifest import Manifest
from hilum.models.onnx import contract, file, nondeterminism, pool_before_conv
from hilum.models.onnx.cleanup import replace_nodes
from hilum.models.onnx.input_normalisation import Array, normalised
from hilum.models.onnx.output_activation import ending
from hilum.toml import quoted
from hilum_preprocessing.spec.input_spec import InputSpec

_PREFIX: Final = "hilum_"
_OURS: Final = ("image", "logits", "cam")
PARITY: Final = 1e-4
# More than one: a graph may hold the size of a batch where its input does not say so.
_IMAGES: Final = 3


def graft(manifest: Manifest, source: Path, destination: Path) -> None:
    """Write `destination`: the network behind a cast and (x - mean) / std.

    Raises ConfigurationError when it does not fit the manifest.
    """
    model = require_fit(manifest, source)
    with tempfile.TemporaryDirectory(dir=destination.parent) as folder:
        alone = Path(folder, "alone.onnx")
        onnx.save(model, alone)
        _write(model, manifest, source, destination)
        try:
            _require_parity(manifest, alone, destination)
        except RuntimeError as error:
            problem = (
                f"{source}: ONNX Runtime does not run it with {_IMAGES} images:"
                f" {str(error).replace(str(alone), source.name)}"
            )
            raise ConfigurationError([problem]) from error


def require_fit(manifest: Manifest, source: Path) -> onnx.ModelProto:
    """Return the network, if it fits the manifest.

    Raises ConfigurationError with every reason why not.
    """
    model = file.read(source)
    file.expose(model, manifest.weights.output)
    if problems := [f"{source}: {problem}" for problem in _misfits(model, manifest)]:
        raise ConfigurationError(problems)
    file.require_valid(model, source)
    return model


def _write(model: onnx.ModelProto, manifest: Manifest, source: Path, destination: Path) -> None:
    own = _free_our_names(model.graph)
    _rename_tensor(model.graph, own(manifest.weights.output), "logits")
    _put_before(model.graph, manifest, own(manifest.weights.input))
    _keep_outputs(model.graph, manifest, own(manifest.weights.cam or ""))
    pool_before_conv.pooled_early(model.graph)
    model.graph.name = manifest.release.triton_name
    file.require_valid(model, source)
    if problems := [f"{source}: {problem}" for problem in contract.problems(model, manifest)]:
        raise ConfigurationError(problems)
    onnx.save(model, destination)


def _free_our_names(graph: onnx.GraphProto) -> Callable[[str], str]:
    """Rename tensors that have one of our names; return the new name of any tensor."""
    for name in _OURS:
        _rename_tensor(graph, name, f"{_PREFIX}brought_{name}")
    return lambda name: f"{_PREFIX}brought_{name}" if name in _OURS else name


def _misfits(model: onnx.ModelProto, manifest: Manifest) -> Iterator[str]:
    weights = manifest.weights
    yield from contract.opset_problems(model)
    yield from _input_misfits(model, manifest)
    yield from _output_misfits(model, manifest)
    yield from _activated_twice(model, manifest)
    yield from nondeterminism.problems(model, filter(None, (weights.output, weights.cam)))


def _input_misfits(model: onnx.ModelProto, manifest: Manifest) -> Iterator[str]:
    name = manifest.weights.input
    spec = manifest.spec
    tensors = contract.tensors(model)
    inputs = sorted(set(tensors) - {each.name for each in model.graph.output})
    wanted = [None, spec.model_channels, *spec.wire_shape[1:]]
    if inputs != [name]:
        yield f"its inputs are {', '.join(inputs)}; weights.input says {name}"
    elif tensors[name][0] != TensorProto.FLOAT:
        yield f"its input {name} is not float32"
    elif contract.clash(found := tensors[name][1], wanted):
        yield f"its input is {found}; the manifest's is {wanted} (None: any size)"


def _output_misfits(model: onnx.ModelProto, manifest: Manifest) -> Iterator[str]:
    labels = len(manifest.release.labels)
    tensors = contract.tensors(model)
    outputs = {each.name for each in model.graph.output}
    for field, name, sizes in (
        ("output", manifest.weights.output, [None, labels]),
        ("cam", manifest.weights.cam, [None, labels, None, None]),
    ):
        if name and name not in outputs:
            yield f"its outputs are {', '.join(sorted(outputs))}; weights.{field} says {name}"
        elif name and contract.clash(found := tensors[name][1], sizes):
            yield f"its output {name} is {found}; the manifest has {labels} labels"


def _activated_twice(model: onnx.ModelProto, manifest: Manifest) -> Iterator[str]:
    output = manifest.weights.output
    activation = manifest.release.activation
    ended = ending(model, output)
    if ended is None or activation == "none":
        return
    if ended.logits is None:
        advice = (
            f"no single tensor holds the logits: export it without its {ended.activation}, or say"
            ' model.activation = "none"'
        )
    else:
        advice = f"say weights.output = {quoted(ended.logits)}, the tensor before it"
    yield (
        f"its output {output} comes out of a {ended.activation}, and model.activation {activation}"
        f" would follow it; {advice}"
    )


def _rename_tensor(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [new if name == old else name for name in names]
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = new if value.name == old else value.name


def _put_before(graph: onnx.GraphProto, manifest: Manifest, inner: str) -> None:
    """Wire image → Cast → Sub → Div → the network's own input.

    A 3-channel mean repeats the one channel by broadcasting.
    """
    spec = manifest.spec
    for name, values in (("mean", spec.normalise.mean), ("std", spec.normalise.std)):
        row = np.broadcast_to(np.array(values, np.float32), spec.model_channels)
        column = row.reshape(1, -1, 1, 1).copy()
        graph.initializer.append(numpy_helper.from_array(column, f"{_PREFIX}{name}"))
    replace_nodes(graph, [*_normalisation(inner), *graph.node])
    _take_image(graph, spec)


def _normalisation(inner: str) -> Iterator[onnx.NodeProto]:
    pixels = f"{_PREFIX}float"
    centred = f"{_PREFIX}centred"
    yield helper.make_node("Cast", ["image"], [pixels], to=TensorProto.FLOAT)
    yield helper.make_node("Sub", [pixels, f"{_PREFIX}mean"], [centred])
    yield helper.make_node("Div", [centred, f"{_PREFIX}std"], [inner])


def _take_image(graph: onnx.GraphProto, spec: InputSpec) -> None:
    # Before IR version 4 inputs included constants.
    constants = {each.name for each in graph.initializer}
    kept = [each for each in graph.input if each.name in constants]
    kind = contract.WIRE_TYPES[spec.wire_dtype]
    image = helper.make_tensor_value_info("image", kind, ["batch", *spec.wire_shape])
    del graph.input[:]
    graph.input.extend([*kept, image])


def _keep_outputs(graph: onnx.GraphProto, manifest: Manifest, maps: str) -> None:
    """Keep `logits` and, where the release has maps, `cam` in fp16.

    Other outputs are removed.
    """
    (logits,) = (each for each in graph.output if each.name == "logits")
    del graph.output[:]
    graph.output.append(logits)
    if manifest.release.has_cam:
        graph.node.append(helper.make_node("Cast", [maps], ["cam"], to=TensorProto.FLOAT16))
        sizes = ["batch", len(manifest.release.labels), "cam_rows", "cam_columns"]
        graph.output.append(helper.make_tensor_value_info("cam", TensorProto.FLOAT16, sizes))


def _require_parity(manifest: Manifest, source: Path, artefact: Path) -> None:
    """Raise ConfigurationError where the network's outputs change behind our normalisation."""
    spec = manifest.spec
    engine = manifest.engine
    images = np.concatenate([known_image(spec, number) for number in range(_IMAGES)])
    alone = _alone(manifest, source, normalised(spec, images))
    if not np.isfinite(alone).all():
        problem = f"the outputs of {manifest.weights.file} are not finite; the weights are damaged"
        raise ConfigurationError([f"{manifest.release.id}: {problem}"])
    run = open_engine(artefact, "onnxruntime", engine.precision, engine.optimisation)
    worst = float(np.abs(run(images)["logits"] - alone).max())
    if not worst <= (PARITY if engine.precision == "f32" else tolerance(engine)):
        problem = f"the network behind our normalisation differs by {worst:.2g} from itself"
        raise ConfigurationError([f"{manifest.release.id}: {problem}"])


def _alone(manifest: Manifest, network: Path, inputs: Array) -> Array:
    """(n, C, H, W) float32, normalised → (n, L): logits of the network as it was brought.

    Raises RuntimeError.
    """
    session = onnxruntime_session(network, manifest.engine.optimisation)
    with onnxruntime_errors():
        (said,) = session.run([manifest.weights.output], {manifest.weights.input: inputs})
    logits: Array = said
    return logits
