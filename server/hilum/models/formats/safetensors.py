"""The safetensors format: eight bytes of header length, a JSON header, raw little-endian tensors (github.com/huggingface/safetensors).

It can hold nothing but numbers, which is why it is the only form of weights that a builder reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from hilum.errors import ConfigurationError

_TYPES: Final = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES: Final = {kind: name for name, kind in _TYPES.items()}
_LARGEST_HEADER: Final = 100_000_000  # bytes, the limit of the format's own reader
_METADATA: Final = "__metadata__"


def read(path: Path) -> dict[str, Tensor]:
    """Tensors by name. Raises ConfigurationError when the file is damaged or something else."""
    try:
        data = bytearray(path.read_bytes())
        header, start = _header(data)
        return {
            name: _tensor(data, start, entry) for name, entry in header.items() if name != _METADATA
        }
    except OSError as error:
        raise ConfigurationError([f"{path}: {error.strerror}"]) from error
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ConfigurationError([f"{path}: not a readable safetensors file: {error}"]) from error


def _header(data: bytearray) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(_LARGEST_HEADER, len(data) - 8):
        raise ValueError("its header is longer than the file")
    header = json.loads(data[8 : 8 + length])
    if not isinstance(header, dict):
        raise TypeError("its header is no table")
    return header, 8 + length


def _tensor(data: bytearray, start: int, entry: Mapping[str, Any]) -> Tensor:
    begin, end = entry["data_offsets"]
    kind = _TYPES[entry["dtype"]]
    shape = entry["shape"]
    if not 0 <= begin <= end <= len(data) - start:
        raise ValueError("a tensor lies outside of the file")
    if begin == end:
        return torch.empty(0, dtype=kind).reshape(shape)
    return torch.frombuffer(data[start + begin : start + end], dtype=kind).reshape(shape)


def write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """The same bytes for the same tensors.

    In the order of their names, header padded to eight bytes.
    """
    ordered = {name: tensors[name].detach().cpu().contiguous() for name in sorted(tensors)}
    header = {}
    place = 0
    for name, tensor in ordered.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [place, place + size],
        }
        place += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as sink:
        sink.write(len(text).to_bytes(8, "little") + text)
        for tensor in ordered.values():
            sink.write(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
