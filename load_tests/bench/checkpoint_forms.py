"""Checkpoints as their authors save them: tensors by our names → by theirs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

Tensors = Mapping[str, Tensor]

_PLAIN: Final = {
    "cls_token": "vit.embeddings.cls_token",
    "pos_embed": "vit.embeddings.position_embeddings",
    "patch_embed.proj": "vit.embeddings.patch_embeddings.projection",
    "norm": "vit.layernorm",
    "head": "classifier",
}
_INSIDE: Final = {
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "attn.proj": "attention.output.dense",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
}


def as_chexnet(given: Tensors) -> dict[str, object]:
    """As the CheXNet reproductions do.

    DataParallel, wrapped, a sigmoid in the head, torchvision 0.2's names, beside an optimiser.
    """
    old = {
        re.sub(r"(denselayer\d+\.(?:norm|conv))([12])\.", r"\1.\2.", name): tensor
        for name, tensor in given.items()
    }
    wrapped = {
        f"module.densenet121.{name.replace('classifier.', 'classifier.0.')}": tensor
        for name, tensor in old.items()
    }
    return {
        "epoch": 7,
        "best_loss": 0.1,
        "state_dict": wrapped,
        "optimizer": {"state": {0: torch.zeros(2)}},
    }


def as_hugging_face(given: Tensors) -> dict[str, Tensor]:
    """From timm's names to those of transformers' ViTForImageClassification."""
    named: dict[str, Tensor] = {}
    for name, tensor in given.items():
        stem, suffix = (
            (name.rpartition(".")[0], f".{name.rpartition('.')[2]}")
            if name.endswith((".weight", ".bias"))
            else (name, "")
        )
        match = re.match(r"blocks\.(\d+)\.(.+)$", stem)
        if match is None:
            named[f"{_PLAIN[stem]}{suffix}"] = tensor
        elif match[2] == "attn.qkv":
            at = f"vit.encoder.layer.{match[1]}.attention.attention"
            named |= {
                f"{at}.{part}{suffix}": piece.clone()
                for part, piece in zip(("query", "key", "value"), tensor.chunk(3), strict=True)
            }
        else:
            named[f"vit.encoder.layer.{match[1]}.{_INSIDE[match[2]]}{suffix}"] = tensor
    return named
