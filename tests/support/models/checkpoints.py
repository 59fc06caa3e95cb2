"""Forward passes written from the papers, on tensors by their authors' names.

What ours are compared with.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from load_tests.bench.checkpoint_forms import as_chexnet, as_hugging_face

__all__ = [
    "as_chexnet",
    "as_hugging_face",
    "densenet_forward",
    "randomised",
    "resnet_forward",
    "vit_forward",
]

Tensors = Mapping[str, Tensor]


def randomised(network: nn.Module, seed: int = 0) -> nn.Module:
    """In evaluation mode, with statistics and biases that are neither 0 nor 1, so that none may be forgotten."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if name.endswith("num_batches_tracked"):
                continue
            if name.endswith("running_var"):
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
            elif tensor.dim() <= 1 and name.endswith("weight"):
                tensor.copy_(torch.rand(tensor.shape, generator=generator) * 0.5 + 0.5)
            elif tensor.dim() <= 1:
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.1)
            else:
                fan_in = max(1, tensor[0].numel()) if tensor.dim() != 3 else 25
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * fan_in**-0.5)
    return network.eval()


def densenet_forward(x: Tensor, given: Tensors) -> Tensor:
    """(B, C, H, W) → (B, L): DenseNet-BC of Huang et al. 2017, by torchvision's names."""

    def norm(x: Tensor, name: str) -> Tensor:
        parts = (
            given[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return functional.batch_norm(x, *parts, training=False, eps=1e-5)

    x = functional.conv2d(x, given["features.conv0.weight"], stride=2, padding=3)
    x = functional.max_pool2d(functional.relu(norm(x, "features.norm0")), 3, 2, 1)
    for block, layers in enumerate((6, 12, 24, 16), start=1):
        for layer in range(1, layers + 1):
            at = f"features.denseblock{block}.denselayer{layer}"
            new = functional.conv2d(
                functional.relu(norm(x, f"{at}.norm1")), given[f"{at}.conv1.weight"]
            )
            new = functional.conv2d(
                functional.relu(norm(new, f"{at}.norm2")), given[f"{at}.conv2.weight"], padding=1
            )
            x = torch.cat((x, new), dim=1)
        if block < 4:
            at = f"features.transition{block}"
            x = functional.conv2d(
                functional.relu(norm(x, f"{at}.norm")), given[f"{at}.conv.weight"]
            )
            x = functional.avg_pool2d(x, 2)
    x = functional.relu(norm(x, "features.norm5"))
    x = functional.adaptive_avg_pool2d(x, 1).flatten(1)
    return functional.linear(x, given["classifier.weight"], given["classifier.bias"])


def resnet_forward(x: Tensor, given: Tensors) -> Tensor:
    """(B, C, H, W) → (B, L): ResNet-50 of He et al.

    2016 with the stride in the 3 x 3 convolution, by torchvision's names.
    """

    def conv_norm(x: Tensor, conv: str, norm: str, stride: int = 1, padding: int = 0) -> Tensor:
        parts = (
            given[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return functional.batch_norm(
            functional.conv2d(x, given[f"{conv}.weight"], None, stride, padding),
            *parts,
            training=False,
            eps=1e-5,
        )

    x = functional.max_pool2d(functional.relu(conv_norm(x, "conv1", "bn1", 2, 3)), 3, 2, 1)
    for stage, blocks in enumerate((3, 4, 6, 3), start=1):
        for block in range(blocks):
            at, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            kept = (
                conv_norm(x, f"{at}.downsample.0", f"{at}.downsample.1", stride)
                if block == 0
                else x
            )
            y = functional.relu(conv_norm(x, f"{at}.conv1", f"{at}.bn1"))
            y = functional.relu(conv_norm(y, f"{at}.conv2", f"{at}.bn2", stride, 1))
            x = functional.relu(conv_norm(y, f"{at}.conv3", f"{at}.bn3") + kept)
    return functional.linear(
        functional.adaptive_avg_pool2d(x, 1).flatten(1), given["fc.weight"], given["fc.bias"]
    )


def vit_forward(
    x: Tensor, given: Tensors, heads: int, epsilon: float, pooling: str = "cls"
) -> Tensor:
    """(B, C, H, W) → (B, L): the encoder of Dosovitskiy et al.

    2021 by torch's own TransformerEncoderLayer, from timm's names.
    """
    patch = given["patch_embed.proj.weight"].shape[-1]
    x = (
        functional.conv2d(
            x, given["patch_embed.proj.weight"], given["patch_embed.proj.bias"], stride=patch
        )
        .flatten(2)
        .transpose(1, 2)
    )
    if "cls_token" in given and given["pos_embed"].shape[1] == x.shape[1]:
        x = torch.cat((given["cls_token"].expand(len(x), -1, -1), x + given["pos_embed"]), 1)
    elif "cls_token" in given:
        x = torch.cat((given["cls_token"].expand(len(x), -1, -1), x), 1) + given["pos_embed"]
    else:
        x = x + given["pos_embed"]
    for number in range(len({name.split(".")[1] for name in given if name.startswith("blocks.")})):
        x = _encoder_layer(given, f"blocks.{number}", heads, epsilon)(x)
    norm = "norm" if "norm.weight" in given else "fc_norm"

    def last(x: Tensor) -> Tensor:
        return functional.layer_norm(
            x, x.shape[-1:], given[f"{norm}.weight"], given[f"{norm}.bias"], epsilon
        )

    x = last(x) if norm == "norm" else x
    x = x[:, 0] if pooling == "cls" else x[:, int("cls_token" in given) :].mean(1)
    return functional.linear(
        x if norm == "norm" else last(x), given["head.weight"], given["head.bias"]
    )


def _encoder_layer(given: Tensors, at: str, heads: int, epsilon: float) -> nn.Module:
    hidden, width = given[f"{at}.mlp.fc1.weight"].shape
    layer = nn.TransformerEncoderLayer(
        width, heads, hidden, 0.0, "gelu", epsilon, batch_first=True, norm_first=True
    )
    theirs = {
        "self_attn.in_proj_": "attn.qkv.",
        "self_attn.out_proj.": "attn.proj.",
        "linear1.": "mlp.fc1.",
        "linear2.": "mlp.fc2.",
        "norm1.": "norm1.",
        "norm2.": "norm2.",
    }
    layer.load_state_dict(
        {
            f"{a}{part}": given[f"{at}.{b}{part}"]
            for a, b in theirs.items()
            for part in ("weight", "bias")
        }
    )
    return layer.eval()
