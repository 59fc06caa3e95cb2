"""Data elements encoded in Explicit VR Little Endian (PS3.5 7.1.2). Standard library only."""

from __future__ import annotations

import struct
from typing import Final

from hilum_preprocessing.header.vr import LONG_VRS

_HEAD: Final = struct.Struct("<HH2s")


def padded(value: bytes, padding: bytes = b" ") -> bytes:
    """Return the value with an even length (PS3.5 6.2): UI has NULL as padding, text a space."""
    return value + padding if len(value) & 1 else value


def head(tag: int, vr: bytes) -> bytes:
    """Return tag and VR."""
    return _HEAD.pack(tag >> 16, tag & 0xFFFF, vr)


def length_bytes(vr: bytes) -> int:
    """Return the width of the length field: 2, or 4 after two reserved bytes."""
    return 4 if vr in LONG_VRS else 2


def before_length(tag: int, vr: bytes) -> bytes:
    """Return tag, VR and, where there are any, the reserved bytes."""
    return head(tag, vr) + (b"\0\0" if vr in LONG_VRS else b"")


def counted(value: bytes, size: int = 2) -> bytes:
    """Return a value of even length after its length, a number of `size` bytes."""
    return len(value).to_bytes(size, "little") + value


def element(tag: int, vr: bytes, value: bytes) -> bytes:
    """Return an element. Its value has an even length."""
    return before_length(tag, vr) + counted(value, length_bytes(vr))
