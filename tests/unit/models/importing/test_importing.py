"""`hilum models import`: from checkpoints as their authors save them to releases that build and give the authors' numbers."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from hilum import cli
from hilum.domain import Release
from hilum.errors import ConfigurationError
from hilum.models.build import build
from hilum.models.formats import pickled, safetensors, triton_model
from hilum.models.importing import download, published, release_folder
from hilum.models.importing.kinds import KINDS, ImportRequest
from hilum.models.inspection import check
from hilum.models.inspection.open_questions import guesses
from hilum.models.known_answers import canary
from hilum.models.manifest import manifest
from hilum.models.networks.densenet import DenseNet121
from hilum.models.networks.resnet import ResNet50
from hilum.models.networks.vit import VisionTransformer, VitShape
from tests.support.models.checkpoints import (
    as_chexnet,
    as_hugging_face,
    densenet_forward,
    randomised,
    vit_forward,
)

SIDE = 32
SHAPE = VitShape(64, 2, 4, 128, 8, 17, "cls", "tokens", 1e-12, has_class_token=True)
PROCESSOR = {
    "do_resize": True,
    "size": {"height": SIDE, "width": SIDE},
    "resample": 3,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.2, 0.3, 0.4],
}
CONFIG = {
    "model_type": "vit",
    "num_attention_heads": 4,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "problem_type": "multi_label_classification",
    "id2label": {"0": "Pleural Effusion", "2": "Pneumothorax", "1": "Scoliosis"},
}


def _import(kind: str, asked: ImportRequest, out: Path, name: str = "brought") -> Release:
    made = release_folder.import_release(kind, asked, name, "1", out)
    assert made.folder == out / f"{name}@1"
    assert sorted(path.name for path in out.iterdir()) == [made.folder.name]
    return manifest.read(made.folder / "manifest.toml").release


def _refused(kind: str, asked: ImportRequest, out: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        release_folder.import_release(kind, asked, "brought", "1", out)
    assert not list(out.glob("**/*"))
    return "\n".join(caught.value.problems)


def _vit(shape: VitShape = SHAPE, outputs: int = 3) -> nn.Module:
    return randomised(VisionTransformer(shape, 3, outputs, SIDE, SIDE))


def _hugging_face(
    folder: Path,
    config: dict[str, object] | None = None,
    processor: dict[str, object] | None = None,
) -> Path:
    """A folder as `save_pretrained` writes it."""
    folder.mkdir()
    safetensors.write(folder / "model.safetensors", as_hugging_face(_vit().state_dict()))
    (folder / "config.json").write_text(json.dumps({**CONFIG, **(config or {})}))
    (folder / "preprocessor_config.json").write_text(json.dumps({**PROCESSOR, **(processor or {})}))
    return folder / "model.safetensors"


def _built_logits(manifests: Path, built: Path, images: np.ndarray) -> dict[str, np.ndarray]:
    build.build(["brought@1"], manifests, built, progress=lambda _: None)
    return dict(
        triton_model.open_engine(
            built / "embedded/brought__1/1/model.onnx", "openvino", "f32", "all"
        )(images)
    )


def test_a_vit_of_hugging_face_becomes_a_release_with_its_own_numbers(tmp_path: Path) -> None:
    release = _import("vit", ImportRequest(_hugging_face(tmp_path / "theirs")), tmp_path / "out")
    assert [label.key for label in release.labels] == [
        "pleural_effusion",
        "scoliosis",
        "pneumothorax",
    ]
    assert (release.activation, release.has_cam, release.is_trained) == ("sigmoid", False, True)
    read = manifest.read(tmp_path / "out/brought@1/manifest.toml")
    assert read.spec.normalise.mean == pytest.approx((127.5, 102.0, 76.5))
    images = np.concatenate([canary.known_image(read.spec, number) for number in range(5)])
    logits = _built_logits(tmp_path / "out", tmp_path / "built", images)["logits"]
    mean, std = (
        torch.tensor(values).reshape(1, 3, 1, 1) for values in ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    )
    pixels = (torch.from_numpy(images).float().expand(-1, 3, -1, -1) / 255 - mean) / std
    expected = vit_forward(pixels, _vit().state_dict(), 4, 1e-12).detach().numpy()
    assert np.abs(logits - expected).max() < 1e-4


def test_a_vit_of_timm_with_a_mean_over_tokens_has_exact_maps(tmp_path: Path) -> None:
    shape = VitShape(64, 2, 1, 128, 8, 16, "gap", "tokens", 1e-6, has_class_token=False)
    folder = tmp_path / "theirs"
    folder.mkdir()
    images = {
        "input_size": [3, SIDE, SIDE],
        "mean": [0.5] * 3,
        "std": [0.5] * 3,
        "interpolation": "bicubic",
        "crop_pct": 0.8,
    }
    (folder / "config.json").write_text(
        json.dumps({"architecture": "vit", "global_pool": "avg", "pretrained_cfg": images})
    )
    torch.save(_vit(shape).state_dict(), folder / "pytorch_model.bin")
    (tmp_path / "labels.txt").write_text("Mass\n\nEdema\n")
    release = _import(
        "vit",
        ImportRequest(folder / "pytorch_model.bin", labels=str(tmp_path / "labels.txt")),
        tmp_path / "out",
    )
    assert [(label.key, label.is_masked) for label in release.labels] == [
        ("mass", False),
        ("output_1", True),
        ("edema", False),
    ]
    assert release.has_cam
    assert [dict(op)["op"] for op in release.input_spec["geometry"]] == [
        "resize_side",
        "centre_crop",
    ]
    assert release.input_spec["geometry"][0]["size"] == 40
    read = manifest.read(tmp_path / "out/brought@1/manifest.toml")
    image = canary.canary_image(read.spec)
    outputs = _built_logits(tmp_path / "out", tmp_path / "built", image)
    known = canary.read_canary(release, tmp_path / "built")
    assert outputs["cam"].shape == (1, 3, 4, 4)
    assert known.broken_maps(outputs["logits"], outputs["cam"]) is None
    assert known.cam_bias is not None
    head = _vit(shape).head.bias.detach().numpy()  # type: ignore[union-attr,operator]
    assert np.abs(known.cam_bias - head).max() < 2e-3
    assert known.broken_maps(outputs["logits"] + 0.1, outputs["cam"]) is not None


@pytest.mark.parametrize(
    ("config", "processor", "problem"),
    [
        ({"model_type": "dinov2"}, {}, "model_type is 'dinov2', only vit is known"),
        ({"hidden_act": "gelu_new"}, {}, "hidden_act is 'gelu_new', only gelu is known"),
        (
            {"id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}},
            {},
            "3 outputs and nothing says what they are; say with --labels",
        ),
        ({}, {"do_center_crop": True}, "do_center_crop; give --recipe"),
        ({"num_attention_heads": 5}, {}, "5 heads do not divide the width 64"),
        ({"id2label": {"first": "Mass"}}, {}, "not as timm or Hugging Face write it"),
        ({"layer_norm_eps": "small"}, {}, "not as timm or Hugging Face write it"),
        (
            {"global_pool": "token", "pretrained_cfg": None},
            {},
            "not as timm or Hugging Face write it",
        ),
        (
            {"global_pool": "avg", "pretrained_cfg": {"input_size": []}},
            {},
            "not as timm or Hugging Face write it",
        ),
    ],
)
def test_what_beside_a_vit_is_not_understood_is_refused(
    tmp_path: Path, config: dict[str, object], processor: dict[str, object], problem: str
) -> None:
    source = _hugging_face(tmp_path / "theirs", config, processor)
    assert problem in _refused("vit", ImportRequest(source), tmp_path / "out")


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        ({"do_rescale": False}, ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))),
        ({"do_normalize": False}, ((0.0,), (255.0,))),
        ({"rescale_factor": 1 / 127.5}, ((63.75, 51.0, 38.25), (25.5, 38.25, 51.0))),
    ],
)
def test_odd_processors_are_followed(
    tmp_path: Path, processor: dict[str, object], expected: tuple[tuple[float, ...], ...]
) -> None:
    release = _import(
        "vit", ImportRequest(_hugging_face(tmp_path / "theirs", {}, processor)), tmp_path / "out"
    )
    normalise = release.input_spec["normalise"]
    assert (tuple(normalise["mean"]), tuple(normalise["std"])) == tuple(
        pytest.approx(values) for values in expected
    )


def test_a_vit_without_a_word_on_its_images_is_refused(tmp_path: Path) -> None:
    torch.save(_vit().state_dict(), tmp_path / "w.pt")
    asked = ImportRequest(tmp_path / "w.pt", labels="nih_14")
    assert "14 labels, the network 3 outputs" in _refused("vit", asked, tmp_path / "out")
    (tmp_path / "labels.txt").write_text("Mass\nNodule\nEdema")
    assert "nothing says how images were prepared" in _refused(
        "vit", ImportRequest(tmp_path / "w.pt", str(tmp_path / "labels.txt")), tmp_path / "out"
    )


@pytest.mark.parametrize("name", ["distilled", "layer scale"])
def test_a_relative_of_vit_is_refused_by_its_tensors(tmp_path: Path, name: str) -> None:
    extra = {
        "distilled": {"dist_token": torch.zeros(1, 1, 64)},
        "layer scale": {"blocks.0.ls1.gamma": torch.ones(64)},
    }[name]
    source = _hugging_face(tmp_path / "theirs")
    safetensors.write(source, {**_vit().state_dict(), **extra})
    assert f"has {next(iter(extra))}, which the architecture does not" in _refused(
        "vit", ImportRequest(source), tmp_path / "out"
    )


@pytest.mark.parametrize(
    ("kind", "name", "shape", "problem"),
    [
        (
            "vit",
            "patch_embed.proj.weight",
            (64, 768),
            "it lacks patch_embed.proj.weight with 4 axes",
        ),
        ("vit", "pos_embed", (17,), "it lacks pos_embed with 3 axes"),
        ("vit", "head.weight", (), "it lacks head.weight: no classifier of this family"),
        ("resnet50", "layer1.0.conv1.weight", (), "it lacks conv1.weight"),
    ],
)
def test_tensors_of_another_form_are_refused(
    tmp_path: Path, kind: str, name: str, shape: tuple[int, ...], problem: str
) -> None:
    source = _hugging_face(tmp_path / "theirs")
    safetensors.write(source, {**_vit().state_dict(), name: torch.zeros(shape)})
    assert problem in _refused(kind, ImportRequest(source), tmp_path / "out")


def test_the_activation_inside_that_no_tensor_shows_is_asked_about(tmp_path: Path) -> None:
    """LibAUC's DenseNet-121 with ELU has the tensors of one with ReLU."""
    torch.save(randomised(DenseNet121(3, 14, 224, 224)).state_dict(), tmp_path / "libauc.pth")
    asked = ImportRequest(tmp_path / "libauc.pth", labels="nih_14")
    made = release_folder.import_release("densenet121", asked, "brought", "1", tmp_path / "out")
    questions = [text for _, text in guesses((made.folder / "manifest.toml").read_text())]
    assert any("ReLU inside is a guess" in text and "ELU" in text for text in questions)


