"""Forward passes of CLIP's two towers by torch's own layers, on tensors by OpenAI's names.

What ours are compared with.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from load_tests.zero_shot.checkpoints import (
    HEAD,
    MERGES,
    SMALL_VOCABULARY,
    ClipSizes,
    checkpoint,
    write_vocabulary,
)

__all__ = [
    "MERGES",
    "SMALL_VOCABULARY",
    "ClipSizes",
    "checkpoint",
    "image_forward",
    "text_forward",
    "write_vocabulary",
]

Tensors = Mapping[str, Tensor]


@torch.no_grad()
def image_forward(pixels: Tensor, given: Tensors) -> Tensor:
    """(B, 3, H, W), normalised → (B, embedding) of length 1."""
    kernel = given["visual.conv1.weight"]
    patches = functional.unfold(pixels, kernel.shape[-1], stride=kernel.shape[-1])
    x = patches.transpose(1, 2) @ kernel.flatten(1).T
    x = torch.cat([given["visual.class_embedding"].expand(len(x), 1, -1), x], 1)
    x = _norm(x + given["visual.positional_embedding"], given, "visual.ln_pre")
    x = _encoded(x, given, "visual.transformer", None)
    return functional.normalize(_norm(x[:, 0], given, "visual.ln_post") @ given["visual.proj"])


@torch.no_grad()
def text_forward(ids: Tensor, given: Tensors) -> Tensor:
    """One text without zeros behind it → (1, embedding) of length 1."""
    x = functional.embedding(ids, given["token_embedding.weight"])[None]
    x = x + given["positional_embedding"][: len(ids)]
    mask = nn.Transformer.generate_square_subsequent_mask(len(ids))
    x = _encoded(x, given, "transformer", mask)
    return functional.normalize(_norm(x[:, -1], given, "ln_final") @ given["text_projection"])


def _norm(x: Tensor, given: Tensors, name: str) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], given[f"{name}.weight"], given[f"{name}.bias"])


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def _encoded(x: Tensor, given: Tensors, at: str, mask: Tensor | None) -> Tensor:
    blocks = {name.removeprefix(f"{at}.resblocks.").partition(".")[0] for name in given if name.startswith(f"{at}.resblocks.")}  # fmt: skip
    for number in range(len(blocks)):
        x = _layer(given, f"{at}.resblocks.{number}")(x, src_mask=mask)
    return x


def _layer(given: Tensors, at: str) -> nn.Module:
    hidden, width = given[f"{at}.mlp.c_fc.weight"].shape
    layer = nn.TransformerEncoderLayer(
        width, width // HEAD, hidden, 0.0, _quick_gelu, batch_first=True, norm_first=True
    )
    theirs = {
        "self_attn.in_proj_": "attn.in_proj_",
        "self_attn.out_proj.": "attn.out_proj.",
        "linear1.": "mlp.c_fc.",
        "linear2.": "mlp.c_proj.",
        "norm1.": "ln_1.",
        "norm2.": "ln_2.",
    }
    layer.load_state_dict(
        {
            f"{a}{part}": given[f"{at}.{b}{part}"]
            for a, b in theirs.items()
            for part in ("weight", "bias")
        }
    )
    return layer.eval()
