"""Average pools that go before 1x1 convolutions.

The same numbers from fewer multiplications, and only where that is so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from hilum.models.build.build import build, tree_of
from hilum.models.formats.identity import file_sha256
from hilum.models.manifest.catalogue import load_catalogue
from hilum.models.onnx.pool_before_conv import pooled_early
from tests.support.models.releases import (
    MANIFESTS,
    SIZE,
    build_cached,
    tiny_manifest,
    write_release,
)

_ROWS, _COLUMNS = 9, 8
_POOL: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
_MIX: dict[str, Any] = {"kernel_shape": [1, 1]}


def _model(
    pool: dict[str, Any],
    mix: dict[str, Any],
    *,
    outputs: tuple[str, ...] = ("y",),
    between: str | None = None,
) -> onnx.ModelProto:
    """ReLU, a convolution of 6 channels to 4 with a bias, perhaps a node between, an average pool, ReLU."""
    draws = np.random.default_rng(3)
    kernel = mix.get("kernel_shape", [1, 1])
    groups = mix.get("group", 1)
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Conv", ["a", "w", "b"], ["mixed"], **mix),
        *([helper.make_node(between, ["mixed"], ["c"])] if between else []),
        helper.make_node("AveragePool", ["c" if between else "mixed"], ["pooled"], **pool),
        helper.make_node("Relu", ["pooled"], ["y"]),
    ]
    constants = {"w": draws.normal(0, 1, (4, 6 // groups, *kernel)), "b": draws.normal(0, 1, 4)}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6, _ROWS, _COLUMNS])],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4, None, None])
            for name in outputs
        ],
        [
            numpy_helper.from_array(value.astype(np.float32), name)
            for name, value in constants.items()
        ],
        value_info=[
            helper.make_tensor_value_info("mixed", TensorProto.FLOAT, ["n", 4, None, None])
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def _order(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def _answers(model: onnx.ModelProto) -> list[np.ndarray[Any, np.dtype[Any]]]:
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    images = np.random.default_rng(4).normal(0, 2, (3, 6, _ROWS, _COLUMNS)).astype(np.float32)
    return list(session.run(None, {"x": images}))


@pytest.mark.parametrize(
    ("pool", "mix"),
    [
        (_POOL, _MIX),
        ({"kernel_shape": [3, 3], "strides": [2, 1]}, _MIX),  # windows that overlap
        ({**_POOL, "kernel_shape": [1, 2], "count_include_pad": 1}, _MIX),
        ({**_POOL, "dilations": [2, 2]}, _MIX),
        ({**_POOL, "auto_pad": "VALID"}, {**_MIX, "auto_pad": "VALID"}),
        ({**_POOL, "pads": [0, 0, 0, 0]}, {**_MIX, "pads": [0, 0, 0, 0], "auto_pad": "NOTSET"}),
        (_POOL, {**_MIX, "group": 2}),
    ],
)
def test_the_numbers_stay_and_the_pool_comes_first(
    pool: dict[str, Any], mix: dict[str, Any]
) -> None:
    model = _model(pool, mix)
    before = _answers(model)
    assert pooled_early(model.graph) == 1
    assert _order(model) == ["Relu", "AveragePool", "Conv", "Relu"]
    np.testing.assert_allclose(_answers(model)[0], before[0], rtol=1e-5, atol=1e-5)
    assert pooled_early(model.graph) == 0


@pytest.mark.parametrize(
    "model",
    [
        _model(
            {**_POOL, "pads": [1, 1, 1, 1], "count_include_pad": 1}, _MIX
        ),  # a mean with zeros in it, which the bias is not
        _model({**_POOL, "auto_pad": "SAME_UPPER"}, _MIX),
        _model({**_POOL, "ceil_mode": 1}, _MIX),
        _model(
            {"kernel_shape": [3, 3]}, _MIX
        ),  # as many values behind it as before it: nothing won
        _model(_POOL, {"kernel_shape": [3, 3]}),
        _model(_POOL, {**_MIX, "strides": [2, 2]}),
        _model(_POOL, {**_MIX, "pads": [1, 1, 1, 1]}),
        _model(_POOL, {}),  # its kernel is that of its weights
        _model(_POOL, _MIX, outputs=("y", "mixed")),
        _model(_POOL, _MIX, between="Relu"),  # not linear
    ],
)
def test_others_are_left_alone(model: onnx.ModelProto) -> None:
    before = model.SerializeToString(deterministic=True)
    assert pooled_early(model.graph) == 0
    assert model.SerializeToString(deterministic=True) == before


def test_two_readers_keep_a_convolution_where_it_is() -> None:
    model = _model(_POOL, _MIX)
    model.graph.node.append(helper.make_node("Neg", ["mixed"], ["negative"]))
    assert pooled_early(model.graph) == 0


def test_densenet_is_built_with_its_three_pools_first() -> None:
    release = load_catalogue(MANIFESTS)["densenet121_untrained@1"]
    built = onnx.load(tree_of(release, build_cached(release.id)) / "1/model.onnx")
    assert _before_pools(built) == ["Relu"] * 3


def test_a_brought_network_is_built_so_too(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["input", "w"], ["mixed"], **_MIX),
        helper.make_node("AveragePool", ["mixed"], ["pooled"], kernel_shape=[8, 8], strides=[8, 8]),
        helper.make_node("GlobalMaxPool", ["pooled"], ["largest"]),
        helper.make_node("Flatten", ["largest"], ["output"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 1, SIZE, SIZE])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(np.array([6, -4, 5], np.float32).reshape(3, 1, 1, 1), "w")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9),
        tmp_path / "net.onnx",
    )
    write_release(
        tmp_path / "manifests",
        tiny_manifest(file_sha256(tmp_path / "net.onnx")),
        tmp_path / "net.onnx",
    )
    build(["tiny@1"], tmp_path / "manifests", tmp_path / "built", progress=lambda _: None)
    order = _order(onnx.load(tmp_path / "built/embedded/tiny__1/1/model.onnx"))
    assert order[-4:] == ["AveragePool", "Conv", "GlobalMaxPool", "Flatten"]


def _before_pools(model: onnx.ModelProto) -> list[str]:
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    return [makers[node.input[0]] for node in model.graph.node if node.op_type == "AveragePool"]
