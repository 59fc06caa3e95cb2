"""The identifiers of a DICOM file, from no more of its beginning than they need."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pydicom.uid import (
    UID,
    DeflatedExplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    MediaStorageDirectoryStorage,
)

from hilum.domain import SeriesReason
from hilum_preprocessing.header.element_index import (
    EXPLICIT_LITTLE,
    IMPLICIT_LITTLE,
    BrokenDataSet,
    element_at,
    encoding_of,
    index,
    is_explicit,
    name_of,
)
from hilum_preprocessing.header.part10 import META_START, is_part10
from hilum_preprocessing.header.structure import TooComplex

_FIRST_BYTES: Final = 16 << 10
_GROWTH: Final = 8
_MOST_BYTES: Final = 16 << 20
_META_CLASS: Final = 0x00020002
_META_INSTANCE: Final = 0x00020003
_META_SYNTAX: Final = 0x00020010
_META_GROUP: Final = b"\2\0"
_SOP_CLASS: Final = 0x00080016
_SOP_INSTANCE: Final = 0x00080018
_STUDY_DATE: Final = 0x00080020
_MODALITY: Final = 0x00080060
_STUDY: Final = 0x0020000D
_SERIES: Final = 0x0020000E
_PIXEL_DATA: Final = 0x7FE00010
_UIDS: Final = {
    _SOP_CLASS: "SOP Class UID",
    _SOP_INSTANCE: "SOP Instance UID",
    _STUDY: "Study Instance UID",
    _SERIES: "Series Instance UID",
}
_WANTED: Final = frozenset((*_UIDS, _STUDY_DATE, _MODALITY))
_VR: Final = re.compile(rb"[A-Z]{2}")
_UID: Final = re.compile(r"(?=.*[1-9])[0-9]+(?:\.[0-9]+)*")  # as reception takes it
_LONGEST_UID: Final = 64
_DAY: Final = re.compile(r"[0-9]{4}\.?[0-9]{2}\.?[0-9]{2}")  # VR DA, and as ACR-NEMA had it
_MODALITY_FORM: Final = re.compile(r"[A-Z0-9_ ]{1,16}")


@dataclass(frozen=True, slots=True)
class FileIdentifiers:
    """The identifiers of one image. `day`: Study Date, YYYYMMDD; empty: it has none."""

    sop_class_uid: str
    sop_instance_uid: str
    study_instance_uid: str
    series_instance_uid: str
    day: str
    modality: str


class NotTaken(Exception):
    """A file that is not taken. `detail` holds no patient data."""

    def __init__(self, reason: SeriesReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class _Beginning:
    """The bytes of a file that were read so far."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        self._is_whole = False
        self.data = b""

    @property
    def may_grow(self) -> bool:
        """Whether there may be more of a header."""
        return not self._is_whole and len(self.data) < _MOST_BYTES

    def grow(self) -> None:
        """Read more. Raises OSError."""
        end = min(max(_FIRST_BYTES, len(self.data) * _GROWTH), _MOST_BYTES)
        self.data += self._read(len(self.data), end)
        self._is_whole = len(self.data) < end


def read_identifiers_of(
    read: Callable[[int, int], bytes], sop_classes: Collection[str]
) -> FileIdentifiers:
    """Return the identifiers of a file. Raises NotTaken, and errors of `read`.

    `read`: the bytes from one position to another; fewer: the file ends there. `sop_classes`: the
    UIDs of the classes that are images.
    """
    beginning = _Beginning(read)
    beginning.grow()
    if not is_part10(beginning.data):
        raise NotTaken(
            SeriesReason.NOT_AN_IMAGE, "not a DICOM file: no DICM after 128 bytes (PS3.10 7.1)"
        )
    while True:
        try:
            return _identifiers(beginning.data, sop_classes)
        except TooComplex as error:
            raise NotTaken(SeriesReason.UNREADABLE_FILE, str(error)) from None
        except BrokenDataSet as error:
            if not beginning.may_grow:
                raise NotTaken(SeriesReason.UNREADABLE_FILE, str(error)) from None
        beginning.grow()


