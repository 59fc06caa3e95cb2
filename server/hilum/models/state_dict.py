"""Weights that a user brings: safetensors, or a torch file of tensors alone. Read when building, never by the server."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final

import torch
from torch import Tensor, nn

from hilum.errors import ConfigurationError

_TYPES: Final = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}
# torchvision before 0.3 wrote "norm.1" and "conv.2"; the CheXNet checkpoints still have it.
_OLD_DENSENET: Final = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12])\.")


def load_into(network: nn.Module, path: Path) -> None:
    """Set the network's weights from the file. Raises ConfigurationError that names what does not fit."""
    given = {_name(name): tensor for name, tensor in _read(path).items()}
    own = network.state_dict()
    needed = {name for name in own if not name.endswith("num_batches_tracked")}
    problems = [f"{path.name} lacks {name}" for name in sorted(needed - set(given))]
    problems += [f"{path.name} has {name}, which the architecture does not" for name in sorted(set(given) - set(own))]
    problems += [
        f"{path.name}: {name} is {tuple(given[name].shape)}, the architecture needs {tuple(own[name].shape)}"
        for name in sorted(needed & set(given))
        if given[name].shape != own[name].shape
    ]
    if problems:
        more = [f"… and {len(problems) - 8} more"] if len(problems) > 8 else []
        raise ConfigurationError(problems[:8] + more)
    network.load_state_dict(given, strict=False)
    network.eval()


def _name(name: str) -> str:
    return _OLD_DENSENET.sub(r"\1\2.", name.removeprefix("module."))


def _read(path: Path) -> Mapping[str, Tensor]:
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    try:
        # weights_only: tensors and nothing that runs code.
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, OSError, ValueError, EOFError, UnpicklingError) as error:
        raise ConfigurationError([f"{path}: not a torch file of tensors alone: {error}"]) from error
    content = content.get("state_dict", content) if isinstance(content, Mapping) else content
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ConfigurationError([f"{path}: holds no state dictionary; save `model.state_dict()`, not the model"])
    return content


def _read_safetensors(path: Path) -> Mapping[str, Tensor]:
    """Eight bytes of header length, a JSON header, then raw little-endian tensors (github.com/huggingface/safetensors, format)."""
    data = bytearray(path.read_bytes())
    try:
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        header.pop("__metadata__", None)
        return {name: _tensor(data, start, entry) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ConfigurationError([f"{path}: not a readable safetensors file: {error}"]) from error


def _tensor(data: bytearray, start: int, entry: Mapping[str, Any]) -> Tensor:
    begin, end = entry["data_offsets"]
    return torch.frombuffer(data[start + begin : start + end], dtype=_TYPES[entry["dtype"]]).reshape(entry["shape"])
