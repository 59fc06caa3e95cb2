"""`hilum models check`: every kind of bad input is named with what to do, and ends with 1."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto

from hilum.errors import ConfigurationError
from hilum.models.build import build
from hilum.models.facts import FactVerdict, Places
from hilum.models.formats.identity import file_sha256
from hilum.models.inspection.check import check
from tests.support.models.releases import (
    MANIFESTS,
    TINY_WEIGHTS,
    tiny_manifest,
    tiny_network,
    write_release,
)


class Bench:
    """The tiny release in a folder, to be spoilt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.network = tiny_network(folder / "made.onnx")
        self.text = tiny_manifest(file_sha256(self.network))
        self.release_folder = folder / "manifests/tiny@1"
        self.write(self.text)

    def write(self, text: str, network: Path | None = None) -> None:
        write_release(self.folder / "manifests", text, network or self.network)

    def bring(self, network: Path) -> None:
        """This network instead, with its right digest."""
        self.write(tiny_manifest(file_sha256(network)), network)

    def build(self) -> None:
        build.build(
            ["tiny@1"], self.folder / "manifests", self.folder / "built", progress=lambda _: None
        )

    def lines(self, *, is_run: bool = False) -> list[str]:
        places = Places(self.folder / "manifests", self.folder / "built")
        return [f"{line.verdict} {line.text}" for line in check(["tiny@1"], places, is_run=is_run)]

    def problem(self, *, is_run: bool = False) -> str:
        """The only one."""
        (problem,) = [
            line for line in self.lines(is_run=is_run) if line.startswith(FactVerdict.PROBLEM)
        ]
        return problem


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_release_that_is_right_has_no_problem(bench: Bench) -> None:
    assert bench.lines() == [
        "ok manifest: 3 labels, onnx, input 1 x 32 x 32",
        "ok weights: tiny.onnx is the file of the manifest, fits it, and holds no NaN",
        (
            "note golden cases: none; a build is then compared with itself only, not with its"
            " authors' numbers"
        ),
    ]


def test_a_built_release_answers_its_canary(bench: Bench) -> None:
    bench.build()
    assert any(
        "onnxruntime f32: the canary's logits are 0 off" in line
        for line in bench.lines(is_run=True)
    )


def test_untrained_weights_are_a_note() -> None:
    lines = list(
        check(["densenet121_untrained@1"], Places(MANIFESTS, MANIFESTS / "none"), is_run=False)
    )
    assert [line.verdict for line in lines] == [FactVerdict.OK, FactVerdict.NOTE]
    assert "UNTRAINED" in lines[1].text


def test_a_wrong_digest(bench: Bench) -> None:
    bench.write(bench.text.replace(file_sha256(bench.network), "1" * 64))
    assert "the manifest 1111" in bench.problem()
    assert "bring that file, or make a release for this one" in bench.problem()


def test_weights_that_are_not_there(bench: Bench) -> None:
    (bench.release_folder / "tiny.onnx").unlink()
    assert (
        f"Put tiny.onnx (sha256 {file_sha256(bench.network)}) into {bench.release_folder}"
        in bench.problem()
    )


def test_weights_that_are_not_there_any_more_are_a_note_once_built(bench: Bench) -> None:
    bench.build()
    (bench.release_folder / "tiny.onnx").unlink()
    assert "note weights: tiny.onnx is not here; what is built was made from it" in bench.lines()


def changed(path: Path, change: Callable[[onnx.ModelProto], None]) -> Path:
    model = onnx.load(path)
    change(model)
    onnx.save(model, path)
    return path


def old_opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 9


