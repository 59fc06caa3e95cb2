"""An ONNX network that brings its own maps.

Served when they add up to the logits, refused when not; opset and forms are checked.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hilum.errors import ConfigurationError
from hilum.models.build import build
from hilum.models.formats import triton_model
from hilum.models.known_answers import canary
from hilum.models.manifest import catalogue
from tests.support.models.releases import SIZE, TINY_LABELS, tiny_manifest, write_release

HEAD = np.random.default_rng(4).normal(0, 6, (3, 1, 1, 1)).astype(np.float32)
BIAS = np.array([0.5, -1.0, 2.0], np.float32)


def _network(path: Path, last: str = "Identity", opset: int = 17) -> Path:
    """Means of 8 x 8 pixels, a 1 x 1 convolution to three maps, their means and a bias.

    `last`: what is done to maps put out.
    """
    nodes = [
        helper.make_node("AveragePool", ["input"], ["pooled"], kernel_shape=[8, 8], strides=[8, 8]),
        helper.make_node("Conv", ["pooled", "head"], ["inner"]),
        helper.make_node("GlobalAveragePool", ["inner"], ["means"]),
        helper.make_node("Flatten", ["means"], ["flat"]),
        helper.make_node("Add", ["flat", "bias"], ["output"]),
        helper.make_node(last, ["inner"], ["maps"]),
    ]
    side = SIZE // 8
    graph = helper.make_graph(
        nodes,
        "with maps",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 1, SIZE, SIZE])],
        [
            helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 3]),
            helper.make_tensor_value_info("maps", TensorProto.FLOAT, ["batch", 3, side, side]),
        ],
        [numpy_helper.from_array(HEAD, "head"), numpy_helper.from_array(BIAS, "bias")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path
    )
    return path


def _build(folder: Path, network: Path, maps: str = "maps") -> None:
    text = tiny_manifest(hashlib.sha256(network.read_bytes()).hexdigest()).replace(
        "[weights]\n", f'[weights]\ncam = "{maps}"\n'
    )
    write_release(folder / "manifests", text, network)
    build.build(["tiny@1"], folder / "manifests", folder / "built", progress=lambda _: None)


def test_maps_of_a_brought_network_are_served_as_cam(tmp_path: Path) -> None:
    _build(tmp_path, _network(tmp_path / "n.onnx"))
    release = catalogue.load_catalogue(tmp_path / "manifests")["tiny@1"]
    assert release.has_cam
    known = canary.read_canary(release, tmp_path / "built")
    assert known.cam_bias is not None
    assert np.abs(known.cam_bias - BIAS).max() < 2e-3
    outputs = triton_model.open_engine(
        tmp_path / "built/embedded/tiny__1/1/model.onnx", "onnxruntime", "f32", "all"
    )(known.image)
    assert set(outputs) == {"logits", "cam"}
    assert (outputs["cam"].dtype, outputs["cam"].shape) == (np.float16, (1, len(TINY_LABELS), 4, 4))
    assert known.broken_maps(outputs["logits"], outputs["cam"]) is None


def test_maps_that_do_not_add_up_are_refused_when_the_release_is_built(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"differs from logit \d by .*: these maps are not exact; set model\.cam = false",
    ):
        _build(tmp_path, _network(tmp_path / "n.onnx", last="Relu"))
    assert not list((tmp_path / "built").glob("*/tiny__1"))


@pytest.mark.parametrize(
    ("maps", "problem"),
    [
        ("heat", "its outputs are maps, output; weights.cam says heat"),
        ("output", r"its output output is \[None, 3\]; the manifest has 3 labels"),
    ],
)
def test_an_output_that_is_no_map_is_refused(tmp_path: Path, maps: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        _build(tmp_path, _network(tmp_path / "n.onnx"), maps)


@pytest.mark.parametrize("opset", [9, 22])
def test_an_opset_that_not_every_engine_reads_is_refused(tmp_path: Path, opset: int) -> None:
    with pytest.raises(
        ConfigurationError,
        match=f"its opset is {opset}; 11 to 21 are served: export it with one of these",
    ):
        _build(tmp_path, _network(tmp_path / "n.onnx", opset=opset))
