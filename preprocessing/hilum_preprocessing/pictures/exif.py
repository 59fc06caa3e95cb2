"""The orientation that Exif metadata states (CIPA DC-008, TIFF 6.0). Torch-free."""

from __future__ import annotations

import struct
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
    if order is None:
        return 0
    try:
        (first,) = struct.unpack_from(f"{order}I", tiff, 4)
        (count,) = struct.unpack_from(f"{order}H", tiff, first)
        for at in range(first + 2, first + 2 + count * _ENTRY_BYTES, _ENTRY_BYTES):
            tag, kind, _, value = struct.unpack_from(f"{order}HHIH", tiff, at)
            if (tag, kind) == (_ORIENTATION, _SHORT):
                return int(value)
    except struct.error:
        return 0
    return 0
