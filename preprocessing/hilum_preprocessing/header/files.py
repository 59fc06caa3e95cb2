"""DICOM files (PS3.10) without their pixels being read.

The header is parsed, Pixel Data is a view of the mapped file. Torch-free.
"""

from __future__ import annotations

import io
import mmap
import os
import struct
import zlib
from collections.abc import Callable
from typing import Final

from pydicom import Dataset, dcmread
from pydicom.dataelem import DataElement
from pydicom.dataset import FileMetaDataset
from pydicom.errors import InvalidDicomError
from pydicom.filereader import read_dataset, read_file_meta_info
from pydicom.tag import BaseTag
from pydicom.uid import DeflatedExplicitVRLittleEndian, ExplicitVRBigEndian

from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.header.elements import MALFORMED, required
from hilum_preprocessing.header.encapsulation import end_of_items
from hilum_preprocessing.header.part10 import META_START
from hilum_preprocessing.header.plain_header import PIXELS, read_plain_header
from hilum_preprocessing.header.structure import CountedBytes, TooComplex, counted, reads
from hilum_preprocessing.header.vr import LONG_VRS
from hilum_preprocessing.uncached import Uncached, uncached

DEFAULT_MAXIMUM_BYTES: Final = 256 << 20
"""Most bytes of an inflated data set: up to 1000 times its own length, which it does not state."""

_UNDEFINED: Final = 0xFFFFFFFF
_EXPLICIT: Final = "HH2s2xI"  # PS3.5 7.1.2, of a VR with 32 bits of length
_IMPLICIT: Final = "HHI"  # PS3.5 7.1.3
_HEAD_BYTES: Final = 256 << 10  # a header that is longer is for pydicom
_GROUP_LENGTH_BYTES: Final = 12
_LONGEST_PIXEL_HEAD: Final = struct.calcsize(f"<{_EXPLICIT}")

Wants = Callable[[Dataset], bool]
"""Whether the pixels of a data set are."""


def read_file(
    path: str | os.PathLike[str],
    maximum_bytes: int = DEFAULT_MAXIMUM_BYTES,
    *,
    drops_page_cache: bool = False,
    wants: Wants | None = None,
) -> Dataset:
    """The data set of a DICOM file.

    Raises NotAnalysable when it is none, OSError when it cannot be opened.

    `PixelData` is a view of the file, which is mapped and not read; the mapping lives as long as
    the view. Elements after it are not read. `drops_page_cache`: the file will not be read again
    soon. If it is not in memory, it is then read past the page cache. `wants` is then called with
    the data set of the beginning, before more is read. If it returns False, nothing more is read,
    and `PixelData` is cut.
    """
    try:
        with io.FileIO(path) as raw, _Pieces(raw) as file:
            return _read(file, maximum_bytes, drops_page_cache=drops_page_cache, wants=wants)
    except InvalidDicomError:
        raise NotAnalysable(Reason.CORRUPT_HEADER, "not a DICOM file: no DICM prefix") from None
    except TooComplex as error:
        raise NotAnalysable(Reason.CORRUPT_HEADER, str(error)) from None
    except MALFORMED as error:
        if isinstance(error, OSError) and error.errno is not None:
            # the file system's own: the file is gone or may not be read, which says nothing about
            # its content
            raise
        raise NotAnalysable(
            Reason.CORRUPT_HEADER, f"unreadable data set ({type(error).__name__})"
        ) from None


class _ReadWhole(Exception):
    """pydicom is about to inflate all that is left of a file."""


class _Pieces(io.BufferedReader):
    """A file that is read piece by piece, and not too many of them.

    A deflated data set is for `_inflated`, which has a limit.
    """

    def __init__(self, raw: io.RawIOBase) -> None:
        super().__init__(raw)
        self._reads = reads()

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            raise _ReadWhole
        return counted(self._reads, super().read(size))


def _read(
    file: io.BufferedReader, maximum_bytes: int, *, drops_page_cache: bool, wants: Wants | None
) -> Dataset:
    # A private mapping: nothing writes to it, but torch takes memory without a copy only where it
    # could be written to.
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    whole = memoryview(mapped)
    if drops_page_cache:
        with uncached(file.name, mapped) as direct:
            if direct is not None and (dataset := _read_past_cache(direct, wants)) is not None:
                return dataset
            whole = (direct.first(direct.size) if direct is not None else None) or whole
    if (plain := read_plain_header(file, mapped)) is not None:
        return _with_pixels(*plain, whole)
    return _read_by_pydicom(file, whole, maximum_bytes)


