"""A network in int8 (static QDQ, ONNX Runtime).

Weights have a scale for each channel; ranges of activations come from a calibration set.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import onnx

from hilum.models.known_answers.image_folder import Array
from hilum.models.manifest.manifest import Manifest
from hilum.models.onnx.input_normalisation import INPUT, cut, normalised
from hilum_preprocessing.spec.input_spec import InputSpec

_OUTPUTS: Final = ("logits",)
_MULTIPLIES: Final = [
    "Conv",
    "Gemm",
    "MatMul",
]  # with the other operators in int8, a DenseNet-121 was no faster, and its error grew by half


def quantise_network(artefact: Path, manifest: Manifest, images: Array, destination: Path) -> None:
    """Write `destination`: `INPUT` (N, C, H, W) float32, normalised → `logits`.

    `images` (n, 1, H, W) on the wire give the ranges.

    Weights have seven bits (`reduce_range`): with eight, CPUs without VNNI saturate, and two hosts
    would give two numbers. The last layer stays float32: its rounding would be the logit's. Maps
    are left out, because theirs would no longer add up to it.
    """
    from onnxruntime import quantization  # noqa: PLC0415 - a build tool

    network = cut(onnx.load(artefact), manifest.spec.model_channels, _OUTPUTS).network
    _name_nodes(network.graph)
    with tempfile.TemporaryDirectory(dir=destination.parent) as scratch:
        plain = Path(scratch, "plain.onnx")
        folded = Path(scratch, "folded.onnx")
        onnx.save(network, plain)
        quantization.quant_pre_process(str(plain), str(folded), skip_symbolic_shape=True)
        with _quiet():
            quantization.quantize_static(
                str(folded),
                str(destination),
                _Reader(manifest.spec, images),
                quant_format=quantization.QuantFormat.QDQ,
                activation_type=quantization.QuantType.QUInt8,
                weight_type=quantization.QuantType.QInt8,
                per_channel=True,
                reduce_range=True,
                op_types_to_quantize=_MULTIPLIES,
                nodes_to_exclude=_last_layers(onnx.load(folded).graph),
            )


def _name_nodes(graph: onnx.GraphProto) -> None:
    """Give every node a name, by which the quantiser knows it."""
    for number, node in enumerate(graph.node):
        node.name = node.name or f"node_{number}"


def _last_layers(graph: onnx.GraphProto) -> list[str]:
    """Return the nodes from the logits back to the first that multiplies by weights, included."""
    made_by = {name: node for node in graph.node for name in node.output}
    names = []
    wanted = "logits"
    while (node := made_by.get(wanted)) is not None:
        names.append(node.name)
        if node.op_type in _MULTIPLIES:
            break
        wanted = node.input[0]
    return names


class _Reader:
    """A reader of one image at a time, as ONNX Runtime's calibration calls it.

    All images in float32 would take many times the memory of the folder.
    """

    def __init__(self, spec: InputSpec, images: Array) -> None:
        self._inputs: Iterator[dict[str, Any]] = (
            {INPUT: normalised(spec, image[None])} for image in images
        )

    def get_next(self) -> dict[str, Any] | None:
        """Return the next image; None at the end."""
        return next(self._inputs, None)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the quantiser's messages about every tensor; our report gives the result."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
