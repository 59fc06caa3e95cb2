"""From a data set to stored values and the facts that the grayscale steps need. Torch-free; holds no lock while decoding."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from pydicom.encaps import generate_fragments, parse_basic_offsets
from pydicom.filebase import DicomBytesIO
from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian, JPEGBaseline8Bit

from hilum_preprocessing.elements import element, required, word
from hilum_preprocessing.errors import Flag, NotAnalysable, Reason
from hilum_preprocessing.header import PixelHeader, require_pixel_data
from hilum_preprocessing.jpeg import decode_baseline
from hilum_preprocessing.luts import NO_VOI, LookupTable, Rescale, Voi, modality_of, padding_of, voi_of

DEFAULT_MAXIMUM_PIXELS = 100_000_000


@dataclass(frozen=True, slots=True)
class StoredValues:
    """One frame as it is stored: no LUT, no inversion. May cross process boundaries.

    `array` (rows, columns) uint8, int8, uint16 or int16, within `bits_stored` bits, possibly read-only.
    `padding` are the stored values, both ends included, that are no part of the picture.
    """

    array: NDArray[Any]
    bits_stored: int
    is_signed: bool
    is_monochrome1: bool
    modality: Rescale | LookupTable | None = None
    voi: Voi = NO_VOI
    padding: tuple[int, int] | None = None
    flags: tuple[str, ...] = ()


def decode(dataset: Dataset, maximum_pixels: int = DEFAULT_MAXIMUM_PIXELS) -> StoredValues:
    """The one monochrome frame of a data set. Raises NotAnalysable; nothing of the frame's size is allocated before its size is checked."""
    require_pixel_data(dataset)
    header = PixelHeader.of(dataset)
    header.check_size(maximum_pixels)
    transfer_syntax_uid = _transfer_syntax_uid(dataset)
    if transfer_syntax_uid in (ImplicitVRLittleEndian, ExplicitVRLittleEndian):
        container = _native(dataset, header)
    elif transfer_syntax_uid == JPEGBaseline8Bit:
        container = decode_baseline(_encapsulated_frame(dataset), header)
    else:
        raise NotAnalysable(Reason.TRANSFER_SYNTAX_NOT_SUPPORTED, f"Transfer Syntax {transfer_syntax_uid}")
    array, is_cleared = stored_bits(container, header)
    return _with_facts(dataset, header, array, is_cleared)


def _with_facts(dataset: Dataset, header: PixelHeader, array: NDArray[Any], is_cleared: bool) -> StoredValues:
    voi = voi_of(dataset)
    seen = {
        Flag.LOSSY: word(dataset, "LossyImageCompression") == "01" or _transfer_syntax_uid(dataset) == JPEGBaseline8Bit,
        Flag.HIGH_BITS_CLEARED: is_cleared,
        Flag.VOI_UNUSABLE: voi.is_unusable,
    }
    return StoredValues(
        array=array,
        bits_stored=header.bits_stored,
        is_signed=header.is_signed,
        is_monochrome1=header.is_monochrome1,
        modality=modality_of(dataset),
        voi=voi,
        padding=padding_of(dataset),
        flags=tuple(flag.value for flag, is_seen in seen.items() if is_seen),
    )


def _transfer_syntax_uid(dataset: Dataset) -> str:
    meta = getattr(dataset, "file_meta", None)
    if meta is None:
        raise NotAnalysable(Reason.CORRUPT_HEADER, "TransferSyntaxUID is missing")
    return str(required(meta, "TransferSyntaxUID"))


def _native(dataset: Dataset, header: PixelHeader) -> NDArray[Any]:
    """(rows, columns) uint8 or uint16, a view of Pixel Data. Longer data is accepted (padding), shorter is not."""
    data = element(dataset, "PixelData")
    if not isinstance(data, bytes) or dataset["PixelData"].is_undefined_length:
        # PS3.5 A.1 and A.2: Pixel Data of an uncompressed syntax has a defined length.
        raise NotAnalysable(Reason.UNDECODABLE, "encapsulated Pixel Data in an uncompressed Transfer Syntax")
    if len(data) < header.size_bytes:
        raise NotAnalysable(Reason.TRUNCATED_PIXEL_DATA, f"{len(data)} of {header.size_bytes} bytes")
    dtype = "u1" if header.bits_allocated == 8 else "<u2"
    return np.frombuffer(data, dtype, count=header.pixels).reshape(header.rows, header.columns)


def _encapsulated_frame(dataset: Dataset) -> bytes:
    """The codestream of a single frame: all fragments, whatever the offset table says (PS3.5 A.4)."""
    buffer = DicomBytesIO(required(dataset, "PixelData"))
    try:
        parse_basic_offsets(buffer)
        return b"".join(generate_fragments(buffer))
    except (ValueError, struct.error) as error:  # what pydicom raises for items that are none
        raise NotAnalysable(Reason.UNDECODABLE, f"broken encapsulation ({type(error).__name__})") from None


def stored_bits(container: NDArray[Any], header: PixelHeader) -> tuple[NDArray[Any], bool]:
    """The stored bits of each unsigned container word, sign extended; and whether bits outside of them were set (PS3.5 8.1.1).

    Older objects keep overlays, others garbage, in the bits that are not stored. A container that is clean is not copied.
    """
    shift = header.high_bit + 1 - header.bits_stored
    spare = header.bits_allocated - header.bits_stored
    if header.is_signed:
        # Up to the top, then down again: the arithmetic shift brings the sign along.
        signed = (
            (container << (spare - shift)).view(f"i{container.itemsize}") >> spare if spare else container.view(f"i{container.itemsize}")
        )
        return signed, False
    mask = (1 << header.bits_stored) - 1
    if shift == 0 and int(container.max()) <= mask:
        return container, False
    is_cleared = bool(np.any(container & ~np.array(mask << shift, container.dtype)))
    return (container >> shift) & np.array(mask, container.dtype), is_cleared
