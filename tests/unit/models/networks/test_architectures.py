"""The networks: torchvision's names and sizes, exact class activation maps, untrained weights that are the same everywhere."""

from __future__ import annotations

import hashlib
import re
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from hilum.errors import ConfigurationError
from hilum.models.formats import safetensors
from hilum.models.known_answers import canary
from hilum.models.manifest.rules import STRIDES
from hilum.models.networks import architectures, checkpoint_names, state_dict, untrained
from hilum.models.networks.densenet import DenseNet121
from hilum.models.networks.vit import Attention
from hilum_preprocessing.spec.input_spec import InputSpec

TXV = InputSpec.from_mapping({"recipe": "torchxrayvision_224"})
VIT = InputSpec.from_mapping({"recipe": "vit_imagenet_half_224"})
SMALL = InputSpec.from_mapping(
    {
        "intensity": [
            {"op": "maxval", "of": "bits"},
            {"op": "scale", "multiply": 2048, "add": -1024},
        ],
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


def as_torchvision(name: str) -> str:
    """A tensor's name in torchvision's ViT-B/16, from timm's."""
    layers = (
        (r"^blocks\.(\d+)\.norm([12])", r"encoder.layers.encoder_layer_\1.ln_\2"),
        (
            r"^blocks\.(\d+)\.attn\.qkv\.",
            r"encoder.layers.encoder_layer_\1.self_attention.in_proj_",
        ),
        (r"^blocks\.(\d+)\.attn\.proj", r"encoder.layers.encoder_layer_\1.self_attention.out_proj"),
        (r"^blocks\.(\d+)\.mlp\.fc1", r"encoder.layers.encoder_layer_\1.mlp.0"),
        (r"^blocks\.(\d+)\.mlp\.fc2", r"encoder.layers.encoder_layer_\1.mlp.3"),
        (r"^cls_token$", "class_token"),
        (r"^pos_embed$", "encoder.pos_embedding"),
        (r"^patch_embed\.proj", "conv_proj"),
        (r"^norm\.", "encoder.ln."),
        (r"^head\.", "heads.head."),
    )
    for ours, theirs in layers:
        name = re.sub(ours, theirs, name)
    return name


def test_vit_takes_the_parameters_of_torchvision() -> None:
    with torch.device("meta"):
        network = architectures.make("vit_b16", VIT, 1000)
    ours = network.state_dict()
    assert sum(parameter.numel() for parameter in network.parameters()) == 86_567_656
    theirs = {f"module.{as_torchvision(name)}": tensor for name, tensor in ours.items()}
    layer = "module.encoder.layers.encoder_layer_11"
    assert {
        f"{layer}.self_attention.in_proj_weight",
        f"{layer}.self_attention.out_proj.bias",
        f"{layer}.mlp.3.weight",
        f"{layer}.ln_2.bias",
        "module.class_token",
        "module.conv_proj.weight",
        "module.encoder.pos_embedding",
        "module.encoder.ln.weight",
        "module.heads.head.bias",
    } <= set(theirs)
    renamed = checkpoint_names.canonical("vit_b16", theirs)
    assert {name: tensor.shape for name, tensor in renamed.items()} == {
        name: tensor.shape for name, tensor in ours.items()
    }


def test_attention_is_that_of_torch() -> None:
    theirs = nn.MultiheadAttention(768, 12, batch_first=True)
    ours = Attention(768, 12)
    weights = theirs.state_dict()
    names = {"in_proj_weight": "qkv.weight", "in_proj_bias": "qkv.bias"}
    ours.load_state_dict(
        {names.get(name, name.replace("out_proj", "proj")): weights[name] for name in weights}
    )
    tokens = torch.randn(2, 5, 768, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(
            ours(tokens),
            theirs(tokens, tokens, tokens, need_weights=False)[0],
            atol=1e-5,
            rtol=1e-5,
        )


def test_the_mean_of_a_map_plus_the_bias_is_the_logit(densenet: DenseNet121) -> None:
    """Trap 45: the map of the features before the ReLU does not sum up to it."""
    with torch.no_grad():
        densenet.classifier.bias.copy_(torch.linspace(-1, 1, 14))
        logits, cam = densenet(torch.from_numpy(canary.canary_image(SMALL)).float())
        densenet.classifier.bias.zero_()
    assert cam.shape == (1, 14, 2, 2)
    torch.testing.assert_close(
        cam.mean((2, 3)) + torch.linspace(-1, 1, 14), logits, atol=1e-4, rtol=1e-4
    )


def test_the_graph_normalises_and_repeats_the_channel() -> None:
    image = torch.from_numpy(canary.canary_image(VIT))
    normalised = architectures.Normaliser(VIT)(image)
    assert normalised.shape == (1, 3, 224, 224)
    expected = (image.numpy().astype(np.float32) - 127.5) / 127.5
    for channel in range(3):
        assert np.abs(normalised[0, channel].numpy() - expected[0, 0]).max() < 1e-6


def test_a_mean_for_each_channel_reaches_its_channel() -> None:
    mapping = {
        **VIT.to_mapping(),
        "normalise": {"mean": [100.0, 110.0, 120.0], "std": [50.0, 60.0, 70.0], "channels": 3},
    }
    normalised = architectures.Normaliser(InputSpec.from_mapping(mapping))(
        torch.full((1, 1, 224, 224), 200, dtype=torch.uint8)
    )
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
    images = torch.cat(
        [torch.from_numpy(canary.known_image(SMALL, number)) for number in range(12)]
    ).float()
    with torch.no_grad():
        logits = densenet(images)[0]
    assert densenet.training is False
    assert logits.abs().max() < 8
    assert logits.std(0).min() > 0.2


def _loaded(path: Path) -> DenseNet121:
    network = DenseNet121(1, 14, 64, 64)
    state_dict.load_into(network, state_dict.read(path, "densenet121"), path.name)
    return network


def test_brought_weights_are_loaded(densenet: DenseNet121, tmp_path: Path) -> None:
    safetensors.write(
        tmp_path / "w.safetensors",
        {f"module.{name}": value for name, value in densenet.state_dict().items()},
    )
    loaded = _loaded(tmp_path / "w.safetensors")
    assert _digest(loaded) == _digest(densenet)
    assert not loaded.training


def test_the_old_names_of_densenet_are_understood(densenet: DenseNet121, tmp_path: Path) -> None:
    old = {
        re.sub(r"(denselayer\d+\.(?:norm|conv))([12])\.", r"\1.\2.", name): value
        for name, value in densenet.state_dict().items()
    }
    assert "features.denseblock1.denselayer1.norm.1.weight" in old
    safetensors.write(tmp_path / "old.safetensors", old)
    assert _digest(_loaded(tmp_path / "old.safetensors")) == _digest(densenet)


def test_weights_that_do_not_fit_are_refused_by_name(densenet: DenseNet121, tmp_path: Path) -> None:
    tensors = dict(densenet.state_dict())
    tensors["classifier.weight"] = torch.zeros(18, 1024)
    tensors["features.norm6.weight"] = torch.zeros(18)
    tensors["features.norm0.bias"] = torch.full((64,), torch.nan)
    del tensors["features.norm0.weight"]
    safetensors.write(tmp_path / "w.safetensors", tensors)
    with pytest.raises(ConfigurationError) as caught:
        _loaded(tmp_path / "w.safetensors")
    assert caught.value.problems == [
        "w.safetensors lacks features.norm0.weight",
        "w.safetensors has features.norm6.weight, which the architecture does not",
        "w.safetensors: classifier.weight is (18, 1024), the architecture needs (14, 1024)",
        "w.safetensors: features.norm0.bias holds NaN or infinity; the weights are damaged",
    ]


def test_weights_of_another_family_are_refused(tmp_path: Path) -> None:
    safetensors.write(tmp_path / "w.safetensors", {"backbone.stem.weight": torch.zeros(3)})
    with pytest.raises(
        ConfigurationError,
        match=(
            r"no densenet121: it lacks features.conv0.weight; its tensors are backbone.stem.weight"
        ),
    ):
        _loaded(tmp_path / "w.safetensors")


def test_a_head_of_two_layers_is_refused(densenet: DenseNet121, tmp_path: Path) -> None:
    tensors = {
        name: value
        for name, value in densenet.state_dict().items()
        if not name.startswith("classifier")
    }
    tensors |= {f"classifier.{place}.weight": torch.zeros(14, 1024) for place in (0, 2)}
    safetensors.write(tmp_path / "w.safetensors", tensors)
    with pytest.raises(ConfigurationError, match="one linear layer as its head"):
        _loaded(tmp_path / "w.safetensors")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 64,
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 64) + b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}  ',
        b"PK\x03\x04 no checkpoint at all",
    ],
)
def test_damaged_weight_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "w.safetensors").write_bytes(content)
    with pytest.raises(ConfigurationError, match="not a readable safetensors file"):
        _loaded(tmp_path / "w.safetensors")


def test_tensors_of_every_type_come_back(tmp_path: Path) -> None:
    kinds = (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
    )
    tensors = {str(kind): torch.arange(6, dtype=kind).reshape(2, 3) for kind in kinds}
    tensors |= {
        "bool": torch.tensor([True, False]),
        "one": torch.tensor(3),
        "none": torch.zeros(0, 4),
        "turned": torch.randn(3, 2).T,
    }
    safetensors.write(tmp_path / "w.safetensors", tensors)
    read = safetensors.read(tmp_path / "w.safetensors")
    assert set(read) == set(tensors)
    assert all(
        torch.equal(read[name], tensors[name]) and read[name].dtype == tensors[name].dtype
        for name in tensors
    )
