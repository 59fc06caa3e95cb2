"""The UIDs of an encoded data set, and the end of its header, at Pixel Data.

The header is read before the acknowledgement, so that each acknowledged object can also be indexed.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from pydicom.uid import DeflatedExplicitVRLittleEndian

from hilum.dicom.uid import problem_of_form, problem_of_uid
from hilum.receive.statuses import CannotUnderstand, HeaderTooComplex, understood
from hilum_preprocessing.header.element_index import (
    Element,
    Encoding,
    encoding_of,
    index,
    is_explicit,
    name_of,
)
from hilum_preprocessing.header.structure import MAXIMUM_ELEMENTS, require_bounded

MAXIMUM_HEADER_BYTES = 16 << 20
_PIXEL_DATA = 0x7FE00010
_SOP_CLASS_UID = 0x00080016
_SOP_INSTANCE_UID = 0x00080018
_STUDY_INSTANCE_UID = 0x0020000D
_SERIES_INSTANCE_UID = 0x0020000E
_NAMES = {
    _SOP_CLASS_UID: "SOP Class UID",
    _SOP_INSTANCE_UID: "SOP Instance UID",
    _STUDY_INSTANCE_UID: "Study Instance UID",
    _SERIES_INSTANCE_UID: "Series Instance UID",
}
# The origin of the object (PS3.3 C.7.5.1), which distinguishes our own documents from images.
_MANUFACTURER = 0x00080070
_DEVICE_SERIAL_NUMBER = 0x00181000
_OF_OBJECT = frozenset((_SOP_CLASS_UID, _SOP_INSTANCE_UID))
_READ = frozenset((*_NAMES, _MANUFACTURER, _DEVICE_SERIAL_NUMBER, _PIXEL_DATA))


@dataclass(frozen=True, slots=True)
class Header:
    """The data set up to Pixel Data; `encoded` is inflated if the data set was deflated.

    Stored objects are read again by the same rules, so they may not become stricter. Incoming
    objects have to meet `require_uids` as well.

    `pixels_start`, `pixels_end`: the value of Pixel Data in the (inflated) data set; the end is
    None where the length is undefined, both are None without Pixel Data.
    """

    sop_class_uid: str
    sop_instance_uid: str
    study_instance_uid: str
    series_instance_uid: str
    encoded: memoryview
    pixels_start: int | None
    pixels_end: int | None
    manufacturer: str = ""
    device_serial_number: str = ""

    def require_uids(self) -> None:
        """Raise CannotUnderstand if one of its UIDs is invalid."""
        for tag, uid in zip(
            _NAMES,
            (
                self.sop_class_uid,
                self.sop_instance_uid,
                self.study_instance_uid,
                self.series_instance_uid,
            ),
            strict=True,
        ):
            if problem := problem_of_uid(uid):
                raise _refused(tag, problem)


def read_header(
    data_set: bytes | memoryview, transfer_syntax_uid: str, most: int = MAXIMUM_ELEMENTS
) -> Header:
    """Return the header of a data set; Pixel Data need not be complete. Raises CannotUnderstand.

    `most`: elements and items that it may have.
    """
    is_deflated = transfer_syntax_uid == DeflatedExplicitVRLittleEndian
    encoded = _inflate_beginning(data_set) if is_deflated else memoryview(data_set)
    encoding = encoding_of(transfer_syntax_uid)
    if encoding.is_implicit and is_explicit(encoded):
        raise CannotUnderstand("The data set is in explicit VR, its Transfer Syntax implicit")
    try:
        return _read(encoded[:MAXIMUM_HEADER_BYTES], encoding, most)
    except HeaderTooComplex:
        raise
    except CannotUnderstand:
        if len(encoded) > MAXIMUM_HEADER_BYTES:
            raise CannotUnderstand(
                "More than 16 MiB before Pixel Data; remove private data"
            ) from None
        raise


def first_uids(data_set: memoryview, transfer_syntax_uid: str) -> tuple[str, str]:
    """Return SOP Class and SOP Instance UID of the beginning of a data set.

    Raises CannotUnderstand.
    """
    encoding = encoding_of(transfer_syntax_uid)
    with understood:
        found = index(data_set, encoding, _OF_OBJECT, _SOP_INSTANCE_UID, is_ordered=False)
    if any((place.end or place.value) > len(data_set) for place in found.values()):
        raise CannotUnderstand(f"The data set ends inside {name_of(_SOP_INSTANCE_UID)}")
    sop_class, sop_instance = (
        _uid(tag, _value(data_set, found.get(tag))) for tag in (_SOP_CLASS_UID, _SOP_INSTANCE_UID)
    )
    return sop_class, sop_instance


def _inflate_beginning(data_set: bytes | memoryview) -> memoryview:
    """Return as much of a deflated data set (PS3.5 A.5) as a header may have."""
    try:
        return memoryview(
            zlib.decompressobj(-zlib.MAX_WBITS).decompress(data_set, MAXIMUM_HEADER_BYTES + 1)
        )
    except zlib.error:
        raise CannotUnderstand("The data set is not deflated as its Transfer Syntax says") from None


def _read(data: memoryview, encoding: Encoding, most: int) -> Header:
    with understood:
        found = index(data, encoding, _READ, _PIXEL_DATA, most, is_ordered=False)
        pixels = found.pop(_PIXEL_DATA, None)
        end = len(data) if pixels is None else pixels.start
        # Other readers make an object of each element and item.
        require_bounded(
            data[:end], is_implicit=encoding.is_implicit, order=encoding.byte_order, most=most
        )
    values = {tag: _value(data, place) for tag, place in found.items()}
    sop_class, sop_instance, study, series = (_uid(tag, values.get(tag, b"")) for tag in _NAMES)
    maker = (
        values.get(tag, b"").decode("utf-8", "replace")
        for tag in (_MANUFACTURER, _DEVICE_SERIAL_NUMBER)
    )
    pixels_start, pixels_end = (None, None) if pixels is None else (pixels.value, pixels.end)
    return Header(
        sop_class, sop_instance, study, series, data[:end], pixels_start, pixels_end, *maker
    )


def _value(data: memoryview, place: Element | None) -> bytes:
    """Return the value of a UID or a short text; empty where the element is missing."""
    if place is None or place.end is None:
        return b""
    return bytes(data[place.value : min(place.end, place.value + 128)]).rstrip(b"\0 ")


def _uid(tag: int, value: bytes) -> str:
    text = value.decode("latin-1")
    if problem := problem_of_form(text):
        raise _refused(tag, problem)
    return text


def _refused(tag: int, problem: str) -> CannotUnderstand:
    return CannotUnderstand(f"{_NAMES[tag]} {name_of(tag)} {problem}")
