"""Class activation maps: exact where they are served, equal to Grad-CAM on the map that is pooled, and checked by their sum."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from hilum.errors import ConfigurationError
from hilum.models.known_answers import canary, exact_maps
from hilum.models.networks.densenet import DenseNet121
from hilum.models.networks.resnet import ResNet50
from hilum.models.networks.vit import VisionTransformer, VitShape
from tests.support.models.checkpoints import randomised

IMAGES = torch.randn(3, 1, 96, 64, generator=torch.Generator().manual_seed(9))


def _vit(pooling: str, norm: str) -> VisionTransformer:
    shape = VitShape(64, 2, 2, 128, 16, 25, pooling, norm, 1e-6, has_class_token=True)  # type: ignore[arg-type]  # from parameters
    return VisionTransformer(shape, 1, 4, 96, 64)


def _grad_cam(pooled: Tensor, logits: Tensor) -> Tensor:
    """(B, C, h, w) and its logits → (B, L, h, w), Selvaraju et al.

    2017 without the last ReLU: the map weighted by its mean gradients.
    """
    maps = []
    for label in range(logits.shape[1]):
        (gradient,) = torch.autograd.grad(logits[:, label].sum(), pooled, retain_graph=True)
        maps.append((gradient.mean((2, 3), keepdim=True) * pooled).sum(1))
    return torch.stack(maps, 1)


def _relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize(
    "network", [DenseNet121(1, 4, 96, 64), ResNet50(1, 4)], ids=["densenet121", "resnet50"]
)
def test_the_map_is_grad_cam_on_the_map_that_is_pooled(network: DenseNet121 | ResNet50) -> None:
    randomised(network)
    maps = (
        network.maps(IMAGES)
        if isinstance(network, ResNet50)
        else functional.relu(network.features(IMAGES))
    )
    pooled = maps.detach().requires_grad_()
    logits = network.head(pooled.mean((2, 3)))
    cells = pooled.shape[2] * pooled.shape[3]
    with torch.no_grad():
        ours = network(IMAGES)[1]
    assert ours.shape == (3, 4, 3, 2)
    assert _relative(ours / cells, _grad_cam(pooled, logits).detach()) < 1e-5


def test_the_map_of_a_mean_of_tokens_is_grad_cam_on_the_tokens() -> None:
    network = _vit("gap", "tokens")
    randomised(network)
    tokens = (
        network.tokens(IMAGES)[:, 1:].detach().transpose(1, 2).unflatten(2, (6, 4)).requires_grad_()
    )
    logits = network.head(tokens.mean((2, 3)))
    with torch.no_grad():
        ours = network(IMAGES)[1]
    assert ours is not None
    assert _relative(ours / 24, _grad_cam(tokens, logits).detach()) < 1e-5


@pytest.mark.parametrize(
    "network",
    [DenseNet121(1, 4, 96, 64), ResNet50(1, 4), _vit("gap", "tokens")],
    ids=["densenet121", "resnet50", "vit"],
)
def test_mean_of_the_map_and_bias_make_the_logit(
    network: DenseNet121 | ResNet50 | VisionTransformer,
) -> None:
    randomised(network)
    with torch.no_grad():
        logits, cam = network(IMAGES)
    assert cam is not None
    torch.testing.assert_close(cam.mean((2, 3)) + network.head.bias, logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("pooling", "norm"), [("cls", "tokens"), ("gap", "pooled"), ("cls", "pooled")]
)
def test_where_no_map_is_exact_there_is_none(pooling: str, norm: str) -> None:
    with torch.no_grad():
        assert _vit(pooling, norm)(IMAGES)[1] is None


def test_a_normalisation_behind_the_mean_is_not_linear() -> None:
    """Why such a network has no map.

    The head's answers for single tokens do not add up to its answer for their mean.
    """
    network = _vit("gap", "pooled")
    randomised(network)
    with torch.no_grad():
        tokens = network.tokens(IMAGES)[:, 1:]
        each = (
            functional.linear(network.fc_norm(tokens), network.head.weight).mean(1)
            + network.head.bias
        )
        assert (each - network(IMAGES)[0]).abs().max() > 0.05


def _outputs(
    count: int = 4, bias: tuple[float, ...] = (0.5, -1.0)
) -> tuple[np.ndarray, np.ndarray]:
    cam = np.random.default_rng(3).normal(0, 3, (count, 2, 7, 7)).astype(np.float16)
    logits = cam.astype(np.float32).mean((2, 3)) + np.array(bias, np.float32)
    return logits, cam


def test_the_bias_is_measured_and_the_rule_holds_for_other_images() -> None:
    logits, cam = _outputs()
    bias = exact_maps.bias(logits[:3], cam[:3], 1e-3)
    assert np.abs(bias - (0.5, -1.0)).max() < 1e-5
    assert exact_maps.broken_rule(logits[3:], cam[3:], bias, 1e-3) is None


def test_maps_that_are_not_exact_are_refused() -> None:
    logits, cam = _outputs()
    with pytest.raises(
        ConfigurationError, match=r"these maps are not exact; set model\.cam = false"
    ):
        exact_maps.bias(logits, np.maximum(cam, 0), 1e-3)
    with pytest.raises(ConfigurationError, match="the network puts none out"):
        exact_maps.bias(logits, None, 1e-3)


def test_a_canary_says_which_logit_its_map_does_not_give() -> None:
    logits, cam = _outputs(1)
    known = canary.Canary(np.zeros(1), logits, 2e-3, cam_bias=np.array([0.5, -1.0], np.float32))
    assert known.broken_maps(logits, cam) is None
    assert "differs from logit 1 by 0.5" in str(
        known.broken_maps(logits + np.array([0, 0.5], np.float32), cam)
    )
    assert "maps are None for logits (1, 2)" in str(known.broken_maps(logits, None))
    assert "maps are (1, 1, 7, 7)" in str(known.broken_maps(logits, cam[:, :1]))
    not_a_number = cam.copy()
    not_a_number[0, 0, 0, 0] = np.nan
    assert known.broken_maps(logits, not_a_number) is not None


def test_without_maps_there_is_nothing_to_check() -> None:
    assert (
        canary.Canary(np.zeros(1), np.zeros((1, 2)), 2e-3).broken_maps(np.zeros((1, 2)), None)
        is None
    )
