"""Vision transformers: sizes come from the tensors, the rest from the files beside them."""

from __future__ import annotations

import math

from hilum.errors import ConfigurationError
from hilum.models.formats.toml import quoted
from hilum.models.importing import outputs, vit_files
from hilum.models.importing.asked import ImportRequest, Tensors, recipe_lines, size_of
from hilum.models.importing.draft import ImportedDraft
from hilum.models.networks import checkpoint_names, vit_shape


def vit(asked: ImportRequest, given: Tensors) -> ImportedDraft:
    """Return the draft of a ViT with the names of timm or of Hugging Face."""
    tensors = checkpoint_names.canonical("vit", given)
    beside = vit_files.read(asked.source.parent)
    if lacking := [
        *vit_shape.missing(tensors),
        *([] if "head.weight" in tensors else ["head.weight"]),
    ]:
        raise ConfigurationError(
            [f"no classifying vision transformer: it lacks {', '.join(lacking)}"]
        )
    width, channels, patch, _ = tensors["patch_embed.proj.weight"].shape
    side = _side(tensors, patch)
    norm = "pooled" if "fc_norm.weight" in tensors else "tokens"
    pooling = beside.pooling or ("cls" if "cls_token" in tensors and norm == "tokens" else "gap")
    epsilon = beside.epsilon or (1e-12 if checkpoint_names.is_hugging_face(given) else 1e-6)
    options = {
        "pooling": (
            quoted(pooling)
            + ("" if beside.pooling else " # EDIT: cls or gap; no config.json said it")
        ),
        "norm": quoted(norm),
        "patch": str(patch),
        "heads": str(beside.heads or width // vit_shape.HEAD_WIDTH),
        "epsilon": f"{epsilon:g}",
    }
    return ImportedDraft(
        tensors=tensors,
        architecture="vit",
        activation=asked.activation or beside.activation or "sigmoid",
        label_lines=list(
            outputs.lines(
                outputs.names(asked.labels, beside.labels, size_of(tensors, "head.weight", 0)), None
            )
        ),
        input_lines=(
            recipe_lines(asked.recipe) if asked.recipe else _described(beside, side, channels)
        ),
        manufacturer="unknown",
        licence="unknown",
        source=f"{asked.source.name}, a vision transformer with the names of {_family(given)}",
        options=options,
        remarks=(
            (
                (
                    "EDIT activation below, if the network was not trained with a sigmoid for each"
                    " output."
                ),
            )
            if not beside.activation
            else ()
        ),
        max_batch=8,
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


def _described(beside: vit_files.Beside, side: int, channels: int) -> list[str]:
    if not beside.mean:
        advice = (
            "give --recipe, or put preprocessor_config.json (Hugging Face) or config.json (timm)"
            " beside the file"
        )
        raise ConfigurationError(
            [f"nothing says how images were prepared for this network: {advice}"]
        )
    return list(vit_files.input_lines(beside, side, channels))