def test_a_chexnet_checkpoint_becomes_a_release(tmp_path: Path) -> None:
    network = randomised(DenseNet121(3, 14, 224, 224))
    torch.save(as_chexnet(network.state_dict()), tmp_path / "model.pth.tar")
    assert "say with --labels in which order: nih_14, chexpert_14" in _refused(
        "densenet121", ImportRequest(tmp_path / "model.pth.tar"), tmp_path / "out"
    )
    release = _import(
        "densenet121", ImportRequest(tmp_path / "model.pth.tar", labels="nih_14"), tmp_path / "out"
    )
    assert [label.key for label in release.labels][::13] == ["atelectasis", "hiatal_hernia"]
    assert all(label.operating_point is None for label in release.labels)
    assert release.input_spec == {"recipe": "chexnet_nih_256_224"}
    written = safetensors.read(tmp_path / "out/brought@1/weights.safetensors")
    image = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(
            densenet_forward(image, written), densenet_forward(image, network.state_dict())
        )


def _torchxrayvision(folder: Path, thresholds: Tensor | None = None) -> Path:
    network = DenseNet121(1, 18, 224, 224)
    if thresholds is not None:
        network.register_buffer("op_threshs", thresholds)
    torch.save(network, folder / "w.pt")
    return folder / "w.pt"


