"""The table of a manifest about the prompts of a zero-shot release, and its rules."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import Field

from hilum.dicom.text import Line
from hilum.models.manifest import label_names
from hilum.models.manifest.labels import FileName, LabelTable, Sha256, StrictTable

MAKERS: Final = frozenset({"clip_vit"})
"""The architectures that are an image tower beside the embeddings of prompts."""
_MOST_LETTERS: Final = 1024
_MOST_PROMPTS: Final = 64  # of one finding and one side


class PinnedFileTable(StrictTable):
    """A file beside the manifest that `hilum models prompts` reads, and the server never."""

    file: FileName = Field(description="Beside the manifest.")
    sha256: Sha256 = Field(description="Of the file.")


class PromptTable(StrictTable):
    """A text, and the tokens that the text tower read."""

    text: str = Field(min_length=1, max_length=_MOST_LETTERS, description="As it was written.")
    tokens: tuple[int, ...] = Field(
        min_length=3, description="With those of its beginning and its end."
    )


class PromptPairTable(StrictTable):
    """The prompts of one output."""

    finding: Line = Field(description="The finding that these prompts ask for.")
    positive: tuple[PromptTable, ...] = Field(
        min_length=1,
        max_length=_MOST_PROMPTS,
        description="The finding is there. Several: the mean of their embeddings.",
    )
    negative: tuple[PromptTable, ...] = Field(
        min_length=1, max_length=_MOST_PROMPTS, description="It is not there."
    )


class PromptsTable(StrictTable):
    """Prompts of a zero-shot release: their embeddings are among its weights.

    `hilum models prompts` writes this table, docs/models/zero_shot.md. Do not edit it: other
    prompts are another version.
    """

    rule: Literal["pair_softmax"] = Field(
        description=(
            "From cosines to a score. `pair_softmax`: softmax over the positive and the negative"
            " cosine, without a scale (CheXzero). The logit is their difference."
        )
    )
    tokenizer: PinnedFileTable = Field(description="The vocabulary of CLIP's BPE tokenizer.")
    text_tower: PinnedFileTable = Field(description="The network that embedded the prompts.")
    sha256: Sha256 = Field(description="Of `pairs`, so that an edit is noticed.")
    pairs: tuple[PromptPairTable, ...] = Field(
        min_length=1, description="One for each output, in the order of the outputs."
    )


def pairs_sha256(pairs: Sequence[Mapping[str, Any]]) -> str:
    """Return the digest of the pairs as they stand in a manifest."""
    text = json.dumps(pairs, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def problems(prompts: PromptsTable, labels: Sequence[LabelTable]) -> Iterator[str]:
    """Yield contradictions in the table, and between it and the labels."""
    written = [pair.model_dump(mode="json") for pair in prompts.pairs]
    if pairs_sha256(written) != prompts.sha256:
        yield (
            "sha256: the pairs are not those that were embedded, so the numbers would belong to"
            " other words; `hilum models prompts` makes a new version for other prompts"
        )
    if len(prompts.pairs) != len(labels):
        yield f"pairs: {len(prompts.pairs)}, but the release has {len(labels)} labels"
        return
    for index, (pair, label) in enumerate(zip(prompts.pairs, labels, strict=True)):
        meant = label_names.concept_of(pair.finding)
        if meant and label.concept and meant != label.concept:
            yield (
                f"pairs.{index}: they ask for {pair.finding!r}, but labels.{index} is"
                f" {label.concept}: labels are in the order of the pairs"
            )