def _read_past_cache(file: Uncached, wants: Wants | None) -> Dataset | None:
    """None: it cannot be read so, or its header is for pydicom."""
    if (beginning := file.first(_HEAD_BYTES)) is None:
        return None
    head = bytes(beginning)
    if (plain := read_plain_header(CountedBytes(head), head)) is None:
        return None
    dataset, position = plain
    is_to_ask = wants is not None and position + _LONGEST_PIXEL_HEAD < len(beginning)
    if (
        is_to_ask
        and wants is not None
        and not wants(_with_pixels(dataset, position, beginning, is_beginning=True))
    ):
        return dataset
    return (
        None if (whole := file.first(file.size)) is None else _with_pixels(dataset, position, whole)
    )


def _read_by_pydicom(file: io.BufferedReader, whole: memoryview, maximum_bytes: int) -> Dataset:
    file.seek(0)
    try:
        dataset = dcmread(file, stop_before_pixels=True)
        is_deflated = (
            dataset.file_meta.get("TransferSyntaxUID") == DeflatedExplicitVRLittleEndian
        )  # and nothing follows
    except _ReadWhole:
        is_deflated = True
    if is_deflated:
        return _read_deflated(read_file_meta_info(file.name), whole, maximum_bytes)
    order = ">" if dataset.file_meta.get("TransferSyntaxUID") == ExplicitVRBigEndian else "<"
    return _with_pixels(dataset, file.tell(), whole, order=order)


def _read_deflated(meta: FileMetaDataset, mapped: memoryview, maximum_bytes: int) -> Dataset:
    inflated = _inflated(
        mapped[
            META_START + _GROUP_LENGTH_BYTES + required(meta, "FileMetaInformationGroupLength") :
        ],
        maximum_bytes,
    )
    stream = CountedBytes(inflated)
    dataset = read_dataset(
        stream, is_implicit_VR=False, is_little_endian=True, stop_when=_at_pixels
    )
    dataset.file_meta = meta
    return _with_pixels(dataset, stream.tell(), memoryview(inflated))


def _inflated(deflated: memoryview, maximum_bytes: int) -> bytes:
    """PS3.5 A.5. The limit holds while it inflates: nothing beyond it is allocated."""
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        inflated = stream.decompress(deflated, maximum_bytes)
    except zlib.error:
        raise NotAnalysable(Reason.CORRUPT_HEADER, "the deflated data set is damaged") from None
    if not stream.eof and len(inflated) >= maximum_bytes:
        raise NotAnalysable(
            Reason.TOO_LARGE, f"a deflated data set of more than {maximum_bytes} bytes"
        )
    if not stream.eof:
        raise NotAnalysable(Reason.TRUNCATED_PIXEL_DATA, "the deflated data set is cut")
    return inflated


def _at_pixels(tag: BaseTag, vr: str | None, length: int) -> bool:  # noqa: ARG001 - pydicom's signature
    return tag in PIXELS


def _is_explicit(content: memoryview, position: int) -> bool:
    """Whether Pixel Data has a VR, in a data set that is called implicit.

    pydicom reads the rest as it is. A length that looks like a VR would be odd, and so is none.
    """
    return bytes(content[position + 4 : position + 6]) in LONG_VRS


def _with_pixels(
    dataset: Dataset,
    position: int,
    content: memoryview,
    *,
    order: str = "<",
    is_beginning: bool = False,
) -> Dataset:
    """The data set with the element at that position, if there is one.

    Its value is a view of the content, or of the beginning of that. `order` of its bytes, as struct
    has it.
    """
    head = (
        _IMPLICIT
        if dataset.original_encoding[0] and not _is_explicit(content, position)
        else _EXPLICIT
    )
    if position + struct.calcsize(order + head) > len(content):
        return dataset
    group, number, *vr, length = struct.unpack_from(order + head, content, position)
    if (group << 16) + number not in PIXELS:
        return dataset  # pydicom stopped where the data set ends or breaks
    if vr and vr[0] not in LONG_VRS:
        raise NotAnalysable(Reason.CORRUPT_HEADER, "Pixel Data with a VR that no pixels have")
    start = position + struct.calcsize(order + head)
    is_undefined = length == _UNDEFINED
    stop = start + (
        end_of_items(content[start:])
        if is_undefined and not is_beginning
        else min(length, len(content) - start)
    )
    element = DataElement(
        (group << 16) + number,
        vr[0].decode("ascii", "replace") if vr else "OW",
        content[start:stop],
        already_converted=True,
    )
    element.is_undefined_length = is_undefined
    dataset[element.tag] = element
    return dataset
