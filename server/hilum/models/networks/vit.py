"""Vision transformers of any size (Dosovitskiy et al., ICLR 2021), with timm's names.

Checkpoints of Hugging Face and torchvision are renamed to these (`checkpoint_names`).
`VitShape` has the sizes that tensors do not give.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class VitShape:
    """The sizes of a vision transformer.

    `norm` tokens: the last normalisation is before the pooling; pooled: behind it (timm's
    `fc_norm`).

    `positions` is the length of the position table: one for each patch, and one for the class token
    where it has one.
    """

    width: int
    layers: int
    heads: int
    hidden: int
    patch: int
    positions: int
    pooling: Literal["cls", "gap"]
    norm: Literal["tokens", "pooled"]
    epsilon: float
    has_class_token: bool

    @property
    def has_cam(self) -> bool:
        """Mean and head are linear, so maps of tokens are exact.

        A normalisation between them divides by a number of the whole image.
        """
        return self.pooling == "gap" and self.norm == "tokens"


class Attention(nn.Module):
    """(B, tokens, width) → the same; query, key and value in one matrix."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Every token looks at every token."""
        projected: Tensor = self.proj(attend(self.qkv(x), self.heads))
        return projected


def attend(packed: Tensor, heads: int, *, is_causal: bool = False) -> Tensor:
    """(B, tokens, 3 width) of queries, keys and values → (B, tokens, width).

    Causal: a token looks at itself and at those before it.
    """
    _, tokens, width = packed.shape
    query, key, value = (
        part.reshape(-1, tokens, heads, width // 3 // heads).transpose(1, 2)
        for part in packed.chunk(3, -1)
    )
    mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=is_causal)
    return mixed.transpose(1, 2).reshape(-1, tokens, width // 3)


class Mlp(nn.Module):
    """(B, tokens, width) → the same; GELU by the error function, not by tanh."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Wide, and narrow again."""
        narrow: Tensor = self.fc2(functional.gelu(self.fc1(x)))
        return narrow


class Block(nn.Module):
    """Attention, then two linear layers, each behind a normalisation and added to its input."""

    def __init__(self, shape: VitShape) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.attn = Attention(shape.width, shape.heads)
        self.norm2 = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.mlp = Mlp(shape.width, shape.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """(B, tokens, width) → the same."""
        x = x + self.attn(self.norm1(x))
        added: Tensor = x + self.mlp(self.norm2(x))
        return added


class PatchEmbedding(nn.Module):
    """(B, channels, H, W) → (B, H / patch * W / patch, width), row by row."""

    def __init__(self, channels: int, width: int, patch: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, width, patch, stride=patch)

    def forward(self, x: Tensor) -> Tensor:
        """A patch becomes a token."""
        tokens: Tensor = self.proj(x).flatten(2).transpose(1, 2)
        return tokens


class VisionTransformer(nn.Module):
    """(B, channels, H, W) float32, normalised → logits (B, outputs) and, where exact, maps.

    Maps are (B, outputs, H / patch, W / patch).
    """

    def __init__(
        self, shape: VitShape, channels: int, outputs: int, height: int, width: int
    ) -> None:
        super().__init__()
        self.shape = shape
        self.grid = (height // shape.patch, width // shape.patch)
        if shape.has_class_token:
            self.cls_token = nn.Parameter(torch.zeros(1, 1, shape.width))
        self.pos_embed = nn.Parameter(torch.zeros(1, shape.positions, shape.width))
        self.patch_embed = PatchEmbedding(channels, shape.width, shape.patch)
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.layers)))
        last = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.norm = last if shape.norm == "tokens" else nn.Identity()
        self.fc_norm = last if shape.norm == "pooled" else nn.Identity()
        self.head = nn.Linear(shape.width, outputs)

    def tokens(self, x: Tensor) -> Tensor:
        """(B, channels, H, W) → (B, tokens, width) after the last block.

        The last normalisation is included where it comes before the pooling.
        """
        encoded: Tensor = self.norm(self.blocks(self._embed(self.patch_embed(x))))
        return encoded

    def _embed(self, patches: Tensor) -> Tensor:
        """Add positions; those of patches alone come before the class token (`no_embed_class`)."""
        if not self.shape.has_class_token:
            return patches + self.pos_embed
        token = self.cls_token.expand(patches.shape[0], -1, -1)
        if self.shape.positions == self.grid[0] * self.grid[1]:
            return torch.cat([token, patches + self.pos_embed], 1)
        return torch.cat([token, patches], 1) + self.pos_embed

    def represent(self, x: Tensor) -> Tensor:
        """(B, channels, H, W) → (B, width)."""
        return self._pool(self.tokens(x))

    def _patches(self, tokens: Tensor) -> Tensor:
        return tokens[:, 1:] if self.shape.has_class_token else tokens

    def _pool(self, tokens: Tensor) -> Tensor:
        pooled = tokens[:, 0] if self.shape.pooling == "cls" else self._patches(tokens).mean(1)
        normalised: Tensor = self.fc_norm(pooled)
        return normalised

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return logits and maps: mean of a map + bias = logit.

        Mean and head are linear and adjacent.
        """
        tokens = self.tokens(x)
        logits = self.head(self._pool(tokens))
        if not self.shape.has_cam:
            return logits, None
        cam = torch.einsum("ok,btk->bot", self.head.weight, self._patches(tokens))
        return logits, cam.reshape(-1, logits.shape[1], *self.grid)
