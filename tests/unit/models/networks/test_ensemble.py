"""Members and a rule: what numpy says by the book, the merged graph says, and each member in it says what it says alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from hilum.errors import ConfigurationError
from hilum.models.build import build
from hilum.models.facts import Places
from hilum.models.formats import triton_model
from hilum.models.inspection.check import check
from hilum.models.manifest import manifest
from hilum.models.networks.ensemble_rules import mean_score, rule_nodes
from tests.support.models.ensembles import MEMBERS, ensemble_manifest, make_trio, member_logits
from tests.support.models.releases import Tiny, pictures, tiny_network, write_release


def _artefact(trio: Tiny) -> Path:
    return build.tree_of(trio.release, trio.built_dir) / "1/model.onnx"


def _scores(logits: np.ndarray, activation: str) -> np.ndarray:
    """By the definition, in double precision; fine for logits of this size."""
    wide = logits.astype(np.float64)
    if activation == "softmax":
        return np.exp(wide) / np.exp(wide).sum(-1, keepdims=True)
    return 1 / (1 + np.exp(-wide)) if activation == "sigmoid" else wide


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
@pytest.mark.parametrize(
    ("rule", "activation"),
    [
        ("mean_score", "sigmoid"),
        ("mean_score", "softmax"),
        ("mean_score", "none"),
        ("mean_logit", "sigmoid"),
    ],
)
def test_the_merged_graph_is_the_members_and_the_rule(
    tmp_path: Path, rule: str, activation: str, engine: str
) -> None:
    trio = make_trio(tmp_path, rule, activation)
    images = pictures(5)
    alone = member_logits(images)
    said = triton_model.open_engine(_artefact(trio), engine, "f32", "all")(images)
    assert np.abs(said["member_logits"] - alone).max() < 1e-5
    if rule == "mean_logit":
        assert np.abs(said["logits"] - alone.mean(1)).max() < 1e-5
    else:
        assert (
            np.abs(_scores(said["logits"], activation) - _scores(alone, activation).mean(1)).max()
            < 1e-5
        )


def test_pixels_are_normalised_once(tmp_path: Path) -> None:
    graph = onnx.load(_artefact(make_trio(tmp_path))).graph
    kinds = [node.op_type for node in graph.node]
    assert [kinds.count(kind) for kind in ("Cast", "Div", "AveragePool", "MatMul")] == [
        1,
        1,
        1,
        len(MEMBERS),
    ]
    assert [value.name for value in graph.output] == ["logits", "member_logits"]


def test_the_mean_of_maps_is_exact_where_the_rule_is_linear(tmp_path: Path) -> None:
    trio = make_trio(tmp_path, "mean_logit", cam=True)
    assert trio.release.has_cam
    said = triton_model.open_engine(_artefact(trio), "onnxruntime", "f32", "all")(pictures(3))
    assert said["cam"].dtype == np.float16
    assert (
        np.abs(said["cam"].astype(np.float32).mean((2, 3)) - said["logits"]).max() < 2e-3
    )  # fp16 maps


def test_a_mean_of_scores_has_no_maps(tmp_path: Path) -> None:
    trio = make_trio(tmp_path, "mean_score", cam=True)
    assert not trio.release.has_cam
    assert "cam" not in [value.name for value in onnx.load(_artefact(trio)).graph.output]


@pytest.mark.parametrize("activation", ["sigmoid", "softmax"])
def test_scores_that_round_to_one_or_nought_keep_their_logit(
    tmp_path: Path, activation: str
) -> None:
    """As float32, sigmoid(20) is 1: a logit of that mean would be infinite."""
    trio = make_trio(tmp_path, "mean_score", activation)
    rows = np.array(
        [
            [[90.0, -90, 0], [88, -95, 1], [20, -20, -1]],
            [[-200.0, 300, 5], [-200, 300, 5], [-200, 300, 5]],
        ],
        np.float32,
    )
    nodes, constants = rule_nodes(trio.release, ["a_", "b_", "c_"])
    given = [
        onnx.helper.make_tensor_value_info(f"{name}_logits", onnx.TensorProto.FLOAT, ["n", 3])
        for name in "abc"
    ]
    out = [onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["n", 3])]
    graph = onnx.helper.make_graph(nodes, "rule", given, out, constants)
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9
    )
    import onnxruntime

    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (said,) = session.run(
        ["logits"], {f"{name}_logits": rows[:, number] for number, name in enumerate("abc")}
    )
    wanted = mean_score(rows, activation)
    assert np.isfinite(said).all()
    assert np.abs(said - wanted).max() < 1e-4 * np.abs(wanted).max()


def test_members_are_named_and_the_digest_covers_them_all(tmp_path: Path) -> None:
    trio = make_trio(tmp_path)
    assert (trio.release.members, trio.release.rule) == (MEMBERS, "mean_score")
    assert len(trio.release.weights_sha256) == 64


def test_a_member_with_other_weights_than_the_manifest_says_stops_the_build(tmp_path: Path) -> None:
    files = [tiny_network(tmp_path / f"{name}.onnx") for name in MEMBERS]
    folder = write_release(tmp_path / "manifests", ensemble_manifest(files, "mean_score"))
    for file in files:
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "third.onnx").write_bytes(b"another file")
    with pytest.raises(ConfigurationError, match=r"third\.onnx has sha256"):
        build.build(["trio@1"], tmp_path / "manifests", tmp_path / "built", progress=lambda _: None)
    assert list((tmp_path / "built").rglob("*.onnx")) == []


def test_members_of_different_opsets_are_refused(tmp_path: Path) -> None:
    files = [tiny_network(tmp_path / f"{name}.onnx") for name in MEMBERS]
    older = onnx.load(files[2])
    older.opset_import[0].version = 16
    onnx.save(older, files[2])
    folder = write_release(tmp_path / "manifests", ensemble_manifest(files, "mean_score"))
    for file in files:
        (folder / file.name).write_bytes(file.read_bytes())
    lines = [
        line.text
        for line in check(
            ["trio@1"], Places(tmp_path / "manifests", tmp_path / "built"), is_run=False
        )
    ]
    assert (
        "its members were exported with different ONNX opsets (16 and 17); export them with the"
        " same one" in lines
    )
    with pytest.raises(ConfigurationError, match="different ONNX opsets"):
        build.build(["trio@1"], tmp_path / "manifests", tmp_path / "built", progress=lambda _: None)


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    files = [tiny_network(tmp_path / f"{name}.onnx") for name in MEMBERS]
    text = ensemble_manifest(files, "mean_score").replace('name = "third"', 'name = "member_2"')
    with pytest.raises(ConfigurationError, match=r"weights\.members: member_2 stands twice"):
        manifest.read(write_release(tmp_path / "manifests", text) / "manifest.toml")


def test_another_rule_or_activation_makes_the_tree_stale(tmp_path: Path) -> None:
    trio = make_trio(tmp_path)
    path = trio.manifests_dir / "trio@1/manifest.toml"
    from hilum.models.manifest import catalogue

    for old, new in (
        ("mean_score", "mean_logit"),
        ('activation = "sigmoid"', 'activation = "softmax"'),
    ):
        path.write_text(path.read_text().replace(old, new))
        assert not build.is_built(
            catalogue.load_catalogue(trio.manifests_dir)["trio@1"], trio.built_dir
        )
        path.write_text(path.read_text().replace(new, old))
    assert build.is_built(catalogue.load_catalogue(trio.manifests_dir)["trio@1"], trio.built_dir)
