"""Ensembles of tiny networks, so small that numpy can say what they must say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hilum.models.build import build
from hilum.models.formats.identity import file_sha256
from hilum.models.manifest import catalogue
from testing.tiny_release import (
    SIZE,
    TINY_LABELS,
    TINY_WEIGHTS,
    Array,
    Tiny,
    tiny_manifest,
    tiny_network,
    write_release,
)

MEMBERS = ("first", "member_2", "third")


def member_weights(number: int) -> Array:
    """(4, 3) of one member; no two alike."""
    drawn = np.random.default_rng(number).normal(0, 0.5, TINY_WEIGHTS.shape)
    weights: Array = (TINY_WEIGHTS + drawn).astype(np.float32)
    return weights


def member_logits(images: Array) -> Array:
    """(B, 1, 32, 32) uint8 → (B, 3, 3): image, member, label."""
    half = SIZE // 2
    quadrants = (
        (images.astype(np.float32) / 255).reshape(-1, 2, half, 2, half).mean((2, 4)).reshape(-1, 4)
    )
    return np.stack([quadrants @ member_weights(number) for number in range(len(MEMBERS))], 1)


def ensemble_manifest(
    files: list[Path], rule: str, activation: str = "sigmoid", cam: bool = False
) -> str:
    """Of members that lie beside it under their own names.

    The first and the third have a name in the result.
    """
    named = [
        f'name = "{name}", ' if name != f"member_{number}" else ""
        for number, name in enumerate(MEMBERS, 1)
    ]
    members = ", ".join(
        f'{{ {name}file = "{file.name}", sha256 = "{file_sha256(file)}" }}'
        for name, file in zip(named, files, strict=True)
    )
    text = tiny_manifest("0" * 64, name="trio").replace(
        'activation = "sigmoid"', f'activation = "{activation}"'
    )
    weights = f'rule = "{rule}"\nmembers = [{members}]' + ('\ncam = "maps"' if cam else "")
    return text.replace(f'file = "tiny.onnx"\nsha256 = "{"0" * 64}"', weights)


def make_trio(
    folder: Path, rule: str = "mean_score", activation: str = "sigmoid", cam: bool = False
) -> Tiny:
    """Three members, built for the embedded profile below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    manifests_dir, built_dir = folder / "manifests", folder / "built"
    files = [
        (mapped_network if cam else _network)(folder / f"{name}.onnx", number)
        for number, name in enumerate(MEMBERS)
    ]
    release_folder = write_release(manifests_dir, ensemble_manifest(files, rule, activation, cam))
    for file in files:
        (release_folder / file.name).write_bytes(file.read_bytes())
    build.build(["trio@1"], manifests_dir, built_dir, progress=lambda _: None)
    return Tiny(catalogue.load_catalogue(manifests_dir)["trio@1"], manifests_dir, built_dir)


def _network(path: Path, number: int) -> Path:
    return tiny_network(path, member_weights(number))


def mapped_network(path: Path, number: int) -> Path:
    """A network with maps: one weight a label times the quadrants' means, and their mean as logits."""
    weights = member_weights(number)[:1].reshape(-1, 1, 1, 1)
    nodes = [
        helper.make_node(
            "AveragePool",
            ["input"],
            ["pooled"],
            kernel_shape=[SIZE // 2] * 2,
            strides=[SIZE // 2] * 2,
        ),
        helper.make_node("Conv", ["pooled", "weights"], ["maps"]),
        helper.make_node("GlobalAveragePool", ["maps"], ["means"]),
        helper.make_node("Flatten", ["means"], ["output"]),
    ]
    labels = len(TINY_LABELS)
    outputs = [("output", ["batch", labels]), ("maps", ["batch", labels, 2, 2])]
    graph = helper.make_graph(
        nodes,
        "mapped",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 1, SIZE, SIZE])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs],
        [numpy_helper.from_array(weights, "weights")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return path
