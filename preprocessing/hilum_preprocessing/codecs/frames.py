"""Frames of a data set as they are stored, below any policy.

Which decoder, which bytes, which shape. Torch-free.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from pydicom.uid import ExplicitVRBigEndian

from hilum_preprocessing.codecs import CODECS, NATIVE, Codec
from hilum_preprocessing.codecs.bits import Decoded
from hilum_preprocessing.codecs.colour import to_rgb
from hilum_preprocessing.codecs.native import native_frame
from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.header.elements import required
from hilum_preprocessing.header.encapsulation import codestream_of
from hilum_preprocessing.header.pixel_header import PixelHeader, require_pixel_data

DEFAULT_MAXIMUM_PIXELS: Final = 100_000_000


def decode_frames(dataset: Dataset, maximum_pixels: int = DEFAULT_MAXIMUM_PIXELS) -> NDArray[Any]:
    """All frames as stored values, as pydicom's `Dataset.pixel_array` has them.

    Colour as RGB, palettes as indices.

    Words that do not fit into Bits Stored are masked; `decode` judges them.

    ([frames,] rows, columns[, 3]) of uint8, int8, uint16, int16 or uint32; one frame has no axis of
    its own. `maximum_pixels` of all frames together. Raises NotAnalysable.
    """
    require_pixel_data(dataset)
    header = replace(PixelHeader.of(dataset), is_judged=False)
    header.check_size(maximum_pixels, header.frames)
    arrays = [
        to_rgb(decode_frame(dataset, header, frame), header) for frame in range(header.frames)
    ]
    return arrays[0] if len(arrays) == 1 else np.stack(arrays)


def decode_frame(dataset: Dataset, header: PixelHeader, frame: int = 0) -> Decoded:
    """One frame. The caller has checked its size."""
    uid = transfer_syntax_of(dataset)
    if uid in NATIVE:
        return native_frame(dataset, header, frame, is_big_endian=uid == ExplicitVRBigEndian)
    return codec_of(uid, header).decode(codestream_of(dataset, frame, header.frames), header)


def reduce_frame(dataset: Dataset, header: PixelHeader, reduce: int) -> NDArray[Any]:
    """(ceil(rows / 2^r), ceil(columns / 2^r)) of the first frame.

    Raises ValueError where `reducible` says that it cannot be.
    """
    codec = codec_of(transfer_syntax_of(dataset), header)
    if codec.reduction is None:
        raise ValueError(f"reduce {reduce}: the Transfer Syntax has one resolution")
    return codec.reduction.decode(codestream_of(dataset, 0, header.frames), header, reduce)


def reducible(dataset: Dataset) -> int:
    """How often the first frame can be halved while it is decoded: 0 but for wavelet codestreams.

    Raises NotAnalysable.
    """
    codec = CODECS.get(transfer_syntax_of(dataset))
    if codec is None or codec.reduction is None:
        return 0
    require_pixel_data(dataset)
    header = PixelHeader.of(dataset)
    return codec.reduction.levels(codestream_of(dataset, 0, header.frames), header)


def transfer_syntax_of(dataset: Dataset) -> str:
    """Raises NotAnalysable (corrupt_header) when the file meta does not say."""
    meta = getattr(dataset, "file_meta", None)
    if meta is None:
        raise NotAnalysable(Reason.CORRUPT_HEADER, "TransferSyntaxUID is missing")
    return str(required(meta, "TransferSyntaxUID"))


def codec_of(uid: str, header: PixelHeader) -> Codec:
    """Raises NotAnalysable (transfer_syntax_not_supported), or when no codec holds such pixels."""
    if uid not in CODECS:
        raise NotAnalysable(Reason.TRANSFER_SYNTAX_NOT_SUPPORTED, f"Transfer Syntax {uid}")
    if header.bits_allocated not in (8, 16):
        raise NotAnalysable(
            Reason.UNSUPPORTED_PIXEL_FORMAT,
            f"Bits Allocated {header.bits_allocated} in a compressed Transfer Syntax",
        )
    return CODECS[uid]
