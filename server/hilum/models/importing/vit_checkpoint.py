"""Vision transformers: sizes come from the tensors, the rest from the files beside them."""

from __future__ import annotations

import math
from typing import Final

from hilum.errors import ConfigurationError
from hilum.models.importing import outputs, vit_files
from hilum.models.importing.draft import ImportedDraft
from hilum.models.importing.request import ImportRequest, Tensors, recipe_lines, size_of
from hilum.models.networks import checkpoint_names, vit_shape
from hilum.toml import quoted

_GUESSED_ACTIVATION: Final = (
    "EDIT activation below, if the network was not trained with a sigmoid for each output."
)


def vit(request: ImportRequest, given: Tensors) -> ImportedDraft:
    """Return the draft of a ViT with the names of timm or of Hugging Face."""
    tensors = _complete(checkpoint_names.canonical("vit", given))
    side_files = vit_files.read(request.source.parent)
    count = size_of(tensors, "head.weight", 0)
    names = outputs.names(request.labels, side_files.labels, count)
    return ImportedDraft(
        tensors=tensors,
        architecture="vit",
        activation=request.activation or side_files.activation or "sigmoid",
        label_lines=list(outputs.lines(names, None)),
        input_lines=_input_lines(request, side_files, tensors),
        manufacturer="unknown",
        licence="unknown",
        source=f"{request.source.name}, a vision transformer with the names of {_family(given)}",
        options=_options(side_files, tensors, given),
        remarks=() if side_files.activation else (_GUESSED_ACTIVATION,),
        max_batch=8,
    )


def _complete(tensors: Tensors) -> Tensors:
    """Return the tensors of a classifying vision transformer; raise where one is missing."""
    head = [] if "head.weight" in tensors else ["head.weight"]
    if lacking := [*vit_shape.missing(tensors), *head]:
        raise ConfigurationError(
            [f"no classifying vision transformer: it lacks {', '.join(lacking)}"]
        )
    return tensors


def _options(side_files: vit_files.SideFiles, tensors: Tensors, given: Tensors) -> dict[str, str]:
    width, _, patch, _ = tensors["patch_embed.proj.weight"].shape
    norm = "pooled" if "fc_norm.weight" in tensors else "tokens"
    guess = "cls" if "cls_token" in tensors and norm == "tokens" else "gap"
    remark = "" if side_files.pooling else " # EDIT: cls or gap; no config.json said it"
    usual_epsilon = 1e-12 if checkpoint_names.is_hugging_face(given) else 1e-6
    return {
        "pooling": f"{quoted(side_files.pooling or guess)}{remark}",
        "norm": quoted(norm),
        "patch": str(patch),
        "heads": str(side_files.heads or width // vit_shape.HEAD_WIDTH),
        "epsilon": f"{side_files.epsilon or usual_epsilon:g}",
    }


def _input_lines(
    request: ImportRequest, side_files: vit_files.SideFiles, tensors: Tensors
) -> list[str]:
    _, channels, patch, _ = tensors["patch_embed.proj.weight"].shape
    side = _side(tensors, patch)
    return (
        recipe_lines(request.recipe) if request.recipe else _described(side_files, side, channels)
    )


def _family(given: Tensors) -> str:
    return "Hugging Face" if checkpoint_names.is_hugging_face(given) else "timm"


def _side(tensors: Tensors, patch: int) -> int:
    """Return the pixels of the square side that the position table was trained on."""
    places = tensors["pos_embed"].shape[1]
    for patches in (places - ("cls_token" in tensors), places):
        if math.isqrt(patches) ** 2 == patches:
            return math.isqrt(patches) * patch
    raise ConfigurationError(
        [f"the position table has {places} places, which no square of patches makes"]
    )


def _described(side_files: vit_files.SideFiles, side: int, channels: int) -> list[str]:
    if not side_files.mean:
        advice = (
            "give --recipe, or put preprocessor_config.json (Hugging Face) or config.json (timm)"
            " beside the file"
        )
        raise ConfigurationError(
            [f"nothing says how images were prepared for this network: {advice}"]
        )
    return list(vit_files.input_lines(side_files, side, channels))