@pytest.mark.parametrize(
    "name", [name for name in published.releases() if name.startswith("densenet")]
)
def test_every_published_release_masks_what_it_was_not_trained_for(
    tmp_path: Path, name: str
) -> None:
    """Trap 44."""
    release = _import(
        "torchxrayvision",
        ImportRequest(_torchxrayvision(tmp_path), published=name),
        tmp_path / "out",
    )
    known = published.releases()[name]
    masked = [
        not label or math.isnan(known.thresholds[index]) for index, label in enumerate(known.labels)
    ]
    assert [label.is_masked for label in release.labels] == masked
    shown = [label for label in release.labels if not label.is_masked]
    assert {label.operating_point for label in shown} == {0.5}
    thresholds = [value for value in known.thresholds if not math.isnan(value)]
    assert [label.rescaled_at for label in shown] == pytest.approx(thresholds, rel=1e-7)
    assert release.operating_points is not None


def test_the_table_of_published_releases_agrees_with_itself() -> None:
    assert len(published.releases()) == 8
    for release in published.releases().values():
        assert (len(release.labels), len(release.thresholds)) == (18, 18)
        unnamed = [
            math.isnan(value)
            for label, value in zip(release.labels, release.thresholds, strict=True)
            if not label
        ]
        assert all(unnamed), release.name
        assert all(math.isnan(value) or 0 < value < 1 for value in release.thresholds)


