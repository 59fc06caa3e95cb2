"""What the user said of a checkpoint, and what every kind of checkpoint needs of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from hilum.errors import ConfigurationError

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """What the user said. None: what the kind takes by itself."""

    source: Path
    labels: str | None = None
    recipe: str | None = None
    activation: str | None = None
    published: str | None = None


def size_of(tensors: Tensors, name: str, axis: int) -> int:
    """Of one axis of a tensor that a classifier of this family has. Raises ConfigurationError."""
    if name not in tensors or tensors[name].dim() <= axis:
        raise ConfigurationError([f"it lacks {name}: no classifier of this family"])
    return tensors[name].shape[axis]


def recipe_lines(name: str) -> list[str]:
    """The table `input`, with the way to the others."""
    return [
        (
            f'recipe = "{name}" # EDIT: how the images were prepared that the network was trained on;'
            " docs/models/recipes.md"
        )
    ]
