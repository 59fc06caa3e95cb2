"""One image under File Meta Information as senders, exports and old software write it (PS3.10 7.1)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from pydicom.uid import ImplicitVRLittleEndian

from hilum.receive.headers.file_meta import decode

Meta = dict[int, tuple[bytes, bytes]]
"""Element number of group 0002 to VR and value; values are padded where they are written."""

_PREFIX: Final = bytes(128) + b"DICM"
_LONG: Final = (b"OB", b"UN")


def usual(file: bytes) -> tuple[Meta, bytes]:
    """The meta information that a writer would put before a file's data set, and that."""
    meta, start = decode(file)
    elements: Meta = {
        0x0001: (b"OB", b"\0\1"),
        0x0002: (b"UI", meta.sop_class_uid.encode()),
        0x0003: (b"UI", meta.sop_instance_uid.encode()),
        0x0010: (b"UI", meta.transfer_syntax_uid.encode()),
        0x0012: (b"UI", b"1.2.3.4"),
        0x0013: (b"SH", b"EXPORT_1"),
    }
    return elements, file[start:]


def written(elements: Meta, *, length: int | None = None, is_implicit: bool = False) -> bytes:
    """Group 0002; `length`: what (0002,0000) is off by, None: it is not there."""
    group = b"".join(
        _element(number, vr, value, is_implicit=is_implicit)
        for number, (vr, value) in sorted(elements.items())
    )
    if length is None:
        return group
    return (
        _element(0x0000, b"UL", struct.pack("<L", len(group) + length), is_implicit=is_implicit)
        + group
    )


def file_with(elements: Meta, data_set: bytes) -> bytes:
    """A file with this meta information, whose length is right."""
    return _PREFIX + written(elements, length=0) + data_set


def _element(number: int, vr: bytes, value: bytes, *, is_implicit: bool) -> bytes:
    value += (b" " if vr == b"SH" else b"\0") * (len(value) % 2)
    if is_implicit:
        return struct.pack("<HHL", 2, number, len(value)) + value
    if vr in _LONG:
        return struct.pack("<HH2sHL", 2, number, vr, 0, len(value)) + value
    return struct.pack("<HH2sH", 2, number, vr, len(value)) + value


def _of(change: Callable[[Meta], bytes]) -> Callable[[bytes], bytes]:
    def file(usually: bytes) -> bytes:
        elements, data_set = usual(usually)
        return _PREFIX + change(elements) + data_set

    return file


def _without(*numbers: int) -> Callable[[Meta], bytes]:
    return lambda elements: written(
        {number: found for number, found in elements.items() if number not in numbers}, length=0
    )


def _with(number: int, vr: bytes, value: bytes) -> Callable[[Meta], bytes]:
    return lambda elements: written({**elements, number: (vr, value)}, length=0)


ODD_META: Final[dict[str, Callable[[bytes], bytes]]] = {
    "as the standard has it": _of(lambda elements: written(elements, length=0)),
    "no group length": _of(written),
    "a group length that is too short": _of(lambda elements: written(elements, length=-18)),
    "a group length that is shorter by half an element": _of(
        lambda elements: written(elements, length=-5)
    ),
    "a group length of 0": _of(lambda elements: written(elements, length=-len(written(elements)))),
    "a group length that is too long": _of(lambda elements: written(elements, length=26)),
    "a group length beyond the file": _of(lambda elements: written(elements, length=1 << 30)),
    "no SOP Class": _of(_without(0x0002)),
    "no SOP Instance": _of(_without(0x0003)),
    "neither, nor an implementation": _of(_without(0x0002, 0x0003, 0x0012, 0x0013)),
    "an empty SOP Instance UID": _of(_with(0x0003, b"UI", b"")),
    "an implementation version name of 40 characters": _of(_with(0x0013, b"SH", b"V" * 40)),
    "private information of 50 kB": _of(
        lambda elements: written(
            {**elements, 0x0100: (b"UI", b"1.2.3"), 0x0102: (b"OB", bytes(50_000))}, length=0
        )
    ),
    "a Transfer Syntax padded with a space": _of(
        lambda elements: written(
            {**elements, 0x0010: (b"UI", elements[0x0010][1].ljust(20))}, length=0
        )
    ),
    "a Transfer Syntax of implicit VR, whatever follows": _of(
        _with(0x0010, b"UI", ImplicitVRLittleEndian.encode())
    ),
    "implicit VR": _of(lambda elements: written(elements, length=0, is_implicit=True)),
    "implicit VR without group length": _of(lambda elements: written(elements, is_implicit=True)),
}
"""What a reader can make of it is the image that is meant."""
