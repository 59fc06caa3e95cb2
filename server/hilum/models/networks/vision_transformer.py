"""ViT-B/16 (Dosovitskiy et al., ICLR 2021), with the parameter names of torchvision."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

PATCH: Final = 16
WIDTH: Final = 768
HEADS: Final = 12
LAYERS: Final = 12
HIDDEN: Final = 3072
NORM_EPSILON: Final = 1e-6


class SelfAttention(nn.Module):
    """(B, tokens, 768) → (B, tokens, 768).

    The parameters of torch's MultiheadAttention, without its alternative paths.
    """

    def __init__(self) -> None:
        super().__init__()
        self.in_proj_weight = nn.Parameter(torch.zeros(3 * WIDTH, WIDTH))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * WIDTH))
        self.out_proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Every token looks at every token."""
        tokens = x.shape[1]
        packed = functional.linear(x, self.in_proj_weight, self.in_proj_bias)
        query, key, value = (
            part.reshape(-1, tokens, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in packed.chunk(3, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value)
        projected: Tensor = self.out_proj(mixed.transpose(1, 2).reshape(-1, tokens, WIDTH))
        return projected


class EncoderLayer(nn.Module):
    """Attention, then two linear layers, each added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH, eps=NORM_EPSILON)
        self.self_attention = SelfAttention()
        self.ln_2 = nn.LayerNorm(WIDTH, eps=NORM_EPSILON)
        # torchvision numbers its linear layers 0 and 3: dropout, which does nothing in use, stands
        # between and after.
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Identity(), nn.Linear(HIDDEN, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, tokens, 768) → the same."""
        x = x + self.self_attention(self.ln_1(x))
        added: Tensor = x + self.mlp(self.ln_2(x))
        return added


class Encoder(nn.Module):
    """Adds the position of each token, then twelve layers."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.zeros(1, tokens, WIDTH))
        self.layers = nn.Sequential(
            OrderedDict((f"encoder_layer_{i}", EncoderLayer()) for i in range(LAYERS))
        )
        self.ln = nn.LayerNorm(WIDTH, eps=NORM_EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        """(B, tokens, 768) → the same."""
        encoded: Tensor = self.ln(self.layers(x + self.pos_embedding))
        return encoded


class VisionTransformerB16(nn.Module):
    """(B, channels, H, W) float32, normalised → logits (B, outputs).

    No class activation map is exact for a class token.
    """

    def __init__(self, channels: int, outputs: int, height: int, width: int) -> None:
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.conv_proj = nn.Conv2d(channels, WIDTH, PATCH, stride=PATCH)
        self.encoder = Encoder((height // PATCH) * (width // PATCH) + 1)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(WIDTH, outputs)))

    @property
    def head(self) -> nn.Linear:
        """The linear layer that reads what `represent` gives."""
        head = self.heads.head
        assert isinstance(head, nn.Linear)
        return head

    def represent(self, x: Tensor) -> Tensor:
        """(B, channels, H, W) → (B, 768), the class token after the last layer."""
        patches = self.conv_proj(x).flatten(2).transpose(1, 2)
        token = self.class_token.expand(x.shape[0], -1, -1)
        encoded: Tensor = self.encoder(torch.cat([token, patches], dim=1))
        return encoded[:, 0]

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        """Logits alone."""
        return self.head(self.represent(x)), None
