"""Tensors in the safetensors format (github.com/huggingface/safetensors).

It can hold nothing but numbers, which is why it is the only form of weights that a builder reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from hilum.errors import ConfigurationError


def read(path: Path) -> dict[str, Tensor]:
    """Tensors by name. Raises ConfigurationError when the file is damaged or something else."""
    try:
        return load_file(path)
    except OSError as error:
        raise ConfigurationError([f"{path}: {error.strerror or error}"]) from error
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise ConfigurationError([f"{path}: not a readable safetensors file: {error}"]) from error


def write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """The same bytes for the same tensors, also for views and those that share memory.

    Raises ConfigurationError where the disk takes no more.
    """
    own = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(own, path)
    except SafetensorError as error:
        raise ConfigurationError([f"{path}: not written: {error}"]) from error
