"""The two towers of CLIP (Radford et al., ICML 2021) with the names of OpenAI's checkpoints.

The image tower is served, with the embeddings of a release's prompts beside it. The text tower
makes those embeddings, offline, and is never served.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hilum.models.networks.vit import attend

_EPSILON = 1e-5  # of every normalisation


@dataclass(frozen=True, slots=True)
class ClipTransformerShape:
    """The sizes of one tower's transformer: of a token, of a layer inside, and their numbers."""

    width: int
    layers: int
    hidden: int
    heads: int


@dataclass(frozen=True, slots=True)
class ClipImageShape:
    """The sizes of an image tower. `positions`: one for each patch, and one for the class token."""

    transformer: ClipTransformerShape
    patch: int
    positions: int
    embedding: int


@dataclass(frozen=True, slots=True)
class ClipTextShape:
    """The sizes of a text tower. `context`: most tokens of a text."""

    transformer: ClipTransformerShape
    vocabulary: int
    context: int
    embedding: int


class ClipAttention(nn.Module):
    """(B, tokens, width) → the same; query, key and value in one matrix."""

    def __init__(self, width: int, heads: int, *, is_causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.is_causal = is_causal
        self.in_proj_weight = nn.Parameter(torch.zeros(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Every token looks at every token; in a causal tower, at itself and those before it."""
        packed = nn.functional.linear(x, self.in_proj_weight, self.in_proj_bias)
        projected: Tensor = self.out_proj(attend(packed, self.heads, is_causal=self.is_causal))
        return projected


class ClipMlp(nn.Module):
    """(B, tokens, width) → the same; GELU as x * sigmoid(1.702 x), OpenAI's QuickGELU."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, hidden)
        self.c_proj = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Wide, and narrow again."""
        wide = self.c_fc(x)
        narrow: Tensor = self.c_proj(wide * torch.sigmoid(1.702 * wide))
        return narrow


class ClipBlock(nn.Module):
    """Attention, then two linear layers, each behind a normalisation and added to its input."""

    def __init__(self, shape: ClipTransformerShape, *, is_causal: bool) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(shape.width, eps=_EPSILON)
        self.attn = ClipAttention(shape.width, shape.heads, is_causal=is_causal)
        self.ln_2 = nn.LayerNorm(shape.width, eps=_EPSILON)
        self.mlp = ClipMlp(shape.width, shape.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """(B, tokens, width) → the same."""
        x = x + self.attn(self.ln_1(x))
        added: Tensor = x + self.mlp(self.ln_2(x))
        return added


class ClipTransformer(nn.Module):
    """The blocks of one tower."""

    def __init__(self, shape: ClipTransformerShape, *, is_causal: bool) -> None:
        super().__init__()
        self.resblocks = nn.Sequential(
            *(ClipBlock(shape, is_causal=is_causal) for _ in range(shape.layers))
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, tokens, width) → the same."""
        encoded: Tensor = self.resblocks(x)
        return encoded


class ClipImageTower(nn.Module):
    """(B, channels, H, W) float32, normalised → (B, embedding) of length 1."""

    def __init__(self, shape: ClipImageShape, channels: int) -> None:
        super().__init__()
        width = shape.transformer.width
        self.conv1 = nn.Conv2d(channels, width, shape.patch, stride=shape.patch, bias=False)
        self.class_embedding = nn.Parameter(torch.zeros(width))
        self.positional_embedding = nn.Parameter(torch.zeros(shape.positions, width))
        self.ln_pre = nn.LayerNorm(width, eps=_EPSILON)
        self.transformer = ClipTransformer(shape.transformer, is_causal=False)
        self.ln_post = nn.LayerNorm(width, eps=_EPSILON)
        self.proj = nn.Parameter(torch.zeros(width, shape.embedding))

    def forward(self, x: Tensor) -> Tensor:
        """The class token behind the last block, projected."""
        patches = self.conv1(x).flatten(2).transpose(1, 2)
        token = self.class_embedding.expand(patches.shape[0], 1, -1)
        tokens = torch.cat([token, patches], 1) + self.positional_embedding
        encoded = self.transformer(self.ln_pre(tokens))
        return unit_length(self.ln_post(encoded[:, 0]) @ self.proj)


class ClipTextTower(nn.Module):
    """Token ids (B, at most the context) → (B, embedding) of length 1.

    A text ends with the id that is the largest of the vocabulary, and zeros follow it.
    """

    def __init__(self, shape: ClipTextShape) -> None:
        super().__init__()
        width = shape.transformer.width
        self.shape = shape
        self.token_embedding = nn.Embedding(shape.vocabulary, width)
        self.positional_embedding = nn.Parameter(torch.zeros(shape.context, width))
        self.transformer = ClipTransformer(shape.transformer, is_causal=True)
        self.ln_final = nn.LayerNorm(width, eps=_EPSILON)
        self.text_projection = nn.Parameter(torch.zeros(width, shape.embedding))

    def forward(self, ids: Tensor) -> Tensor:
        """The last token of each text, projected; zeros behind it change nothing."""
        tokens = self.token_embedding(ids) + self.positional_embedding[: ids.shape[1]]
        encoded = self.ln_final(self.transformer(tokens))
        last = encoded[torch.arange(len(ids)), ids.argmax(1)]
        return unit_length(last @ self.text_projection)


class ClipPromptPairs(nn.Module):
    """(B, channels, H, W) float32, normalised → logits (B, outputs), and no maps.

    A logit is the cosine of the image with a finding's positive prompts, less that with its
    negative ones. Its sigmoid is CheXzero's score, the softmax over the two cosines.
    """

    positive_prompts: Tensor
    negative_prompts: Tensor

    def __init__(self, shape: ClipImageShape, channels: int, outputs: int) -> None:
        super().__init__()
        self.visual = ClipImageTower(shape, channels)
        for name in ("positive_prompts", "negative_prompts"):
            self.register_buffer(name, torch.zeros(outputs, shape.embedding))

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        """Return logits; no map is exact behind a class token."""
        image = self.visual(x)
        return image @ self.positive_prompts.T - image @ self.negative_prompts.T, None


def unit_length(vectors: Tensor) -> Tensor:
    """(B, embedding) → the same directions with length 1."""
    shortened: Tensor = vectors / vectors.norm(dim=-1, keepdim=True)
    return shortened