def _identifiers(file: bytes, sop_classes: Collection[str]) -> FileIdentifiers:
    view = memoryview(file)
    meta, start = _file_meta(view)
    _require_class(meta.get(_META_CLASS, ""), sop_classes)
    values = _values(view[start:], meta.get(_META_SYNTAX, ""))
    for tag, name in _UIDS.items():
        _require_uid(f"{name} {name_of(tag)}", values.get(tag, ""))
    _require_class(values[_SOP_CLASS], sop_classes)
    if meta.get(_META_INSTANCE, "") not in ("", values[_SOP_INSTANCE]):
        raise NotTaken(
            SeriesReason.UNREADABLE_FILE,
            "its File Meta Information names another SOP Instance than its data set",
        )
    return FileIdentifiers(
        values[_SOP_CLASS],
        values[_SOP_INSTANCE],
        values[_STUDY],
        values[_SERIES],
        day_of(values.get(_STUDY_DATE, "")),
        _matching(_MODALITY_FORM, values.get(_MODALITY, "")),
    )


def day_of(text: str) -> str:
    """Return a Study Date as YYYYMMDD; empty: it is none."""
    return _matching(_DAY, text).replace(".", "")


def _matching(form: re.Pattern[str], text: str) -> str:
    return text if form.fullmatch(text) else ""


def _file_meta(file: memoryview) -> tuple[dict[int, str], int]:
    """Return group 0002 by tag, and where the data set begins. Raises BrokenDataSet.

    Group 0002 ends where an element of another group begins: its length is often wrong. Some write
    it in implicit VR, against PS3.10 7.1.
    """
    position = META_START
    encoding = (
        EXPLICIT_LITTLE if _VR.fullmatch(file[position + 4 : position + 6]) else (IMPLICIT_LITTLE)
    )
    values = {}
    while bytes(file[position : position + 2]) == _META_GROUP:
        found = element_at(file, position, encoding)
        if found.end is None or found.end > len(file):
            raise BrokenDataSet("File Meta Information (group 0002) is cut or damaged")
        values[found.tag] = _text(file[found.value : found.end])
        position = found.end
    if position == len(file):
        raise BrokenDataSet("The file ends behind its File Meta Information")
    return values, position


def _require_class(sop_class_uid: str, sop_classes: Collection[str]) -> None:
    if not sop_class_uid or sop_class_uid in sop_classes:
        return
    if sop_class_uid == MediaStorageDirectoryStorage:
        raise NotTaken(
            SeriesReason.NOT_AN_IMAGE, "a DICOMDIR; its files are taken from their folders"
        )
    name = UID(sop_class_uid).name if _UID.fullmatch(sop_class_uid) else "an unknown SOP Class"
    raise NotTaken(SeriesReason.NOT_AN_IMAGE, f"no radiograph but {name}")


def _require_uid(name: str, uid: str) -> None:
    if not uid:
        raise NotTaken(SeriesReason.UNREADABLE_FILE, f"{name} is missing")
    if len(uid) > _LONGEST_UID or not _UID.fullmatch(uid):
        raise NotTaken(SeriesReason.UNREADABLE_FILE, f"{name} is not a valid UID")


def _values(data_set: memoryview, transfer_syntax_uid: str) -> dict[int, str]:
    """Return the wanted values of a data set. Raises BrokenDataSet, also if more bytes may help."""
    syntax = transfer_syntax_uid
    if syntax == DeflatedExplicitVRLittleEndian:
        data_set = _inflated(data_set)
    elif syntax == ImplicitVRLittleEndian and is_explicit(data_set):
        syntax = ExplicitVRLittleEndian
    encoding = encoding_of(syntax)
    found = index(data_set, encoding, _WANTED, _SERIES + 1)
    if not _UIDS.keys() <= found.keys():
        # Some writers do not sort elements; and this may be all of the data set that came.
        found = index(data_set, encoding, _WANTED | {_PIXEL_DATA}, _PIXEL_DATA, is_ordered=False)
    values: Mapping[int, str] = {
        tag: _text(data_set[place.value : place.end])
        for tag, place in found.items()
        if tag in _WANTED and place.end is not None
    }
    missing = next((tag for tag in _UIDS if not values.get(tag)), None)
    if missing is not None and _PIXEL_DATA not in found:
        raise BrokenDataSet(f"{_UIDS[missing]} {name_of(missing)} is missing")
    return dict(values)


def _inflated(data_set: memoryview) -> memoryview:
    try:
        return memoryview(zlib.decompressobj(-zlib.MAX_WBITS).decompress(data_set, _MOST_BYTES))
    except zlib.error:
        raise BrokenDataSet("The data set is not deflated as its Transfer Syntax says") from None


def _text(value: memoryview) -> str:
    return bytes(value[:128]).decode("latin-1").strip("\0 ")
