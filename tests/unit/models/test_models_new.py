"""`hilum models new`: what an ONNX file says is filled in, what is guessed says why, and what only a person knows is marked."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hilum.errors import ConfigurationError
from hilum.models.build import artefact, build
from hilum.models.facts import FactVerdict, Places
from hilum.models.formats import triton_model
from hilum.models.inspection.check import check
from hilum.models.known_answers.canary import known_image
from hilum.models.manifest import catalogue, label_names, manifest
from hilum.models.scaffold import draft as drafting
from hilum.scores import activate
from hilum_preprocessing import RECIPES
from hilum_preprocessing.spec.input_spec import InputSpec


def network(
    path: Path,
    shape=("batch", 1, 224, 224),
    outputs: int = 3,
    last: str | None = None,
    metadata: dict[str, str] | None = None,
    names: tuple[str, str] = ("x", "y"),
    kind: int = TensorProto.FLOAT,
) -> Path:
    """Global mean, a matrix, perhaps an activation. Its image and its output bear `names`."""
    given, answer = names
    channels = shape[1] if isinstance(shape[1], int) else 1
    weights = np.linspace(-2, 2, channels * outputs).reshape(channels, outputs).astype(np.float32)
    head = f"{answer}_before" if last else answer
    nodes = [
        helper.make_node("ReduceMean", [given], ["pooled"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["pooled", "w"], [head]),
    ]
    if last:
        nodes.append(
            helper.make_node(last, [head], [answer], **({"axis": 1} if last == "Softmax" else {}))
        )
    graph = helper.make_graph(
        nodes,
        "brought",
        [helper.make_tensor_value_info(given, kind, list(shape))],
        [helper.make_tensor_value_info(answer, TensorProto.FLOAT, ["batch", outputs])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, metadata or {})
    onnx.save(model, path)
    return path


def drafted(folder: Path, file: Path, labels: str | None = None, **given) -> str:
    """Text of the manifest."""
    draft = drafting.draft(
        file, given.get("name"), given.get("version", "1"), labels, folder / "manifests"
    )
    return draft.manifest.read_text()


def finished(text: str, **more: str) -> str:
    """As a person would leave it: every EDIT answered."""
    for said, answer in {**more, "EDIT: ": "known: "}.items():
        text = text.replace(said, answer)
    return text


def problems(folder: Path, release_id: str) -> list[str]:
    lines = check([release_id], Places(folder / "manifests", folder / "built"), is_run=False)
    return [line.text for line in lines if line.verdict is FactVerdict.PROBLEM]


def test_a_draft_is_refused_until_its_texts_are_written_and_then_builds(tmp_path: Path) -> None:
    draft = drafting.draft(
        network(tmp_path / "Chest-2 (v1).onnx"), None, "1", None, tmp_path / "manifests"
    )
    assert draft.release_id == "chest_2_v1@1"
    found = problems(tmp_path, draft.release_id)
    assert len(found) == 7
    assert all("still to be written" in problem for problem in found)
    assert draft.edits == 7 + 2  # and two guesses, recipe and activation
    draft.manifest.write_text(finished(draft.manifest.read_text()))
    assert problems(tmp_path, draft.release_id) == []
    build.build(
        [draft.release_id], tmp_path / "manifests", tmp_path / "built", progress=lambda _: None
    )


def test_a_draft_holds_the_file_its_digest_and_its_tensors(tmp_path: Path) -> None:
    file = network(tmp_path / "chest.onnx", names=("pixel values", 'lo"gits'))
    text = drafted(tmp_path, file)
    assert (tmp_path / "manifests/chest@1/chest.onnx").read_bytes() == file.read_bytes()
    assert 'input = "pixel values"' in text
    assert 'output = "lo\\"gits"' in text
    assert "opset 17" in text


def test_an_existing_release_is_not_touched(tmp_path: Path) -> None:
    file = network(tmp_path / "chest.onnx")
    drafted(tmp_path, file)
    with pytest.raises(ConfigurationError, match="exists: take another --name or --version"):
        drafted(tmp_path, file)
    assert "version = \"2\"" in drafted(tmp_path, file, version="2")  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "recipe"),
    [
        (("batch", 1, 224, 224), "torchxrayvision_224"),
        (("batch", 3, 224, 224), "chexnet_nih_224"),
        (("batch", 3, 320, 320), "chexpert_320"),
        (("batch", 1, 512, 512), "torchxrayvision_512"),
        (("batch", 3, 448, 448), "biovil_448"),
        (("batch", 3, "height", "width"), "chexnet_nih_224"),
    ],
)
def test_the_recipe_is_guessed_by_form_and_the_others_of_that_form_are_named(
    tmp_path: Path, shape, recipe: str
) -> None:
    text = drafted(tmp_path, network(tmp_path / "chest.onnx", shape))
    assert f'recipe = "{recipe}" # EDIT' in text
    spec = InputSpec.from_mapping({"recipe": recipe})
    alike = [
        name for name in RECIPES if form(InputSpec.from_mapping({"recipe": name})) == form(spec)
    ]
    assert [name for name in alike if f"# {name}: " not in text] == []
    assert ("any size; 224 x 224 is a guess" in text) == ("height" in shape)


def form(spec: InputSpec) -> tuple[int, tuple[int, ...]]:
    return spec.model_channels, spec.wire_shape


def test_a_form_without_recipe_gets_steps_that_must_be_confirmed(tmp_path: Path) -> None:
    text = drafted(tmp_path, network(tmp_path / "chest.onnx", ("batch", 3, 300, 260)))
    folder = tmp_path / "manifests/chest@1"
    assert any(
        "input.cites: still to be written" in problem for problem in problems(tmp_path, "chest@1")
    )
    (folder / "manifest.toml").write_text(finished(text))
    spec = manifest.read(folder / "manifest.toml").spec
    assert (spec.model_channels, spec.wire_shape) == (3, (1, 300, 260))


@pytest.mark.parametrize(("last", "activation"), [("Sigmoid", "sigmoid"), ("Softmax", "softmax")])
def test_scores_inside_the_graph_are_cut_so_that_logits_are_logits(
    tmp_path: Path, last: str, activation: str
) -> None:
    file = network(tmp_path / "chest.onnx", last=last, names=("image", "logits"))
    text = drafted(tmp_path, file)
    assert f'activation = "{activation}" # the last operator' in text
    assert 'output = "logits_before"' in text
    path = tmp_path / "manifests/chest@1/manifest.toml"
    path.write_text(finished(text))
    build.build(["chest@1"], tmp_path / "manifests", tmp_path / "built", progress=lambda _: None)
    read = manifest.read(path)
    run = triton_model.open_engine(
        build.tree_of(read.release, tmp_path / "built") / "1/model.onnx",
        "onnxruntime",
        "f32",
        "all",
    )
    images = np.concatenate([known_image(read.spec, number) for number in range(2)])
    (scores,) = triton_model.onnxruntime_session(file, "all").run(
        ["logits"], {"image": images.astype(np.float32)}
    )
    logits = run(images)["logits"]
    again = [activate([float(value) for value in row], activation) for row in logits]
    assert np.abs(np.array(again) - scores).max() < 1e-5


def test_labels_come_from_a_file_and_become_concepts_where_one_means_them(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("No Finding\npleural effusion\nRib notching, left\n")
    text = drafted(tmp_path, network(tmp_path / "chest.onnx"), str(tmp_path / "labels.txt"))
    assert '{ concept = "no_finding" }, # 0: No Finding' in text
    assert (
        '{ concept = "pleural_effusion", operating_point = "none" }, # 1: pleural effusion' in text
    )
    assert (
        '{ private = "RIB_NOTCHING_LEF", text = "Rib notching, left", operating_point = "none" }'
        in text
    )
    (tmp_path / "manifests/chest@1/manifest.toml").write_text(finished(text))
    labels = catalogue.load_catalogue(tmp_path / "manifests")["chest@1"].labels
    assert [(label.key, label.code_status) for label in labels] == [
        ("no_finding", "C"),
        ("pleural_effusion", "A"),
        ("rib_notching_lef", "C"),
    ]


def test_outputs_without_a_name_are_masked(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("Mass\n\nNodule\n")
    text = drafted(tmp_path, network(tmp_path / "chest.onnx"), str(tmp_path / "labels.txt"))
    (tmp_path / "manifests/chest@1/manifest.toml").write_text(finished(text))
    labels = catalogue.load_catalogue(tmp_path / "manifests")["chest@1"].labels
    assert [(label.key, label.is_masked) for label in labels] == [
        ("mass", False),
        ("output_1", True),
        ("nodule", False),
    ]


@pytest.mark.parametrize("asked", ["nih_14", "nih14", "NIH 14"])
def test_known_orders_go_by_name(tmp_path: Path, asked: str) -> None:
    text = drafted(tmp_path, network(tmp_path / "chest.onnx", outputs=14), asked)
    assert "label order nih_14 (NIH ChestX-ray14" in text
    assert (
        text.index('"atelectasis"') < text.index('"cardiomegaly"') < text.index('"hiatal_hernia"')
    )
    assert label_names.named("txrv18", {}, 18).names[0] == "Atelectasis"


@pytest.mark.parametrize(
    "written",
    [
        json.dumps(["Mass", "Nodule", "Edema"]),
        "{0: 'Mass', 1: 'Nodule', 2: 'Edema'}",
        "Mass, Nodule, Edema",
    ],
)
def test_labels_that_the_exporter_wrote_into_the_file(tmp_path: Path, written: str) -> None:
    text = drafted(tmp_path, network(tmp_path / "chest.onnx", metadata={"names": written}))
    assert "from the network's own metadata, names" in text
    assert '{ concept = "nodule", operating_point = "none" }, # 1: Nodule' in text


@pytest.mark.parametrize("written", ["{[1]: 2}", "[" * 100_000, "-" * 100_000 + "1"])
def test_metadata_that_nobody_can_read_is_no_list_of_labels(tmp_path: Path, written: str) -> None:
    assert "EDIT: what output 2 means" in drafted(
        tmp_path, network(tmp_path / "chest.onnx", metadata={"labels": written})
    )


def test_what_a_strangers_file_says_stays_on_its_line(tmp_path: Path) -> None:
    names = ["Odd\nmax_batch = 1", "Nodule\x7f", "Edema"]
    file = network(
        tmp_path / "chest.onnx",
        metadata={"labels": json.dumps(names)},
        names=("x\nlicence = 'mine'\n#", "y"),
    )
    read = tomllib.loads(drafted(tmp_path, file))
    assert [label.get("text") for label in read["labels"]] == ["Odd max_batch = 1", None, None]
    assert (read["weights"]["input"], read["licence"]) == (
        "x\nlicence = 'mine'\n#",
        "EDIT: of the weights",
    )


@pytest.mark.parametrize("given", [{"name": "../elsewhere"}, {"name": "Chest"}, {"version": "1/2"}])
def test_a_name_that_no_release_may_have_makes_no_folder(
    tmp_path: Path, given: dict[str, str]
) -> None:
    with pytest.raises(ConfigurationError, match="should match pattern"):
        drafted(tmp_path, network(tmp_path / "chest.onnx"), **given)
    assert [path.name for path in tmp_path.iterdir()] == ["chest.onnx"]


def test_an_output_of_unknown_length_is_passed_over(tmp_path: Path) -> None:
    file = network(tmp_path / "chest.onnx")
    model = onnx.load(file)
    model.graph.node.append(helper.make_node("Identity", ["y"], ["again"]))
    model.graph.output.insert(
        0, helper.make_tensor_value_info("again", TensorProto.FLOAT, ["batch", "some"])
    )
    onnx.save(model, file)
    assert 'output = "y"' in drafted(tmp_path, file)


def test_of_several_outputs_the_one_as_long_as_the_labels_is_taken(tmp_path: Path) -> None:
    file = network(tmp_path / "chest.onnx")
    model = onnx.load(file)
    model.graph.node.append(helper.make_node("Concat", ["y", "y"], ["features"], axis=1))
    model.graph.output.insert(
        0, helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", 6])
    )
    onnx.save(model, file)
    (tmp_path / "labels.txt").write_text("Mass\nNodule\nEdema\n")
    text = drafted(tmp_path, file, str(tmp_path / "labels.txt"))
    assert '# its outputs are features (N, 6), y (N, 3); y is taken.\noutput = "y"' in text
    assert (
        "# EDIT: a guess; its outputs are features (N, 6), y (N, 3); features is taken.\noutput ="
        ' "features"' in drafted(tmp_path, file, version="2")
    )
    with pytest.raises(
        ConfigurationError,
        match=r"has 14 labels, the network 6 outputs \(features\) or 3 outputs \(y\): one a line",
    ):
        drafted(tmp_path, file, "nih_14", version="3")


def test_a_sigmoid_for_each_label_leaves_no_logits_and_is_not_done_twice(tmp_path: Path) -> None:
    file = network(tmp_path / "chest.onnx", last="Sigmoid")
    model = onnx.load(file)
    model.graph.node[-1].output[0] = "score"
    model.graph.node.append(helper.make_node("Concat", ["score"], ["y"], axis=1))
    onnx.save(model, file)
    text = drafted(tmp_path, file)
    assert 'activation = "none" # its scores come out of a sigmoid already' in text
    assert "no single tensor holds the logits before it" in text
    (tmp_path / "manifests/chest@1/manifest.toml").write_text(finished(text))
    assert problems(tmp_path, "chest@1") == []


def test_metadata_of_another_length_is_no_list_of_labels(tmp_path: Path) -> None:
    assert "EDIT: what output 0 means" in drafted(
        tmp_path, network(tmp_path / "chest.onnx", metadata={"names": "one, two"})
    )


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("nih_15", r"neither a file nor a known order; did you mean 'nih_14'\?"),
        ("nih_14", "label order nih_14 .* has 14 labels, the network 3 outputs"),
    ],
)
def test_labels_that_do_not_fit_are_refused(tmp_path: Path, asked: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        drafted(tmp_path, network(tmp_path / "chest.onnx"), asked)
    assert not (tmp_path / "manifests").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"shape": ("batch", 224, 224, 3)}, "channels last: export it channels first"),
        ({"shape": ("batch", 2, 224, 224)}, "an image is (N, C, H, W) with one channel or three"),
        ({"shape": (1, 1, 224, 224)}, "takes batches of 1 only: export it with a dynamic batch"),
        ({"kind": TensorProto.FLOAT16}, "is float16: export it with float32 inputs"),
    ],
)
def test_a_network_that_cannot_be_served_says_how_to_export_it(
    tmp_path: Path, given, says: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        drafted(tmp_path, network(tmp_path / "chest.onnx", **given))
    assert says in str(caught.value)


def test_what_is_no_onnx_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        drafted(tmp_path, tmp_path / "gone.onnx")
    (tmp_path / "text.onnx").write_bytes(b"\x00\x01 no protobuf")
    with pytest.raises(ConfigurationError, match="not a readable ONNX file"):
        drafted(tmp_path, tmp_path / "text.onnx")


def test_a_quantised_network_is_pinned_to_whole_numbers(tmp_path: Path) -> None:
    file = network(tmp_path / "chest.onnx")
    model = onnx.load(file)
    scale, zero = (
        numpy_helper.from_array(np.float32(0.1), "scale"),
        numpy_helper.from_array(np.uint8(0), "zero"),
    )
    model.graph.initializer.extend([scale, zero])
    mean, product = model.graph.node
    model.graph.ClearField("node")
    product.input[0] = "pooled_again"
    steps = [("QuantizeLinear", "pooled", "whole"), ("DequantizeLinear", "whole", "pooled_again")]
    model.graph.node.extend(
        [
            mean,
            *(helper.make_node(op, [one, "scale", "zero"], [other]) for op, one, other in steps),
            product,
        ]
    )
    onnx.save(model, file)
    text = drafted(tmp_path, file)
    assert 'precision = "int8" # the network is quantised' in text
    assert 'optimisation = "disabled"' in text


def test_maps_are_offered_where_an_output_has_their_form(tmp_path: Path) -> None:
    file = network(tmp_path / "chest.onnx", shape=("batch", 3, 224, 224))
    model = onnx.load(file)
    model.graph.node.append(
        helper.make_node("AveragePool", ["x"], ["maps"], kernel_shape=[32, 32], strides=[32, 32])
    )
    model.graph.output.append(
        helper.make_tensor_value_info("maps", TensorProto.FLOAT, ["batch", 3, 7, 7])
    )
    onnx.save(model, file)
    assert '# cam = "maps" # EDIT' in drafted(tmp_path, file)


def test_find_weights_knows_the_copy(tmp_path: Path) -> None:
    draft = drafting.draft(
        network(tmp_path / "a b.onnx"), "chest", "1.0", None, tmp_path / "manifests"
    )
    draft.manifest.write_text(finished(draft.manifest.read_text()))
    assert artefact.find_weights(manifest.read(draft.manifest), None) == draft.manifest.with_name(
        "a_b.onnx"
    )


def test_a_network_whose_tensors_bear_our_names_keeps_its_maps(tmp_path: Path) -> None:
    """`image`, `logits` and `cam` are names that anybody may have given, and given to other things."""
    kernel = np.linspace(-0.02, 0.03, 3 * 32 * 32).reshape(3, 1, 32, 32).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["image", "kernel"], ["cam"], strides=[32, 32]),
        helper.make_node("GlobalAveragePool", ["cam"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["logits"]),
    ]
    tensors = {"image": ["batch", 1, 224, 224], "logits": ["batch", 3], "cam": ["batch", 3, 7, 7]}
    image, logits, cam = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)
        for name, sizes in tensors.items()
    )
    graph = helper.make_graph(
        nodes, "brought", [image], [logits, cam], [numpy_helper.from_array(kernel, "kernel")]
    )
    file = tmp_path / "chest.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), file
    )
    text = finished(
        drafted(tmp_path, file),
        **{'# cam = "cam" # EDIT': 'cam = "cam" #', '"openvino"': '"onnxruntime"'},
    )
    (tmp_path / "manifests/chest@1/manifest.toml").write_text(text)
    build.build(["chest@1"], tmp_path / "manifests", tmp_path / "built", progress=lambda _: None)
    read = manifest.read(tmp_path / "manifests/chest@1/manifest.toml")
    assert read.release.has_cam
    run = triton_model.open_engine(
        build.tree_of(read.release, tmp_path / "built") / "1/model.onnx",
        "onnxruntime",
        "f32",
        "all",
    )
    answer = run(known_image(read.spec, 0))
    assert (
        np.abs(answer["cam"].astype(np.float32).mean((2, 3)) - answer["logits"]).max()
        < 1e-2 * np.abs(answer["logits"]).max()
    )
