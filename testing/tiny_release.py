"""A tiny release that can be checked by hand.

What a fault or load test needs where the model itself is not the subject.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hilum.domain import Release
from hilum.models.build import build
from hilum.models.manifest import catalogue

SIZE = 32
TINY_LABELS = ("pleural_effusion", "pneumothorax", "cardiomegaly")
# logits = the means of the four quadrants, 0..1, times this (4, 3).
TINY_WEIGHTS = np.array([[4, 0, -1], [0, 4, -1], [-4, 0, 2], [0, -4, 3]], np.float32)
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Tiny:
    """A release whose logits `expected` computes, its manifests folder and its built trees."""

    release: Release
    manifests_dir: Path
    built_dir: Path

    def expected(self, images: Array) -> Array:
        """(B, 1, 32, 32) uint8 → (B, 3) float32."""
        return tiny_logits(images)


def tiny_logits(images: Array) -> Array:
    """What the tiny network says, by numpy."""
    half = SIZE // 2
    scaled = images.astype(np.float32) / 255
    quadrants = scaled.reshape(-1, 2, half, 2, half).mean((2, 4)).reshape(-1, 4)
    logits: Array = quadrants @ TINY_WEIGHTS
    return logits


def tiny_network(
    path: Path, weights: Array = TINY_WEIGHTS, operator: str = "Identity", delay_channels: int = 0
) -> Path:
    """An ONNX file: quadrant means, an elementwise `operator`, a matrix.

    `delay_channels` adds work that is thrown away.
    """
    nodes = [
        helper.make_node(
            "AveragePool",
            ["input"],
            ["pooled"],
            kernel_shape=[SIZE // 2] * 2,
            strides=[SIZE // 2] * 2,
        ),
        helper.make_node("Flatten", ["pooled"], ["quadrants"]),
        helper.make_node(operator, ["quadrants"], ["features"]),
        helper.make_node("MatMul", ["features", "weights"], ["head"]),
    ]
    constants = [numpy_helper.from_array(np.asarray(weights, np.float32), "weights")]
    nodes, constants = _with_delay(nodes, constants, delay_channels)
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 1, SIZE, SIZE])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", weights.shape[1]])],
        constants,
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return path


def _with_delay(
    nodes: list[Any], constants: list[Any], channels: int
) -> tuple[list[Any], list[Any]]:
    """Convolutions whose result is multiplied by zero, so that a request takes a time that a test can interrupt."""
    if not channels:
        return [*nodes, helper.make_node("Identity", ["head"], ["output"])], constants
    wide = np.full((channels, 1, 1, 1), 1e-3, np.float32)
    heavy = np.full((channels, channels, 9, 9), 1e-6, np.float32)
    work = [helper.make_node("Conv", ["input", "wide"], ["work0"])]
    work += [
        helper.make_node("Conv", [f"work{i}", "heavy"], [f"work{i + 1}"], pads=[4] * 4)
        for i in range(4)
    ]
    last = [
        helper.make_node("ReduceMean", ["work4"], ["mean"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
        helper.make_node("Unsqueeze", ["nothing", "last_axis"], ["column"]),
        helper.make_node("Add", ["head", "column"], ["output"]),
    ]
    more = {
        "wide": wide,
        "heavy": heavy,
        "zero": np.zeros(1, np.float32),
        "last_axis": np.array([1], np.int64),
    }
    return [*nodes, *work, *last], [
        *constants,
        *(numpy_helper.from_array(value, name) for name, value in more.items()),
    ]


def tiny_manifest(
    sha256: str, name: str = "tiny", max_batch: int = 4, engine: str = "onnxruntime"
) -> str:
    """Text of a manifest of the tiny network: uint8 on the wire, scaled to 0..1 in the graph."""
    labels = ",\n".join(
        f'  {{ concept = "{concept}", operating_point = 0.6 }}' for concept in TINY_LABELS
    )
    return f"""format = 1
name = "{name}"
version = "1"
manufacturer = "Hilum's tests"
intended_use = "Tests of Hilum itself."
licence = "Apache-2.0"
source = "Made by the test that uses it."
labels = [
{labels}
]

[model]
architecture = "onnx"
activation = "sigmoid"
max_batch = {max_batch}

[weights]
file = "tiny.onnx"
sha256 = "{sha256}"

[input]
views = "frontal_only"
intensity = [{{ op = "maxval", of = "bits" }}, {{ op = "to_uint8", mode = "round" }}]
geometry = [{{ op = "resize", height = {SIZE}, width = {SIZE}, kernel = "pil_bilinear_aa", compute = "uint8_rounded" }}]
target = {{ height = {SIZE}, width = {SIZE}, dtype = "uint8" }}
normalise = {{ mean = 0.0, std = 255.0 }}

[engine]
name = "{engine}"

[operating_points]
measured_on = "No cases: chosen by hand."
criterion = "Above the mean of the known images."
"""


def write_release(manifests_dir: Path, text: str, network: Path | None = None) -> Path:
    """Put a manifest (and its network, as tiny.onnx) where its name says; its folder."""
    lines = [
        line.partition(" = ")[2].strip('"')
        for line in text.splitlines()
        if line.startswith(("name = ", "version = "))
    ]
    folder = manifests_dir / f"{lines[0]}@{lines[1]}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.toml").write_text(text, encoding="utf-8")
    if network is not None:
        (folder / "tiny.onnx").write_bytes(network.read_bytes())
    return folder


def make_tiny(
    folder: Path,
    name: str = "tiny",
    max_batch: int = 4,
    engine: str = "onnxruntime",
    # What tiny_network takes.
    **network: Any,  # noqa: ANN401
) -> Tiny:
    """A tiny release, built for the embedded profile below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx_file = tiny_network(folder / f"{name}.onnx", **network)
    digest = hashlib.sha256(onnx_file.read_bytes()).hexdigest()
    manifests_dir = folder / "manifests"
    built_dir = folder / "built"
    write_release(manifests_dir, tiny_manifest(digest, name, max_batch, engine), onnx_file)
    build.build([f"{name}@1"], manifests_dir, built_dir, progress=lambda _: None)
    return Tiny(catalogue.load_catalogue(manifests_dir)[f"{name}@1"], manifests_dir, built_dir)