def fixed_batch(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1


def other_size(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 64


def half_floats(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16


def outside(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "elsewhere.bin"


def cut_short(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].raw_data = b"123"


def contradictory(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[0]
    twice = np.concatenate([onnx.numpy_helper.to_array(tensor)] * 2)
    tensor.CopyFrom(onnx.numpy_helper.from_array(twice, tensor.name))


def behind_the_head(
    *nodes: onnx.NodeProto, **constants: np.ndarray
) -> Callable[[onnx.ModelProto], None]:
    """`nodes` make `output` of `head`, the logits."""

    def change(model: onnx.ModelProto) -> None:
        model.graph.node.pop()
        model.graph.node.extend(nodes)
        model.graph.initializer.extend(
            onnx.numpy_helper.from_array(value, name) for name, value in constants.items()
        )

    return change


def training(model: onnx.ModelProto) -> None:
    """BatchNormalization as torch exports it without net.eval()."""
    three = {name: np.ones(3, np.float32) for name in ("scale", "shift", "mean", "var")}
    names = ["output", "new_mean", "new_var"]
    behind_the_head(
        onnx.helper.make_node("BatchNormalization", ["head", *three], names, training_mode=1),
        **three,
    )(model)


dropout = behind_the_head(
    onnx.helper.make_node("Dropout", ["head", "", "on"], ["output"]), on=np.array(True)
)
noise = behind_the_head(
    onnx.helper.make_node("RandomNormalLike", ["head"], ["n"]),
    onnx.helper.make_node("Add", ["head", "n"], ["output"]),
)
limited_score = behind_the_head(
    onnx.helper.make_node("Sigmoid", ["head"], ["score"]),
    onnx.helper.make_node("Clip", ["score", "low"], ["output"]),
    low=np.array(1e-6, np.float32),
)
one_head_a_label = behind_the_head(
    onnx.helper.make_node("Split", ["head"], ["a", "b", "c"], axis=1),
    *(onnx.helper.make_node("Sigmoid", [name], [f"{name}_score"]) for name in "abc"),
    onnx.helper.make_node("Concat", ["a_score", "b_score", "c_score"], ["output"], axis=1),
)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            training,
            (
                "1 x BatchNormalization in training mode: an image's answer depends on its"
                " neighbours in the batch; export"
            ),
        ),
        (dropout, "1 x Dropout in training mode: answers depend on chance"),
        (noise, "1 x RandomNormalLike: answers depend on chance"),
        (
            limited_score,
            (
                "comes out of a sigmoid, and model.activation sigmoid would follow it; say"
                ' weights.output = "head"'
            ),
        ),
        (
            one_head_a_label,
            (
                "no single tensor holds the logits: export it without its sigmoid, or say"
                ' model.activation = "none"'
            ),
        ),
        (cut_short, "not a readable ONNX file"),
        (contradictory, "no valid ONNX network: [ShapeInferenceError]"),
        (old_opset, "its opset is 9; 11 to"),
        (fixed_batch, "its input is [1, 1, 32, 32]"),
        (other_size, "its input is [None, 1, 64, 32]; the manifest's is [None, 1, 32, 32]"),
        (half_floats, "its input input is not float32"),
        (outside, "its weights lie in another file, which no digest covers"),
    ],
)
def test_a_network_of_another_form(
    bench: Bench, change: Callable[[onnx.ModelProto], None], says: str
) -> None:
    model = onnx.load(bench.network)
    change(model)
    bench.network.write_bytes(model.SerializeToString())
    bench.bring(bench.network)
    assert says in bench.problem()


def strangers_operator(model: onnx.ModelProto) -> None:
    model.opset_import.append(onnx.helper.make_opsetid("com.example", 1))
    model.graph.node[0].domain, model.graph.node[0].op_type = "com.example", "Twist"


def batch_inside(model: onnx.ModelProto) -> None:
    """The input takes batches of any size, and the graph only one image."""
    flatten = next(node for node in model.graph.node if node.op_type == "Flatten")
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(np.array([1, -1], np.int64), "one_row")
    )
    flatten.CopyFrom(
        onnx.helper.make_node("Reshape", [flatten.input[0], "one_row"], [flatten.output[0]])
    )


@pytest.mark.parametrize(
    ("change", "says"), [(strangers_operator, "Twist"), (batch_inside, "MatMul|Add|Reshape")]
)
def test_a_network_that_the_engine_cannot_run_is_refused_with_its_words(
    bench: Bench, change: Callable[[onnx.ModelProto], None], says: str
) -> None:
    bench.bring(changed(bench.network, change))
    with pytest.raises(
        ConfigurationError, match=rf"tiny\.onnx: ONNX Runtime does not run it .*{says}"
    ):
        bench.build()


@pytest.mark.parametrize(("number", "says"), [(np.nan, "NaN"), (-np.inf, "infinite numbers")])
def test_weights_that_are_no_numbers(bench: Bench, number: float, says: str) -> None:
    bench.bring(
        tiny_network(
            bench.folder / "nan.onnx", weights=np.where(TINY_WEIGHTS == 4, number, TINY_WEIGHTS)
        )
    )
    assert f"weights holds {says}: the weights are damaged" in bench.problem()


def test_what_looks_alike_and_is_harmless(bench: Bench) -> None:
    """A dropout that is switched off, a mask of infinities, and scores that the manifest takes as they are."""
    mask = onnx.helper.make_node("Max", ["dropped", "mask"], ["masked"])
    bench.bring(
        changed(
            bench.network,
            behind_the_head(
                onnx.helper.make_node("Dropout", ["head", "", "on"], ["dropped"]),
                mask,
                onnx.helper.make_node("Sigmoid", ["masked"], ["output"]),
                on=np.array(False),
                mask=np.full(3, -np.inf, np.float32),
            ),
        )
    )
    assert "comes out of a sigmoid" in bench.problem()
    bench.write(tiny_manifest(file_sha256(bench.network)).replace('"sigmoid"', '"none"'))
    assert not any(line.startswith(FactVerdict.PROBLEM) for line in bench.lines())


def test_an_answer_that_depends_on_the_other_images_of_a_batch(bench: Bench) -> None:
    mean = onnx.helper.make_node("ReduceMean", ["head"], ["of_batch"], axes=[0])
    bench.bring(
        changed(
            bench.network,
            behind_the_head(mean, onnx.helper.make_node("Sub", ["head", "of_batch"], ["output"])),
        )
    )
    with pytest.raises(
        ConfigurationError,
        match=(
            r"depends on its neighbours in the batch, or on chance: .*; export .* after"
            r" net\.eval\(\)"
        ),
    ):
        bench.build()


def test_another_number_of_labels_than_outputs(bench: Bench) -> None:
    bench.write(bench.text.replace(',\n  { concept = "cardiomegaly", operating_point = 0.6 }', ""))
    assert "its output output is [None, 3]; the manifest has 2 labels" in bench.problem()


def test_an_unknown_recipe(bench: Bench) -> None:
    first, last = bench.text.index("views ="), bench.text.index("[engine]")
    bench.write(bench.text.replace(bench.text[first:last], 'recipe = "chexnet_nih_225"\n\n'))
    assert "unknown recipe 'chexnet_nih_225'; did you mean 'chexnet_nih_224'?" in bench.problem()


def test_a_missing_operating_point(bench: Bench) -> None:
    bench.write(
        bench.text.replace(
            ', operating_point = 0.6 },\n  { concept = "card', ' },\n  { concept = "card'
        )
    )
    assert 'labels.1.operating_point: missing; give one, or "none"' in bench.problem()


def test_operating_points_from_nowhere(bench: Bench) -> None:
    bench.write(bench.text[: bench.text.index("[operating_points]")])
    assert "operating_points: missing; say where the operating points come from" in bench.problem()


def torch_archive(path: Path) -> None:
    torch.save({"weights": torch.zeros(2)}, path)


def bare_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps({"weights": [0.0]}))


