"""From prompts to embeddings: the text tower, run once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch
from torch import Tensor

from hilum.errors import ConfigurationError
from hilum.models.manifest.prompts import PromptPairTable, PromptTable
from hilum.models.networks import clip_shape, state_dict
from hilum.models.networks.clip import ClipTextTower, unit_length
from hilum.models.zero_shot.clip_bpe import ClipBpe
from hilum.models.zero_shot.prompts_file import FindingPrompts

POSITIVE: Final = "positive_prompts"
NEGATIVE: Final = "negative_prompts"
"""The tensors of a release's weights that hold the embeddings, (outputs, embedding)."""
_BATCH: Final = 32


def text_tower(tensors: Mapping[str, Tensor], origin: str) -> ClipTextTower:
    """Return the text tower of these weights.

    Raises ConfigurationError that names each tensor that is missing, unknown, or misshapen.
    """
    tower = ClipTextTower(clip_shape.text_shape(tensors))
    state_dict.load_into(tower, tensors, origin)
    return tower


def tokenised(
    findings: Sequence[FindingPrompts], tokenizer: ClipBpe, context: int
) -> tuple[PromptPairTable, ...]:
    """Return the prompts with their tokens.

    Raises ConfigurationError that names every prompt longer than the context.
    """
    pairs = tuple(
        PromptPairTable(
            finding=each.finding,
            positive=_with_tokens(each.positive, tokenizer),
            negative=_with_tokens(each.negative, tokenizer),
        )
        for each in findings
    )
    too_long = [
        f"prompt {prompt.text!r} of {pair.finding!r} has {len(prompt.tokens)} tokens, the network"
        f" reads {context} at most: shorten it"
        for pair in pairs
        for prompt in (*pair.positive, *pair.negative)
        if len(prompt.tokens) > context
    ]
    if too_long:
        raise ConfigurationError(too_long)
    return pairs


def _with_tokens(texts: Sequence[str], tokenizer: ClipBpe) -> tuple[PromptTable, ...]:
    return tuple(PromptTable(text=text, tokens=tokenizer.tokens(text)) for text in texts)


def embedded(pairs: Sequence[PromptPairTable], tower: ClipTextTower) -> dict[str, Tensor]:
    """Return the two tensors of embeddings, (outputs, embedding), each row of length 1.

    Several prompts of a side: their embeddings of length 1 are averaged, then brought to length 1.
    """
    sides: Mapping[str, Callable[[PromptPairTable], Sequence[PromptTable]]] = {
        POSITIVE: lambda pair: pair.positive,
        NEGATIVE: lambda pair: pair.negative,
    }
    return {
        name: torch.stack([_mean(side(pair), tower) for pair in pairs])
        for name, side in sides.items()
    }


@torch.no_grad()
def _mean(prompts: Sequence[PromptTable], tower: ClipTextTower) -> Tensor:
    ids = torch.zeros(len(prompts), tower.shape.context, dtype=torch.long)
    for row, prompt in zip(ids, prompts, strict=True):
        row[: len(prompt.tokens)] = torch.tensor(prompt.tokens)
    rows = torch.cat([tower(part) for part in torch.split(ids, _BATCH)])
    return unit_length(rows.mean(0))