def test_a_resnet_of_torchxrayvision_is_known_by_its_file_name(tmp_path: Path) -> None:
    source = tmp_path / published.releases()["resnet50-res512-all"].file
    torch.save(ResNet50(1, 18).state_dict(), source)
    release = _import("torchxrayvision", ImportRequest(source), tmp_path / "out")
    assert (release.architecture, release.has_cam, release.input_spec) == (
        "resnet50",
        True,
        {"recipe": "torchxrayvision_512"},
    )
    assert [label.key for label in release.labels if label.is_masked] == [
        "lung_lesion",
        "enlarged_cardiomediastinum",
    ]


def test_operating_points_in_the_file_must_be_the_published_ones(tmp_path: Path) -> None:
    known = torch.tensor(published.releases()["densenet121-res224-chex"].thresholds)
    source = _torchxrayvision(tmp_path, known)
    wrong = ImportRequest(source, published="densenet121-res224-nih")
    assert "op_threshs are not those of densenet121-res224-nih" in _refused(
        "torchxrayvision", wrong, tmp_path / "out"
    )
    _import(
        "torchxrayvision",
        ImportRequest(source, published="densenet121-res224-chex"),
        tmp_path / "out",
    )


def test_a_file_of_another_name_needs_to_be_told(tmp_path: Path) -> None:
    source = _torchxrayvision(tmp_path)
    assert "say with --published which release it is: densenet121-res224-all" in _refused(
        "torchxrayvision", ImportRequest(source), tmp_path / "out"
    )
    unknown = ImportRequest(source, published="densenet121-res224-rnsa")
    assert "did you mean 'densenet121-res224-rsna'?" in _refused(
        "torchxrayvision", unknown, tmp_path / "out"
    )


def test_a_release_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    source = _hugging_face(tmp_path / "theirs")
    _import("vit", ImportRequest(source), tmp_path / "out")
    with pytest.raises(ConfigurationError, match="is there already: take another version"):
        release_folder.import_release(
            "vit", ImportRequest(source), "brought", "1", tmp_path / "out"
        )


def test_importing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    source = _hugging_face(tmp_path / "theirs")
    for out in ("one", "two"):
        _import("vit", ImportRequest(source), tmp_path / out)
    one, two = (tmp_path / out / "brought@1/weights.safetensors" for out in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_nothing_is_fetched_unasked_or_unvouched(tmp_path: Path) -> None:
    for digest, is_fetched in ((None, True), ("0" * 64, False)):
        with pytest.raises(ConfigurationError, match="--download and --sha256 go together"):
            release_folder.checkpoint(
                "densenet121-res224-all", digest, tmp_path, is_fetched=is_fetched
            )
    with pytest.raises(ConfigurationError, match="only https is fetched"):
        download.fetch("http://example.org/w.pt", "0" * 64, tmp_path / "w.pt")


def test_numbers_that_a_file_does_not_hold_are_not_made_up(tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 0]}}).encode()
    (tmp_path / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ConfigurationError, match="not a readable safetensors file"):
        safetensors.read(tmp_path / "w.safetensors")


