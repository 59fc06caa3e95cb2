"""A network apart from its normalisation.

What is quantised or brought to half precision begins behind it, and is put back.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hilum.errors import ConfigurationError
from hilum.models.build.half_precision import write_half
from hilum.models.formats.triton_model import open_engine
from hilum.models.onnx.input_normalisation import INPUT, cut
from tests.support.models.releases import SIZE, pictures


def _artefact(path: Path, first: str = "Cast", whole_shape: bool = False) -> Path:
    """Normalise to three channels, convolve, and shape the result by the batch that was asked of the image itself, as exporters do."""
    draws = np.random.default_rng(5)
    span = {} if whole_shape else {"start": 0, "end": 1}
    begin = helper.make_node("Cast", ["image"], ["wide"], to=TensorProto.FLOAT)
    nodes = [
        helper.make_node("Shape", ["image"], ["batch"], **span),
        begin if first == "Cast" else helper.make_node("Identity", ["image"], ["wide"]),
        helper.make_node("Sub", ["wide", "mean"], ["centred"]),
        helper.make_node("Div", ["centred", "std"], ["normal"]),
        helper.make_node("Conv", ["normal", "weights"], ["maps"]),
        helper.make_node("GlobalAveragePool", ["maps"], ["pooled"]),
        helper.make_node("Concat", ["batch", "labels"], ["shape"], axis=0),
        helper.make_node("Reshape", ["pooled", "shape"], ["logits"]),
    ]
    constants = {
        "mean": np.full((1, 3, 1, 1), 100.3, np.float32),
        "std": np.array([50.1, 60.2, 70.3], np.float32).reshape(1, 3, 1, 1),
        "weights": draws.normal(0, 1, (4, 3, 5, 5)).astype(np.float32),
        "labels": np.array([4], np.int64),
    }
    wire = TensorProto.UINT8 if first == "Cast" else TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("image", wire, ["n", 1, SIZE, SIZE])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return path


def test_the_network_behind_the_normalisation_says_the_same(tmp_path: Path) -> None:
    import onnxruntime

    file, images = _artefact(tmp_path / "net.onnx"), pictures(3)
    parts = cut(onnx.load(file), 3, ("logits",))
    onnx.checker.check_model(parts.network, full_check=True)
    inputs = (images.astype(np.float32) - 100.3) / np.array([50.1, 60.2, 70.3], np.float32).reshape(
        1, 3, 1, 1
    )
    session = onnxruntime.InferenceSession(parts.network.SerializeToString())
    (alone,) = session.run(["logits"], {INPUT: inputs})
    assert (
        np.abs(alone - open_engine(file, "onnxruntime", "f32", "all")(images)["logits"]).max()
        < 1e-5
    )


def test_half_precision_begins_behind_the_normalisation(tmp_path: Path) -> None:
    file, half = _artefact(tmp_path / "net.onnx"), tmp_path / "half.onnx"
    write_half(file, half, 3)
    graph = onnx.load(half).graph
    kinds = {each.name: each.data_type for each in graph.initializer}
    assert (kinds["mean"], kinds["std"], kinds["weights"]) == (
        TensorProto.FLOAT,
        TensorProto.FLOAT,
        TensorProto.FLOAT16,
    )
    assert [value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)] == [
        TensorProto.UINT8,
        TensorProto.FLOAT,
    ]
    images = pictures(3)
    said = [
        open_engine(each, "onnxruntime", "f32", "all")(images)["logits"] for each in (file, half)
    ]
    assert 0 < np.abs(said[0] - said[1]).max() < 0.05


def test_a_graph_that_does_not_begin_with_a_cast_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not begin with a cast"):
        cut(onnx.load(_artefact(tmp_path / "net.onnx", first="Identity")), 3, ("logits",))


def test_a_graph_that_asks_for_more_of_the_image_than_its_batch_is_refused(tmp_path: Path) -> None:
    """Behind the normalisation it may have other channels."""
    with pytest.raises(ConfigurationError, match="does not begin with a cast"):
        cut(onnx.load(_artefact(tmp_path / "net.onnx", whole_shape=True)), 3, ("logits",))
