"""The networks: torchvision's names and sizes, exact class activation maps, untrained weights that are the same everywhere."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from hilum.errors import ConfigurationError
from hilum.models import architectures, canary, state_dict, untrained
from hilum.models.densenet import DenseNet121
from hilum.models.manifest import STRIDES
from hilum.models.vision_transformer import VisionTransformerB16
from hilum_preprocessing.spec import InputSpec

TXV = InputSpec.from_mapping({"recipe": "torchxrayvision_224"})
VIT = InputSpec.from_mapping({"recipe": "vit_imagenet_half_224"})
SMALL = InputSpec.from_mapping(
    {
        "intensity": [{"op": "maxval", "of": "bits"}, {"op": "scale", "multiply": 2048, "add": -1024}],
        "geometry": [{"op": "resize", "height": 64, "width": 64, "kernel": "skimage"}],
        "target": {"height": 64, "width": 64, "dtype": "fp16"},
        "views": "any",
    }
)


def _digest(network: nn.Module) -> str:
    digest = hashlib.sha256()
    for tensor in network.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def _save_safetensors(path: Path, tensors: dict[str, torch.Tensor]) -> Path:
    header, blob = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.contiguous().numpy().tobytes()
        kind = {torch.float32: "F32", torch.int64: "I64"}[tensor.dtype]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(blob), len(blob) + len(raw)]}
        blob += raw
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + blob)
    return path


@pytest.fixture(scope="module")
def densenet() -> DenseNet121:
    network = DenseNet121(1, 14, 64, 64)
    untrained.fill(network, SMALL, 7)
    return network


def test_every_known_architecture_can_be_made_or_brought() -> None:
    assert set(architectures.NETWORKS) | {"onnx"} == set(STRIDES)


def test_densenet_has_the_parameters_of_torchvision() -> None:
    with torch.device("meta"):
        network = DenseNet121(3, 1000, 224, 224)
    assert sum(parameter.numel() for parameter in network.parameters()) == 7_978_856
    names = set(network.state_dict())
    assert {"features.conv0.weight", "features.norm5.running_var", "classifier.bias"} <= names
    assert {
        "features.denseblock3.denselayer24.conv2.weight",
        "features.transition3.norm.weight",
        "features.transition1.conv.weight",
    } <= names


def test_vit_has_the_parameters_of_torchvision() -> None:
    with torch.device("meta"):
        network = VisionTransformerB16(3, 1000, 224, 224)
    assert sum(parameter.numel() for parameter in network.parameters()) == 86_567_656
    layer = "encoder.layers.encoder_layer_11"
    names = {
        f"{layer}.self_attention.in_proj_weight",
        f"{layer}.self_attention.out_proj.bias",
        f"{layer}.mlp.3.weight",
        f"{layer}.ln_2.bias",
    }
    assert {*names, "class_token", "conv_proj.weight", "encoder.pos_embedding", "encoder.ln.weight", "heads.head.bias"} <= set(
        network.state_dict()
    )


def test_attention_is_that_of_torch() -> None:
    from hilum.models.vision_transformer import SelfAttention

    theirs = nn.MultiheadAttention(768, 12, batch_first=True)
    ours = SelfAttention()
    ours.load_state_dict(theirs.state_dict())
    tokens = torch.randn(2, 5, 768, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens), theirs(tokens, tokens, tokens, need_weights=False)[0], atol=1e-5, rtol=1e-5)


def test_the_mean_of_a_map_plus_the_bias_is_the_logit(densenet: DenseNet121) -> None:
    with torch.no_grad():
        densenet.classifier.bias.copy_(torch.linspace(-1, 1, 14))
        logits, cam = densenet(torch.from_numpy(canary.canary_image(SMALL)).float())
        densenet.classifier.bias.zero_()
    assert cam.shape == (1, 14, 2, 2)
    torch.testing.assert_close(cam.mean((2, 3)) + torch.linspace(-1, 1, 14), logits, atol=1e-4, rtol=1e-4)


def test_the_graph_normalises_and_repeats_the_channel() -> None:
    image = torch.from_numpy(canary.canary_image(VIT))
    normalised = architectures.Normaliser(VIT)(image)
    assert normalised.shape == (1, 3, 224, 224)
    expected = (image.numpy().astype(np.float32) - 127.5) / 127.5
    for channel in range(3):
        assert np.abs(normalised[0, channel].numpy() - expected[0, 0]).max() < 1e-6


def test_a_mean_for_each_channel_reaches_its_channel() -> None:
    mapping = {**VIT.to_mapping(), "normalise": {"mean": [100.0, 110.0, 120.0], "std": [50.0, 60.0, 70.0], "channels": 3}}
    normalised = architectures.Normaliser(InputSpec.from_mapping(mapping))(torch.full((1, 1, 224, 224), 200, dtype=torch.uint8))
    torch.testing.assert_close(normalised[0, :, 0, 0], torch.tensor([2.0, 1.5, 80 / 70]))


def test_untrained_weights_are_the_same_again_whatever_the_threads(densenet: DenseNet121) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        again = DenseNet121(1, 14, 64, 64)
        untrained.fill(again, SMALL, 7)
    finally:
        torch.set_num_threads(threads)
    assert _digest(again) == _digest(densenet)


def test_another_seed_gives_other_weights(densenet: DenseNet121) -> None:
    other = DenseNet121(1, 14, 64, 64)
    untrained.fill(other, SMALL, 8)
    assert _digest(other) != _digest(densenet)


def test_untrained_logits_are_moderate_and_differ_between_images(densenet: DenseNet121) -> None:
    images = torch.cat([torch.from_numpy(canary.known_image(SMALL, number)) for number in range(12)]).float()
    with torch.no_grad():
        logits = densenet(images)[0]
    assert densenet.training is False
    assert logits.abs().max() < 8
    assert logits.std(0).min() > 0.2


def test_brought_weights_are_loaded_from_either_format(densenet: DenseNet121, tmp_path: Path) -> None:
    torch.save({"state_dict": {f"module.{name}": value for name, value in densenet.state_dict().items()}}, tmp_path / "w.pth")
    _save_safetensors(tmp_path / "w.safetensors", densenet.state_dict())
    for name in ("w.pth", "w.safetensors"):
        loaded = DenseNet121(1, 14, 64, 64)
        state_dict.load_into(loaded, tmp_path / name)
        assert _digest(loaded) == _digest(densenet)
        assert not loaded.training


def test_the_old_names_of_densenet_are_understood(densenet: DenseNet121, tmp_path: Path) -> None:
    import re

    old = {re.sub(r"(denselayer\d+\.(?:norm|conv))([12])\.", r"\1.\2.", name): value for name, value in densenet.state_dict().items()}
    assert "features.denseblock1.denselayer1.norm.1.weight" in old
    torch.save(old, tmp_path / "old.pth")
    loaded = DenseNet121(1, 14, 64, 64)
    state_dict.load_into(loaded, tmp_path / "old.pth")
    assert _digest(loaded) == _digest(densenet)


def test_weights_that_do_not_fit_are_refused_by_name(densenet: DenseNet121, tmp_path: Path) -> None:
    tensors = dict(densenet.state_dict())
    tensors["classifier.weight"] = torch.zeros(18, 1024)
    tensors["op_threshs"] = torch.zeros(18)
    del tensors["features.conv0.weight"]
    with pytest.raises(ConfigurationError) as caught:
        state_dict.load_into(DenseNet121(1, 14, 64, 64), _save_safetensors(tmp_path / "w.safetensors", tensors))
    assert caught.value.problems == [
        "w.safetensors lacks features.conv0.weight",
        "w.safetensors has op_threshs, which the architecture does not",
        "w.safetensors: classifier.weight is (18, 1024), the architecture needs (14, 1024)",
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("w.safetensors", b""),
        ("w.safetensors", b"\xff" * 64),
        ("w.safetensors", struct.pack("<Q", 2) + b"[]"),
        ("w.safetensors", struct.pack("<Q", 64) + b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}  '),
        ("w.pth", b""),
        ("w.pth", b"not a checkpoint at all"),
    ],
)
def test_damaged_weight_files_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigurationError, match="not a"):
        state_dict.load_into(DenseNet121(1, 14, 64, 64), tmp_path / name)


class Trap:
    """What a hostile checkpoint holds: code that runs when it is unpickled."""

    def __init__(self, witness: str) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path(self.witness),))


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    torch.save({"a": Trap(str(tmp_path / "ran"))}, tmp_path / "trap.pth")
    with pytest.raises(ConfigurationError, match="not a torch file of tensors alone"):
        state_dict.load_into(DenseNet121(1, 14, 64, 64), tmp_path / "trap.pth")
    assert not (tmp_path / "ran").exists()


def test_a_whole_pickled_model_is_no_state_dictionary(tmp_path: Path) -> None:
    torch.save([torch.zeros(1)], tmp_path / "list.pth")
    with pytest.raises(ConfigurationError, match="holds no state dictionary"):
        state_dict.load_into(DenseNet121(1, 14, 64, 64), tmp_path / "list.pth")
