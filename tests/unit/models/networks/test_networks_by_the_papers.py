"""Networks of ours beside forward passes written from the papers, on the tensors by their authors' names."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hilum.errors import ConfigurationError
from hilum.models.known_answers import canary
from hilum.models.manifest.tables import OptionsTable
from hilum.models.networks import architectures, checkpoint_names, vit_shape
from hilum.models.networks.densenet import DenseNet121
from hilum.models.networks.resnet import ResNet50
from hilum.models.networks.vit import VisionTransformer, VitShape
from hilum_preprocessing.spec.input_spec import InputSpec
from tests.support.models.checkpoints import (
    as_chexnet,
    as_hugging_face,
    densenet_forward,
    randomised,
    resnet_forward,
    vit_forward,
)

IMAGES = torch.randn(2, 3, 96, 64, generator=torch.Generator().manual_seed(5))


def _spec(height: int, width: int, channels: int = 3) -> InputSpec:
    return InputSpec.from_mapping(
        {
            "intensity": [{"op": "maxval", "of": "bits"}, {"op": "to_uint8", "mode": "round"}],
            "geometry": [
                {
                    "op": "resize",
                    "height": height,
                    "width": width,
                    "kernel": "pil_bilinear_aa",
                    "compute": "uint8_rounded",
                }
            ],
            "target": {"height": height, "width": width, "dtype": "uint8"},
            "normalise": {"mean": 127.5, "std": 127.5, "channels": channels},
            "views": "any",
        }
    )


def _shape(**changes: object) -> VitShape:
    plain = {
        "width": 96, "layers": 3, "heads": 3, "hidden": 192, "patch": 16, "positions": 25, "pooling": "cls", "norm": "tokens",
        "epsilon": 1e-6, "has_class_token": True,
    }  # fmt: skip
    return VitShape(**{**plain, **changes})  # type: ignore[arg-type]  # by name


# 96 x 64 in patches of 16: 24 tokens and the class token.
SHAPES = {
    "class token": _shape(),
    "mean, normalised before": _shape(pooling="gap", positions=24, has_class_token=False),
    "mean, normalised behind": _shape(pooling="gap", norm="pooled"),
    "class token without a place": _shape(positions=24),
    "mean beside a class token, other epsilon": _shape(pooling="gap", epsilon=1e-3),
    "patches of 32, one head": _shape(patch=32, positions=7, heads=1),
}


@torch.no_grad()
def test_densenet_computes_what_its_paper_says() -> None:
    network = randomised(DenseNet121(3, 5, 96, 64))
    given = network.state_dict()
    torch.testing.assert_close(
        network(IMAGES)[0], densenet_forward(IMAGES, given), atol=1e-5, rtol=1e-5
    )


@torch.no_grad()
def test_resnet_computes_what_its_paper_says() -> None:
    network = randomised(ResNet50(3, 5))
    given = network.state_dict()
    torch.testing.assert_close(
        network(IMAGES)[0], resnet_forward(IMAGES, given), atol=1e-4, rtol=1e-4
    )


@torch.no_grad()
@pytest.mark.parametrize("name", list(SHAPES))
def test_vit_computes_what_its_paper_says(name: str) -> None:
    shape = SHAPES[name]
    network = randomised(VisionTransformer(shape, 3, 5, 96, 64))
    expected = vit_forward(IMAGES, network.state_dict(), shape.heads, shape.epsilon, shape.pooling)
    torch.testing.assert_close(network(IMAGES)[0], expected, atol=2e-5, rtol=1e-5)


def test_resnet_has_the_parameters_of_torchvision() -> None:
    with torch.device("meta"):
        network = ResNet50(3, 1000)
    assert sum(parameter.numel() for parameter in network.parameters()) == 25_557_032
    names = set(network.state_dict())
    assert {
        "bn1.running_var",
        "layer1.0.downsample.1.weight",
        "layer3.5.conv3.weight",
        "layer4.2.bn3.bias",
        "fc.bias",
    } <= names
    assert "layer1.1.downsample.0.weight" not in names


@pytest.mark.parametrize(
    ("width", "heads", "patch", "parameters"),
    [
        (192, 3, 16, 5_717_416),
        (384, 6, 16, 22_050_664),
        (768, 12, 16, 86_567_656),
        (768, 12, 32, 88_224_232),
    ],
    ids=["tiny", "small", "base", "base, patches of 32"],
)
def test_vit_has_the_parameters_of_the_published_sizes(
    width: int, heads: int, patch: int, parameters: int
) -> None:
    positions = (224 // patch) ** 2 + 1
    with torch.device("meta"):
        network = VisionTransformer(
            _shape(
                width=width,
                layers=12,
                heads=heads,
                hidden=4 * width,
                patch=patch,
                positions=positions,
            ),
            3,
            1000,
            224,
            224,
        )
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters


def test_names_of_a_chexnet_checkpoint_become_ours() -> None:
    given = DenseNet121(3, 14, 224, 224).state_dict()
    saved = as_chexnet(given)["state_dict"]
    assert isinstance(saved, dict)
    assert "module.densenet121.features.denseblock1.denselayer1.norm.1.weight" in saved
    named = checkpoint_names.canonical("densenet121", saved)
    assert set(named) == set(given)
    assert all(torch.equal(named[name], given[name]) for name in given)


@pytest.mark.parametrize("before", ["", "module."], ids=["plain", "DataParallel"])
def test_names_of_hugging_face_become_ours(before: str) -> None:
    given = randomised(VisionTransformer(SHAPES["class token"], 3, 5, 96, 64)).state_dict()
    saved = {before + name: tensor for name, tensor in as_hugging_face(given).items()}
    assert f"{before}vit.encoder.layer.0.attention.attention.query.weight" in saved
    named = checkpoint_names.canonical("vit", saved)
    assert set(named) == set(given)
    assert all(torch.equal(named[name], given[name]) for name in given)


def test_half_of_the_attention_is_no_vit() -> None:
    given = VisionTransformer(SHAPES["class token"], 3, 5, 96, 64).state_dict()
    saved = as_hugging_face(given)
    del saved["vit.encoder.layer.0.attention.attention.key.weight"]
    named = checkpoint_names.canonical("vit", saved)
    assert "blocks.0.attn.qkv.weight" not in named
    assert "blocks.0.attn.query.weight" in named


def test_sizes_are_read_off_the_tensors() -> None:
    for shape in SHAPES.values():
        tensors = VisionTransformer(shape, 3, 5, 96, 64).state_dict()
        options = OptionsTable(
            pooling=shape.pooling,
            norm=shape.norm,
            patch=shape.patch,
            heads=shape.heads,
            epsilon=shape.epsilon,
        )
        assert vit_shape.from_tensors(tensors, options, _spec(96, 64)) == shape


@pytest.mark.parametrize(
    ("shape", "options", "size", "problem"),
    [
        (_shape(), {"patch": 32}, (96, 64), "patch is 32, the patches of these weights are 16"),
        (
            _shape(norm="pooled", pooling="gap"),
            {"pooling": "gap"},
            (96, 64),
            "norm is tokens, these weights have theirs over pooled",
        ),
        (_shape(), {"heads": 5}, (96, 64), "5 heads do not divide the width 96"),
        (
            _shape(has_class_token=False, positions=24),
            {},
            (96, 64),
            "pooling is cls, these weights have no class token",
        ),
        (
            _shape(),
            {},
            (96, 96),
            "the input of 96x96 makes 36 patches, the weights have places for 25",
        ),
    ],
)
def test_a_manifest_that_contradicts_the_tensors_is_refused(
    shape: VitShape, options: dict[str, object], size: tuple[int, int], problem: str
) -> None:
    tensors = VisionTransformer(shape, 3, 5, 96, 64).state_dict()
    with pytest.raises(ConfigurationError, match=problem):
        vit_shape.from_tensors(
            tensors, OptionsTable.model_validate({"heads": 3, **options}), _spec(*size)
        )


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("resnet50", OptionsTable()),
        ("vit", OptionsTable(pooling="gap", width=128, layers=3)),
        ("vit", OptionsTable(width=128, layers=3)),
    ],
)
def test_untrained_networks_of_every_kind_tell_images_apart(
    architecture: str, options: OptionsTable
) -> None:
    from hilum.models.networks import untrained

    spec = _spec(64, 64)
    network = architectures.make(architecture, spec, 4, options)
    untrained.fill(network, spec, 3)
    served = architectures.ServedNetwork(network, spec).eval()
    images = torch.from_numpy(
        np.concatenate([canary.known_image(spec, number) for number in range(8)])
    )
    with torch.no_grad():
        logits = served(images)[0]
    assert logits.std(0).min() > 0.2
    assert logits.abs().max() < 8
