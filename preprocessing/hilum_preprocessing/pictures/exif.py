"""The orientation that Exif metadata states (CIPA DC-008, TIFF 6.0). Torch-free."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from hilum_preprocessing.errors import NotAnalysable, Reason

_ORIENTATION: Final = 0x0112
_SHORT: Final = 3
_UPRIGHT: Final = frozenset({0, 1})  # 0 is no orientation of the standard, and means none
_ENTRY_BYTES: Final = 12
_ORDERS: Final = {b"II*\0": "<", b"MM\0*": ">"}


def require_upright(tiff: bytes) -> None:
    """Raises NotAnalysable for Exif metadata that turn or mirror the picture.

    `tiff`: from its byte order on. Some readers turn the picture and others do not, so its pixels
    have no certain orientation. Metadata that cannot be read state none.
    """
    orientation = _orientation(tiff)
    if orientation not in _UPRIGHT:
        raise NotAnalysable(
            Reason.UNSUPPORTED_PIXEL_FORMAT,
            f"Exif metadata say orientation {orientation}; save the picture upright, without them",
        )


def _orientation(tiff: bytes) -> int:
    """The value of the first directory; 0: there is none."""
    order = _ORDERS.get(tiff[:4])
    try:
        return 0 if order is None else next(_orientations(tiff, order), 0)
    except struct.error:
        return 0


def _orientations(tiff: bytes, order: str) -> Iterator[int]:
    """Of the entries of the first directory (TIFF 6.0, section 2)."""
    (first,) = struct.unpack_from(f"{order}I", tiff, 4)
    (count,) = struct.unpack_from(f"{order}H", tiff, first)
    for number in range(count):
        at = first + 2 + number * _ENTRY_BYTES
        tag, kind, _, value = struct.unpack_from(f"{order}HHIH", tiff, at)
        if (tag, kind) == (_ORIENTATION, _SHORT):
            yield value