def test_the_command_says_what_to_edit_and_what_comes_next(tmp_path: Path) -> None:
    source = _hugging_face(tmp_path / "theirs")
    done = CliRunner().invoke(
        cli.app,
        [
            "models",
            "import",
            "vit",
            str(source),
            "--name",
            "brought",
            "--out",
            str(tmp_path / "out"),
        ],
    )
    assert done.exit_code == 0, done.output
    assert 'edit: { private = "SCOLIOSIS"' in done.output
    assert "then: hilum models check brought@1, hilum models build brought@1" in done.output
    lines = list(
        check.check(["brought@1"], check.Places(tmp_path / "out", tmp_path / "built"), is_run=False)
    )
    assert not [line for line in lines if line.verdict is check.FactVerdict.PROBLEM], lines
    assert any("weights.safetensors is the file of the manifest" in line.text for line in lines)
    digest = hashlib.sha256(
        (tmp_path / "out/brought@1/weights.safetensors").read_bytes()
    ).hexdigest()
    assert f'sha256 = "{digest}"' in (tmp_path / "out/brought@1/manifest.toml").read_text()


def test_an_unknown_kind_names_all_of_them(tmp_path: Path) -> None:
    said = _refused("foo", ImportRequest(tmp_path / "w.pt"), tmp_path / "out")
    assert all(kind in said for kind in (*KINDS, "onnx"))
    assert all(kind in pickled.ADVICE for kind in KINDS)


def test_options_that_would_do_nothing_are_not_swallowed(tmp_path: Path) -> None:
    words = [
        "models",
        "import",
        "onnx",
        str(tmp_path / "chest.onnx"),
        "--name",
        "chest",
        "--out",
        str(tmp_path / "out"),
    ]
    done = CliRunner().invoke(
        cli.app, [*words, "--activation", "softmax", "--recipe", "chexpert_320"]
    )
    assert (done.exit_code, "kind onnx takes no --recipe, --activation" in done.output) == (
        2,
        True,
    ), done.output


def test_a_hostile_checkpoint_ends_the_command_with_its_reason(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "ran",)

    torch.save({"a": Trap()}, tmp_path / "w.pt")
    done = CliRunner().invoke(
        cli.app,
        [
            "models",
            "import",
            "vit",
            str(tmp_path / "w.pt"),
            "--name",
            "bad",
            "--out",
            str(tmp_path / "out"),
        ],
    )
    assert done.exit_code == 2
    assert (
        "it asks for pathlib.Path.touch" in done.output
        or "it asks for builtins.getattr" in done.output
    )
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "out/bad@1").exists()


def test_scores_are_those_that_torchxrayvision_gives(tmp_path: Path) -> None:
    """Its op_norm, written down from its documentation.

    Thresholds become 0.5, and no threshold means 0.5 whatever the image.
    """
    from hilum.scores import scores_of

    release = _import(
        "torchxrayvision",
        ImportRequest(_torchxrayvision(tmp_path), published="densenet121-res224-pc"),
        tmp_path / "out",
    )
    thresholds = torch.tensor(
        published.releases()["densenet121-res224-pc"].thresholds, dtype=torch.float64
    )
    for logits in (
        torch.randn(20, 18, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 4 - 3
    ):
        share = torch.sigmoid(logits)
        below, above = share / (2 * thresholds), 1 - (1 - share) / (2 * (1 - thresholds))
        expected = torch.where(
            thresholds.isnan(), 0.5, torch.where(share < thresholds, below, above)
        )
        ours = scores_of(logits.tolist(), release)
        for label, mine, theirs in zip(release.labels, ours, expected.tolist(), strict=True):
            assert label.is_masked or mine == pytest.approx(theirs, abs=1e-7)
