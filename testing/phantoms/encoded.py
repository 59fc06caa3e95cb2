"""A DICOM object that is encoded once and sent many times.

Only its UIDs change, in place, because all have the same length.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO

from pydicom.dataset import Dataset
from pydicom.filebase import DicomIO
from pydicom.filewriter import write_dataset
from pydicom.uid import UID

from testing.network.wire import Piece

UID_BYTES = 44
# 39 digits below 2.25 (PS3.5 B.2): 44 characters, even, so never padded
_LEAST = 10**38
_MOST = 2**128 - 1
PIXEL_DATA = 0x7FE00010
UIDS = ("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID")


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One object ready to send: the pieces of its data set, in order."""

    sop_class_uid: str
    transfer_syntax_uid: str
    sop_instance_uid: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Template:
    """An encoded object.

    `head` ends where the pixel data begin; `places` are the offsets of each UID of `UIDS` in it.
    """

    sop_class_uid: str
    transfer_syntax_uid: str
    head: bytes
    tail: Piece
    places: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Bytes of the data set."""
        return len(self.head) + len(self.tail)

    def fresh(self, study_uid: str, series_uid: str, instance_uid: str) -> Outgoing:
        """The same object under other UIDs of 44 characters; the pixel data are shared."""
        head = bytearray(self.head)
        for uid, places in zip((study_uid, series_uid, instance_uid), self.places, strict=True):
            for place in places:
                head[place : place + UID_BYTES] = uid.encode("ascii")
        return Outgoing(
            self.sop_class_uid, self.transfer_syntax_uid, instance_uid, (bytes(head), self.tail)
        )


def fresh_uid(source: random.Random) -> str:
    """A UUID-derived UID (PS3.5 B.2) of 44 characters."""
    return f"2.25.{source.randint(_LEAST, _MOST)}"


def encode(dataset: Dataset) -> Template:
    """A data set with file meta → its bytes in its own Transfer Syntax, which must not be deflated.

    The data set stays as it is.
    """
    syntax = UID(dataset.file_meta.TransferSyntaxUID)
    if syntax.is_deflated:
        raise ValueError("a deflated data set has no place where its UIDs could be replaced")
    marks = {keyword: fresh_uid(random.Random(keyword)) for keyword in UIDS}
    copy = with_uids(dataset, marks)
    encoded = _encoded(copy, syntax)
    split = len(_encoded(copy[:PIXEL_DATA], syntax))
    head = encoded[:split]
    tail = memoryview(encoded)[split:]
    places = tuple(_places(head, mark.encode("ascii")) for mark in marks.values())
    return Template(str(dataset.SOPClassUID), str(syntax), head, tail, places)


def with_uids(dataset: Dataset, uids: Mapping[str, str]) -> Dataset:
    """A data set that shares all elements but the UIDs.

    `copy.copy` would share the dictionary, and assignment the elements.
    """
    fresh = Dataset()
    fresh.update(dataset)
    for keyword, uid in uids.items():
        fresh.add_new(keyword, "UI", uid)
    return fresh


def fresh_objects(images: Sequence[Template], source: random.Random) -> tuple[str, list[Outgoing]]:
    """Study Instance UID and objects of a study that no server has seen: one study, one series."""
    study_uid = fresh_uid(source)
    series_uid = fresh_uid(source)
    return study_uid, [image.fresh(study_uid, series_uid, fresh_uid(source)) for image in images]


def _encoded(dataset: Dataset, syntax: UID) -> bytes:
    buffer = BytesIO()
    target = DicomIO(buffer)
    target.is_implicit_VR = syntax.is_implicit_VR
    target.is_little_endian = syntax.is_little_endian
    write_dataset(target, dataset)
    return buffer.getvalue()


def _places(head: bytes, mark: bytes) -> tuple[int, ...]:
    found = []
    at = head.find(mark)
    while at >= 0:
        found.append(at)
        at = head.find(mark, at + 1)
    return tuple(found)