def legacy_torch(path: Path) -> None:
    torch.save({"weights": torch.zeros(2)}, path, _use_new_zipfile_serialization=False)


@pytest.mark.parametrize("make", [torch_archive, bare_pickle, legacy_torch])
@pytest.mark.parametrize("architecture", ["onnx", "densenet121"])
def test_a_pickle_is_recognised_whatever_it_is_called(
    bench: Bench, make: Callable[[Path], None], architecture: str
) -> None:
    name = "tiny.onnx" if architecture == "onnx" else "tiny.safetensors"
    made = bench.release_folder / name
    make(made)
    text = (
        tiny_manifest(file_sha256(made))
        .replace("tiny.onnx", name)
        .replace('"onnx"', f'"{architecture}"')
    )
    write_release(bench.folder / "manifests", text)
    assert (
        f"{made} is a pickle, which may run code when it is read: `hilum models import` makes a"
        " safe file of it" in bench.problem()
    )


def test_a_network_with_its_code_is_no_checkpoint(bench: Bench) -> None:
    """An archive as torch.jit.save writes it."""
    archive = bench.folder / "scripted.onnx"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("scripted/data.pkl", pickle.dumps({}))
        made.writestr("scripted/code/__torch__.py", "")
    bench.bring(archive)
    assert "tiny.onnx is a TorchScript archive; export it to ONNX" in bench.problem()


