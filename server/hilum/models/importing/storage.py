"""Tensors that were not read yet: storages of a torch file, and views of them.

Standard library only: part of the locked process (`convert`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# torch's storage classes: name in a safetensors file, bytes of an element.
ELEMENTS: Final = {
    "DoubleStorage": ("F64", 8),
    "FloatStorage": ("F32", 4),
    "HalfStorage": ("F16", 2),
    "BFloat16Storage": ("BF16", 2),
    "LongStorage": ("I64", 8),
    "IntStorage": ("I32", 4),
    "ShortStorage": ("I16", 2),
    "CharStorage": ("I8", 1),
    "ByteStorage": ("U8", 1),
    "BoolStorage": ("BOOL", 1),
}


@dataclass(frozen=True, slots=True)
class Storage:
    """Numbers in the file, not read yet.

    `size` counts elements.
    """

    key: str
    kind: str
    size: int


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A view of a storage: offset and strides in elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
