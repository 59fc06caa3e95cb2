"""Elements encoded in Explicit VR Little Endian, text in UTF-8 (PS3.5 7.1.2)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from pydicom.charset import convert_encodings
from pydicom.dataelem import DataElement
from pydicom.filebase import DicomBytesIO
from pydicom.filewriter import write_data_element

from hilum.report.template.values import text

_ENCODINGS: Final = convert_encodings("ISO_IR 192")
# Not PN, whose groups pydicom encodes one by one, and not what it keeps as numbers or UIDs.
_TEXTS: Final = frozenset({"AS", "CS", "DA", "DT", "LO", "LT", "SH", "ST", "TM"})
_LENGTH: Final = 2


def head(element: DataElement) -> bytes:
    """Tag and Value Representation."""
    return struct.pack("<HH", element.tag.group, element.tag.element) + element.VR.encode()


def encoded(elements: Iterable[DataElement]) -> bytes:
    """The elements as pydicom writes them, text in UTF-8."""
    return b"".join([_plain(element) or _written(element) for element in elements])


def _plain(element: DataElement) -> bytes | None:
    """One value of characters: nine of ten elements of a header are that, and pydicom takes 8 µs for each."""
    if type(element.value) is not str or element.VR not in _TEXTS:
        return None
    value = text(element.value)
    return head(element) + len(value).to_bytes(_LENGTH, "little") + value if len(value) < 1 << 16 else None


def _written(element: DataElement) -> bytes:
    target = DicomBytesIO()
    target.is_implicit_VR, target.is_little_endian = False, True
    write_data_element(target, element, _ENCODINGS)
    return target.getvalue()
