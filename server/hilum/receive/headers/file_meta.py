"""File Meta Information (PS3.10 7.1): written before a received data set, read after a crash."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from typing import Final

from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
)

from hilum import IMPLEMENTATION_CLASS_UID, IMPLEMENTATION_VERSION_NAME
from hilum.dicom.encoding import element, padded
from hilum.receive.headers.header import first_uids
from hilum.receive.statuses import CannotUnderstand
from hilum_preprocessing.header.element_index import (
    EXPLICIT_LITTLE,
    IMPLICIT_LITTLE,
    BrokenDataSet,
    Cursor,
    element_at,
    is_explicit,
    plain_run,
)
from hilum_preprocessing.header.part10 import META_START, beginning_of, is_part10
from hilum_preprocessing.header.structure import TooComplex

MAXIMUM_BYTES: Final = 64 << 10  # in files of others: it holds a few UIDs
_GROUP = b"\2\0"
_TAGS = 0x00020000
_BEHIND = 0x00030000
_ELEMENT_BYTES = 8  # of the shortest
_VR = re.compile(rb"[A-Z]{2}")
_VERSION = b"\0\1"
_SCHEME = "dicom://"


@dataclass(frozen=True, slots=True)
class FileMeta:
    """The fields of the command and the association of a data set."""

    sop_class_uid: str
    sop_instance_uid: str
    transfer_syntax_uid: str
    calling_ae_title: str
    called_ae_title: str
    peer_address: str = ""


def encode(meta: FileMeta) -> bytes:
    """Return preamble, prefix and group 0002, always explicit little endian (PS3.10 7.1)."""
    before, behind = _around(
        meta.sop_class_uid,
        meta.transfer_syntax_uid,
        meta.calling_ae_title,
        meta.called_ae_title,
        meta.peer_address,
    )
    group = before + _text(0x00020003, b"UI", meta.sop_instance_uid) + behind
    return beginning_of(group)


@functools.lru_cache(maxsize=64)
def _around(
    sop_class_uid: str,
    transfer_syntax_uid: str,
    calling_ae_title: str,
    called_ae_title: str,
    peer_address: str,
) -> tuple[bytes, bytes]:
    """Return the bytes before and after Media Storage SOP Instance UID.

    They are the same for the images of one sender.
    """
    before = element(0x00020001, b"OB", _VERSION) + _text(0x00020002, b"UI", sop_class_uid)
    behind = (
        _text(0x00020010, b"UI", transfer_syntax_uid),
        _text(0x00020012, b"UI", IMPLEMENTATION_CLASS_UID),
        _text(0x00020013, b"SH", IMPLEMENTATION_VERSION_NAME),
        _text(0x00020016, b"AE", calling_ae_title),  # Source
        _text(0x00020017, b"AE", calling_ae_title),  # Sending
        _text(0x00020018, b"AE", called_ae_title),  # Receiving
        _address(0x00020027, peer_address),  # Sending
    )
    return before, b"".join(behind)


def _text(tag: int, vr: bytes, value: str) -> bytes:
    padding = b"\0" if vr == b"UI" else b" "  # PS3.5 6.2
    return element(tag, vr, padded(value.encode("ascii", "replace"), padding))


def _address(tag: int, host: str) -> bytes:
    """Return a Presentation Address, as URI (PS3.10 7.1), or nothing where it is unknown."""
    return _text(tag, b"UR", f"{_SCHEME}{host}") if host else b""


def decode(file: bytes | memoryview) -> tuple[FileMeta, int]:
    """Return the meta information at the beginning of a file, and the start of its data set.

    It ends where an element of another group begins: (0002,0000) of other writers is often wrong,
    and some leave it out. Raises CannotUnderstand.
    """
    if not is_part10(file):
        raise CannotUnderstand("Not a DICOM file")
    values, length = _group(memoryview(file)[META_START:])
    numbers = (0x0002, 0x0003, 0x0010, 0x0017, 0x0018, 0x0027)
    sop_class, sop_instance, syntax, calling, called, address = (
        values.get(number, b"").rstrip(b"\0 ").decode("ascii", "replace") for number in numbers
    )
    return FileMeta(
        sop_class, sop_instance, syntax, calling, called, address.removeprefix(_SCHEME)
    ), META_START + length


def _group(data: memoryview) -> tuple[dict[int, bytes], int]:
    """Return the values of group 0002 by element number, and its length.

    Some write it in implicit VR, against PS3.10 7.1.
    """
    encoding = EXPLICIT_LITTLE if _VR.fullmatch(data[4:6]) else IMPLICIT_LITTLE
    values: dict[int, bytes] = {}
    cursor = Cursor()
    try:
        for tag, _, start, value, end in plain_run(data, cursor, encoding, None, _BEHIND):
            if tag < _TAGS:
                return values, start
            values[tag & 0xFFFF] = bytes(data[value:end])
    except TooComplex:
        raise _cut(len(data)) from None
    at = cursor.position  # of the first element behind it, or of one that is cut
    while data[at : at + 2] == _GROUP and (
        encoding.is_implicit or _VR.fullmatch(data[at + 4 : at + 6])
    ):
        try:
            found = element_at(data, at, encoding)
        except BrokenDataSet:
            raise _cut(len(data)) from None
        if found.end is None or found.end > len(data):
            raise _cut(len(data))
        values[found.tag & 0xFFFF] = bytes(data[found.value : found.end])
        at = found.end
    return values, at


def _cut(size: int) -> CannotUnderstand:
    if size + META_START >= MAXIMUM_BYTES:
        return CannotUnderstand(
            f"More than {MAXIMUM_BYTES >> 10} KiB of File Meta Information; leave private data out"
        )
    return CannotUnderstand("File Meta Information (group 0002) is cut or damaged")


def decode_of_others(
    file: bytes | memoryview, calling_ae_title: str, called_ae_title: str, peer_address: str = ""
) -> tuple[FileMeta, int]:
    """Return the same for a file of another writer, as if sent with these AE Titles.

    `file`: as much as has come. Identifiers that were left out are taken from the data set. A data
    set in explicit VR that is declared as implicit, as some converters write it, gets the right
    syntax. Raises CannotUnderstand.
    """
    found, start = decode(file)
    data_set = memoryview(file)[start:]
    if len(data_set) < _ELEMENT_BYTES:
        raise CannotUnderstand("The file ends behind its File Meta Information")
    if not found.transfer_syntax_uid:
        raise CannotUnderstand("File Meta Information lacks Transfer Syntax UID (0002,0010)")
    if found.transfer_syntax_uid == ImplicitVRLittleEndian and is_explicit(data_set):
        found = replace(found, transfer_syntax_uid=ExplicitVRLittleEndian)
    if not found.sop_class_uid or not found.sop_instance_uid:
        found = _named_by(data_set, found)
    return replace(
        found,
        calling_ae_title=calling_ae_title,
        called_ae_title=called_ae_title,
        peer_address=peer_address,
    ), start


def _named_by(data_set: memoryview, meta: FileMeta) -> FileMeta:
    if meta.transfer_syntax_uid == DeflatedExplicitVRLittleEndian:
        raise CannotUnderstand("File Meta Information lacks SOP Class or SOP Instance UID")
    sop_class, sop_instance = first_uids(data_set, meta.transfer_syntax_uid)
    return replace(
        meta,
        sop_class_uid=meta.sop_class_uid or sop_class,
        sop_instance_uid=meta.sop_instance_uid or sop_instance,
    )
