"""The tensors of a checkpoint by name, and their bytes in row order.

Standard library only: this is part of the locked process (`convert`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from hilum.models.importing.restricted_unpickler import Placeholder
from hilum.models.importing.storage import ELEMENTS, StoredTensor

# Keys of the state dictionary in files that also hold epochs and optimisers, likeliest first.
_NESTED_KEYS: Final = (
    "state_dict",
    "model_state_dict",
    "model_state",
    "model",
    "net",
    "network",
    "module",
    "weights",
)
_MOST: Final = 20_000
_FORMATS: Final[Mapping[int, Literal["B", "H", "I", "Q"]]] = {1: "B", 2: "H", 4: "I", 8: "Q"}
Named = dict[str, StoredTensor]


class NoTensors(Exception):
    """The object that was saved is neither a state dictionary nor a module."""


def find(content: Any) -> Named:  # noqa: ANN401 - whatever was saved
    """Return the tensors by name.

    Raises NoTensors.
    """
    if isinstance(content, Placeholder):
        return _checked(dict(_of_module(content, "", ())))
    if not isinstance(content, Mapping):
        raise NoTensors(f"it holds a {type(content).__name__}, no state dictionary")
    for key in _NESTED_KEYS:
        if isinstance(content.get(key), Mapping | Placeholder):
            return find(content[key])
    return _checked(_of_state_dictionary(content))


def _of_state_dictionary(content: Mapping[Any, Any]) -> Named:
    if others := [name for name, value in content.items() if not isinstance(value, StoredTensor)]:
        raise NoTensors(
            f"it holds no state dictionary: {', '.join(map(ascii, others[:4]))}, ... are no tensors"
        )
    return {str(name): tensor for name, tensor in content.items()}


def _checked(tensors: Named) -> Named:
    if not 0 < len(tensors) <= _MOST:
        raise NoTensors(f"it holds {len(tensors)} tensors")
    return tensors


def _of_module(
    module: Placeholder, prefix: str, above: tuple[Placeholder, ...]
) -> Iterator[tuple[str, StoredTensor]]:
    """Yield the tensors of a module in the order of `Module.state_dict`."""
    if module in above:
        raise NoTensors("a module that holds itself")
    yield from _own_tensors(module, prefix)
    for name, value in _table(module, "_modules"):
        if isinstance(value, Placeholder):
            yield from _of_module(value, f"{prefix}{name}.", (*above, module))


def _own_tensors(module: Placeholder, prefix: str) -> Iterator[tuple[str, StoredTensor]]:
    """Yield the parameters and the persistent buffers of one module."""
    passing = getattr(module, "_non_persistent_buffers_set", None)
    skipped = passing if isinstance(passing, set) else ()
    for name, value in itertools.chain(_table(module, "_parameters"), _table(module, "_buffers")):
        if isinstance(value, StoredTensor) and name not in skipped:
            yield f"{prefix}{name}", value
        elif isinstance(value, Placeholder):
            raise NoTensors(f"{prefix}{name} is a {value.origin}, no plain tensor")


def _table(module: Placeholder, name: str) -> list[tuple[str, Any]]:
    table = module.__dict__.get(name)
    return [(str(key), value) for key, value in table.items()] if isinstance(table, Mapping) else []


def size(tensor: StoredTensor) -> int:
    """Return the size in bytes."""
    return math.prod(tensor.shape) * ELEMENTS[tensor.storage.kind][1]


def row_bytes(tensor: StoredTensor, data: bytes) -> Iterator[bytes]:
    """Yield the tensor's numbers, last axis fastest.

    Raises NoTensors when it reaches beyond its storage.
    """
    count = math.prod(tensor.shape)
    if not count:
        return
    axes = _checked_axes(tensor)
    width = ELEMENTS[tensor.storage.kind][1]
    elements = memoryview(data)[: tensor.storage.size * width].cast(_FORMATS[width])
    if _is_contiguous(axes):
        yield elements[tensor.offset : tensor.offset + count].tobytes()
        return
    *outer, (length, stride) = axes
    for places in itertools.product(*(range(0, rows * step, step) for rows, step in outer)):
        start = tensor.offset + sum(places)
        yield elements[start : start + (length - 1) * stride + 1 : stride].tobytes()


def _checked_axes(tensor: StoredTensor) -> list[tuple[int, int]]:
    """Return (length, stride) of each axis longer than one."""
    pairs = zip(tensor.shape, tensor.strides, strict=True)
    axes = [(length, stride) for length, stride in pairs if length != 1]
    last = tensor.offset + sum((length - 1) * stride for length, stride in axes)
    if tensor.offset < 0 or any(stride < 1 for _, stride in axes) or last >= tensor.storage.size:
        raise NoTensors("a tensor is larger than its storage")
    return axes


def _is_contiguous(axes: Sequence[tuple[int, int]]) -> bool:
    """Whether rows follow one another without gaps."""
    expected = 1
    for length, stride in reversed(axes):
        if stride != expected:
            return False
        expected *= length
    return True
