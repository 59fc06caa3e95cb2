"""The user's choices for an import, and the tensors that each kind of checkpoint must have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from hilum.errors import ConfigurationError

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """The user's choices.

    None: the default of the checkpoint's kind. The last three are for zero-shot kinds: a file of
    prompts, the vocabulary of the tokenizer, and its digest where it is not the published one.
    """

    source: Path
    labels: str | None = None
    recipe: str | None = None
    activation: str | None = None
    published: str | None = None
    prompts: Path | None = None
    tokenizer: Path | None = None
    tokenizer_sha256: str | None = None


def size_of(tensors: Tensors, name: str, axis: int) -> int:
    """Return the size of one axis of a tensor.

    Raises ConfigurationError where a classifier of this family would have the tensor and the file
    lacks it.
    """
    if name not in tensors or tensors[name].dim() <= axis:
        raise ConfigurationError([f"it lacks {name}: no classifier of this family"])
    return tensors[name].shape[axis]


def recipe_lines(name: str) -> list[str]:
    """Return the lines of the table `input`, with a link to the other recipes."""
    return [
        (
            f'recipe = "{name}" # EDIT: how the images were prepared that the network was'
            " trained on; docs/models/recipes.md"
        )
    ]