@pytest.mark.parametrize("name", ["tiny.pth", "tiny.pt", "tiny.pth.tar", "tiny.bin", "tiny.pkl"])
def test_a_manifest_that_names_a_pickle(bench: Bench, name: str) -> None:
    bench.write(bench.text.replace("tiny.onnx", name))
    assert f"{name} is a pickle" in bench.problem()
    assert "hilum models import" in bench.problem()


def test_a_text_that_waits_for_its_author(bench: Bench) -> None:
    bench.write(bench.text.replace('"Apache-2.0"', '"EDIT: of the weights"'))
    assert "licence: still to be written; it says 'EDIT: of the weights'" in bench.problem()


def test_an_engine_that_gives_other_numbers(bench: Bench) -> None:
    bench.build()
    tree = bench.folder / "built/embedded/tiny__1"
    changed(
        tree / "1/model.onnx",
        lambda model: model.graph.initializer[0].CopyFrom(shifted(model.graph.initializer[0])),
    )
    other_file, other_numbers = [
        line for line in bench.lines(is_run=True) if line.startswith(FactVerdict.PROBLEM)
    ]
    assert "model.onnx is not the file that was built" in other_file
    assert "the canary's logits are" in other_numbers


def test_a_built_file_that_is_damaged(bench: Bench) -> None:
    bench.build()
    (bench.folder / "built/embedded/tiny__1/1/model.onnx").write_bytes(b"no network")
    other_file, engine = [
        line for line in bench.lines(is_run=True) if line.startswith(FactVerdict.PROBLEM)
    ]
    assert "model.onnx is not the file that was built" in other_file
    assert "engine onnxruntime: [ONNXRuntimeError]" in engine


def shifted(tensor: onnx.TensorProto) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(
        onnx.numpy_helper.to_array(tensor) + np.float32(1), tensor.name
    )


def test_running_what_is_not_built(bench: Bench) -> None:
    assert "PROBLEM is not built in" in bench.problem(is_run=True)
    assert "run `hilum models build tiny@1`" in bench.problem(is_run=True)


def test_a_stale_tree_is_a_note(bench: Bench) -> None:
    bench.build()
    bench.write(bench.text.replace("max_batch = 4", "max_batch = 8"))
    assert any(
        line.startswith("note embedded: stale")
        and "hilum models build tiny@1 --profile embedded" in line
        for line in bench.lines()
    )


def test_one_bad_manifest_does_not_hide_another(bench: Bench) -> None:
    write_release(
        bench.folder / "manifests",
        bench.text.replace('"tiny"', '"worse"').replace("[model]", "[modell]"),
    )
    assert not any("PROBLEM" in line for line in bench.lines())
