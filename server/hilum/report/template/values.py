"""Values of a template's gaps, encoded and padded to even length (PS3.5 6.2)."""

from __future__ import annotations

import struct

from pydicom.valuerep import format_number_as_ds

from hilum.dicom.encoding import padded

_DOUBLE = struct.Struct("<d")


def text(value: str) -> bytes:
    """UTF-8, padded with a space: every Value Representation of characters but UI."""
    return padded(value.encode("utf-8", "replace"))


def uid(value: str) -> bytes:
    """UI is padded with NULL."""
    return padded(value.encode("ascii"), b"\0")


def decimal(value: float) -> bytes:
    """DS, at most 16 characters, as highdicom has pydicom format it."""
    return text(format_number_as_ds(float(value)))


def double(value: float) -> bytes:
    """FD."""
    return _DOUBLE.pack(value)
