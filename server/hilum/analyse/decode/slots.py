"""Shared memory between the analyser and its decode processes.

An image goes into a slot, and only the slot's number goes through the pipe. The number of slots
bounds the memory. Each lease of a slot has a generation number. A process that was given up writes
under an old number, and its data is never read.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_GENERATION: Final = struct.Struct("<Q")
_WRITTEN: Final = 0  # where a slot holds the generation of its content; written last
_BEGUN: Final = _GENERATION.size  # the generation that is being worked on
_ALIGNMENT: Final = 64
_PAGE: Final = mmap.PAGESIZE


@dataclass(frozen=True, slots=True)
class Area:
    """The layout of the memory, known to both sides."""

    count: int
    size_bytes: int

    @property
    def stride(self) -> int:
        """From slot to slot: whole pages, so that one may be registered with a device."""
        return -(-(self.size_bytes + _ALIGNMENT) // _PAGE) * _PAGE


class SlotLease(NamedTuple):
    """A slot of one request, until it is given back."""

    number: int
    generation: int

    @property
    def next(self) -> SlotLease:
        """The next lease of the same slot, for when this one is given back."""
        return SlotLease(self.number, self.generation + 1)


class ArrayRef(NamedTuple):
    """The place of an array in its request's slot, `offset` bytes from the slot's beginning."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


class StaleSlot(RuntimeError):
    """The slot was leased again meanwhile, or its writer did not finish."""


class SlotMemory:
    """Slots of this process's mapping.

    The analyser makes it. A decode process opens it by the descriptor that it was sent.
    """

    def __init__(self, area: Area, descriptor: int | None = None) -> None:
        self.area = area
        self._stride = area.stride
        self.descriptor = (
            os.memfd_create("hilum-slots", os.MFD_CLOEXEC) if descriptor is None else descriptor
        )
        if descriptor is None:
            os.ftruncate(self.descriptor, area.count * area.stride)
        self._memory = mmap.mmap(self.descriptor, area.count * area.stride)

    def begin(self, lease: SlotLease) -> None:
        """Mark that work on the lease's request starts."""
        _GENERATION.pack_into(self._memory, lease.number * self._stride + _BEGUN, lease.generation)

    def has_begun(self, lease: SlotLease) -> bool:
        """Return whether work on its request has started, even if it or the process has ended."""
        return self._said(lease, _BEGUN) == lease.generation

    def write(self, lease: SlotLease, arrays: Sequence[Array]) -> list[ArrayRef] | None:
        """Copy the arrays into the slot; None: they do not fit."""
        ends = [0, *accumulate(-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays)]
        if ends[-1] > self.area.size_bytes:
            return None
        placed = [
            ArrayRef(_ALIGNMENT + at, array.shape, array.dtype.str)
            for at, array in zip(ends, arrays, strict=False)
        ]
        for array, place in zip(arrays, placed, strict=True):
            self._array(lease.number, place)[...] = array
        _GENERATION.pack_into(
            self._memory, lease.number * self._stride + _WRITTEN, lease.generation
        )
        return placed

    def read(self, lease: SlotLease, placed: ArrayRef) -> Array:
        """Return a view, valid until the lease ends. Raises StaleSlot."""
        generation = self._said(lease, _WRITTEN)
        if generation != lease.generation:
            raise StaleSlot(
                f"slot {lease.number} holds generation {generation}, not {lease.generation}"
            )
        return self._array(lease.number, placed)

    def _said(self, lease: SlotLease, offset: int) -> int:
        (generation,) = _GENERATION.unpack_from(self._memory, lease.number * self._stride + offset)
        return int(generation)

    def _array(self, index: int, placed: ArrayRef) -> Array:
        return np.ndarray(
            placed.shape, placed.dtype, self._memory, index * self._stride + placed.offset
        )

    @property
    def pages(self) -> Array:
        """All slots, (bytes,) uint8, for registration with a device."""
        return np.frombuffer(self._memory, np.uint8)

    def close(self) -> None:
        """Close the memory; it is freed when the last process has closed it."""
        os.close(self.descriptor)
