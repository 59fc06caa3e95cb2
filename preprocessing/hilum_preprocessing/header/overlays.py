"""Overlay planes that older objects keep in unused bits of the pixels (PS3.5 8.1.2, PS3.3 C.9.2).

Torch-free.
"""

from __future__ import annotations

from typing import Final

from pydicom.dataset import Dataset
from pydicom.tag import BaseTag

from hilum_preprocessing.header.elements import MALFORMED, interned

_GROUPS: Final = range(0x6000, 0x6020, 2)
_BITS_ALLOCATED: Final = 0x0100
_POSITIONS: Final = tuple((group, interned(group << 16 | 0x0102)) for group in _GROUPS)
_DATA: Final = 0x3000


def overlay_bits(dataset: Dataset, bits_allocated: int) -> int:
    """A mask of the bits of a pixel that hold overlays, by the header.

    0 where the header has none, or none that is readable. An overlay with Overlay Data, or of other
    Bits Allocated than the pixels, is kept elsewhere.
    """
    held = dataset._dict  # noqa: SLF001 - sixteen questions for each object; `in dataset` takes twenty times as long
    mask = 0
    for group, position in _POSITIONS:
        if position in held and interned(group << 16 | _DATA) not in held:
            mask |= _bit(dataset, group, position, bits_allocated)
    return mask


def _bit(dataset: Dataset, group: int, position: BaseTag, bits_allocated: int) -> int:
    try:
        bit = dataset[position].value
        allocated = dataset.get(interned(group << 16 | _BITS_ALLOCATED))
        is_in_pixels = allocated is None or allocated.value == bits_allocated
    except MALFORMED:
        return 0
    return 1 << bit if isinstance(bit, int) and 0 <= bit < bits_allocated and is_in_pixels else 0
