"""Small images for the fuzz part, encoded by hand: quick, and what is odd about them is wanted."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

EXPLICIT = "1.2.840.10008.1.2.1"
IMPLICIT = "1.2.840.10008.1.2"
JPEG = "1.2.840.10008.1.2.4.50"
_PIXELS = (2, 2, 500, 500, 5_000, 5_000, 40_000, 300_000)  # bytes
_PRIVATE = (
    0,
    300,
    33_000,
)  # the last one goes beyond the first look of `hilum.receive.storage.header_window`
_Write = Callable[[int, int, bytes, bytes], bytes]


def data_set(chance: random.Random, sop_class: str, uid: str, syntax: str) -> bytes:
    """A small image of random length, in this Transfer Syntax."""
    write = _implicit if syntax == IMPLICIT else _explicit
    elements = [
        write(0x0008, 0x0016, b"UI", _uid(sop_class)),
        write(0x0008, 0x0018, b"UI", _uid(uid)),
        write(0x0008, 0x0060, b"CS", b"DX"),
        write(0x0010, 0x0020, b"LO", b"FUZZ"),
        write(0x0020, 0x000D, b"UI", _uid(f"{uid}.1")),
        write(0x0020, 0x000E, b"UI", _uid(f"{uid}.1.1")),
    ]
    if chance.random() < 0.3:
        elements.insert(2, write(0x0008, 0x1140, b"SQ", _sequence(write, chance)))
    if chance.random() < 0.2:
        elements.append(write(0x0029, 0x1010, b"UN", bytes(chance.choice(_PRIVATE))))
    pixels = chance.randbytes(chance.choice(_PIXELS))
    return b"".join(elements) + (
        _encapsulated(pixels) if syntax == JPEG else write(0x7FE0, 0x0010, b"OW", pixels)
    )


def _sequence(write: _Write, chance: random.Random) -> bytes:
    item = write(0x0008, 0x1155, b"UI", _uid(f"1.2.4.{chance.getrandbits(60)}"))
    return struct.pack("<HHL", 0xFFFE, 0xE000, len(item)) + item


def _encapsulated(frame: bytes) -> bytes:
    """Pixel Data of one frame without an offset table (PS3.5 A.4)."""
    head = struct.pack("<HH2sHL", 0x7FE0, 0x0010, b"OB", 0, 0xFFFFFFFF)
    items = struct.pack("<HHLHHL", 0xFFFE, 0xE000, 0, 0xFFFE, 0xE000, len(frame)) + frame
    return head + items + struct.pack("<HHL", 0xFFFE, 0xE0DD, 0)


def _explicit(group: int, number: int, vr: bytes, value: bytes) -> bytes:
    if vr in (b"OW", b"SQ", b"UN"):
        return struct.pack("<HH2sHL", group, number, vr, 0, len(value)) + value
    return struct.pack("<HH2sH", group, number, vr, len(value)) + value


def _implicit(group: int, number: int, _vr: bytes, value: bytes) -> bytes:
    return struct.pack("<HHL", group, number, len(value)) + value


def _uid(value: str) -> bytes:
    return value.encode() + b"\0" * (len(value) % 2)
