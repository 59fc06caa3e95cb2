"""CheXzero's checkpoints: CLIP's two towers, the image's served and the text's for the prompts."""

from __future__ import annotations

from typing import Final

import torch

from hilum.errors import ConfigurationError
from hilum.models.importing import outputs
from hilum.models.importing.draft import ImportedDraft
from hilum.models.importing.request import ImportRequest, Tensors, recipe_lines
from hilum.models.networks import checkpoint_names, clip_shape, state_dict
from hilum.models.networks.clip import ClipImageShape, ClipPromptPairs
from hilum.models.zero_shot import clip_bpe, embeddings, prompt_set, prompts_file
from hilum.models.zero_shot.prompt_set import PromptSet

# Of OpenAI's CLIP, and no part of either tower: the score rule has no scale.
_BESIDE: Final = frozenset({"logit_scale", "input_resolution", "context_length", "vocab_size"})
_RECIPES: Final = {224: "chexzero_224", 320: "chexzero_320"}
_CHANNELS: Final = 3
_TOLERANCE: Final = 1e-4
"""Of a logit: cosines are small, and so are their differences."""


def chexzero(request: ImportRequest, given: Tensors) -> ImportedDraft:
    """Return the draft of a CheXzero release, with its prompts embedded."""
    _require_no_choice(request)
    named = checkpoint_names.canonical("clip_vit", given)
    plain = {name: tensor.float() for name, tensor in named.items() if name not in _BESIDE}
    images = {name: each for name, each in plain.items() if name.startswith(clip_shape.IMAGE)}
    texts = {name: each for name, each in plain.items() if name not in images}
    shape = _require_image_tower(images, request.source.name)
    made = _prompts(request, texts, shape)
    findings = [pair.finding for pair in made.pairs]
    return ImportedDraft(
        tensors={**images, **made.embeddings},
        architecture="clip_vit",
        activation="sigmoid",
        label_lines=list(outputs.lines(findings, None)),
        input_lines=recipe_lines(request.recipe or _recipe(shape)),
        manufacturer="CheXzero's authors (public research code)",
        licence="The authors state none for the weights; their code is MIT",
        source=f"{request.source.name}, a checkpoint of github.com/rajpurkarlab/CheXzero",
        citation=(
            "Tiu et al., Expert-level detection of pathologies from unannotated chest X-ray images"
            " via self-supervised learning, Nature Biomedical Engineering 2022"
        ),
        prompts=made,
        tolerance=_TOLERANCE,
    )


def _require_no_choice(request: ImportRequest) -> None:
    if request.labels:
        raise ConfigurationError(
            ["--labels: the prompts name the findings of a zero-shot release; give --prompts"]
        )
    if request.activation not in {None, "sigmoid"}:
        raise ConfigurationError(["--activation: CheXzero's score is the sigmoid of its logit"])
    if request.tokenizer is None:
        raise ConfigurationError(
            [
                (
                    "give --tokenizer, the vocabulary of CLIP's tokenizer:"
                    " bpe_simple_vocab_16e6.txt.gz of github.com/openai/CLIP or of the package"
                    " open-clip-torch"
                )
            ]
        )


def _require_image_tower(images: Tensors, origin: str) -> ClipImageShape:
    """Return the sizes; raise ConfigurationError where a tensor is missing or does not fit."""
    shape = clip_shape.image_shape(images)
    absent = torch.zeros(1, shape.embedding)
    whole = {**images, embeddings.POSITIVE: absent, embeddings.NEGATIVE: absent}
    state_dict.load_into(ClipPromptPairs(shape, _CHANNELS, 1), whole, origin)
    return shape


def _prompts(request: ImportRequest, texts: Tensors, shape: ClipImageShape) -> PromptSet:
    assert request.tokenizer is not None
    if (length := clip_shape.text_shape(texts).embedding) != shape.embedding:
        raise ConfigurationError(
            [
                (
                    f"{request.source.name}: its image tower gives {shape.embedding} numbers, its"
                    f" text tower {length}: they are of two networks"
                )
            ]
        )
    findings = prompts_file.read(request.prompts) if request.prompts else prompts_file.published()
    sha256 = request.tokenizer_sha256 or clip_bpe.PUBLISHED_SHA256
    return prompt_set.make(findings, texts, request.tokenizer, sha256, request.source.name)


def _recipe(shape: ClipImageShape) -> str:
    side = clip_shape.image_side(shape)
    if side not in _RECIPES:
        known = " and ".join(map(str, _RECIPES))
        raise ConfigurationError(
            [f"its positions are for {side} pixels, CheXzero's for {known}: give --recipe"]
        )
    return _RECIPES[side]
