"""From a stored file to the `Instance` of its row."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

import xxhash
from pydicom.uid import DeflatedExplicitVRLittleEndian

from hilum.domain import Instance
from hilum.receive.headers import file_meta
from hilum.receive.headers.file_meta import FileMeta
from hilum.receive.headers.header import MAXIMUM_HEADER_BYTES, Header, read_header
from hilum.receive.indexing.digests import Hash, PixelDigest
from hilum.receive.statuses import CannotUnderstand
from hilum.store.archive.archive import place_of
from hilum.store.installation.digest_seed import written
from hilum.store.schema import row_header

_CHUNK_BYTES = 1 << 20
_FIRST_WINDOW_BYTES = 256 << 10  # holds nearly every header
_MAXIMUM_INFLATED_BYTES = 1 << 30


def describe(file: Path, seed: int = 0) -> Instance:
    """Return identity, header and digests, with this seed, of a received object.

    Raises CannotUnderstand, and OSError when it cannot be read.

    The time of reception is the file's own: the same now and when a scan finds the file after a
    crash.
    """
    with file.open("rb") as stream:
        meta, start, header = _read_beginning(stream)
        whole, pixels = _hashed(stream, meta, start, header, partial(xxhash.xxh3_128, seed=seed))
    found = file.stat()
    return instance_of(
        file,
        meta,
        header,
        (written(whole, seed), written(pixels, seed)),
        found.st_size,
        found.st_mtime,
    )


def instance_of(
    file: Path | str,
    meta: FileMeta,
    header: Header,
    digests: tuple[str, str],
    size_bytes: int,
    received_at: float,
) -> Instance:
    """Return the fields of the row.

    `digests`: of the data set and of its Pixel Data. `size_bytes`: of the file.
    """
    return Instance(
        sop_instance_uid=header.sop_instance_uid,
        sop_class_uid=header.sop_class_uid,
        study_instance_uid=header.study_instance_uid,
        series_instance_uid=header.series_instance_uid,
        transfer_syntax_uid=meta.transfer_syntax_uid,
        path=place_of(file),
        size_bytes=size_bytes,
        digest=digests[0],
        pixel_digest=digests[1],
        received_at=received_at,
        calling_ae_title=meta.calling_ae_title,
        called_ae_title=meta.called_ae_title,
        header=row_header.kept(header.encoded, meta.transfer_syntax_uid),
        peer_address=meta.peer_address,
    )


def _read_beginning(stream: BinaryIO) -> tuple[FileMeta, int, Header]:
    """Return meta information, start of the data set and header.

    More is read only if the header is long.
    """
    beginning = stream.read(_FIRST_WINDOW_BYTES)
    try:
        found = _parse(beginning)
        if found[2].pixels_start is not None or len(beginning) < _FIRST_WINDOW_BYTES:
            return found
    except CannotUnderstand:
        if len(beginning) < _FIRST_WINDOW_BYTES:
            raise
    return _parse(beginning + stream.read(MAXIMUM_HEADER_BYTES))


def _parse(beginning: bytes) -> tuple[FileMeta, int, Header]:
    meta, start = file_meta.decode(beginning)
    return meta, start, read_header(memoryview(beginning)[start:], meta.transfer_syntax_uid)


def hashed(file: Path, new: Callable[[], Hash]) -> tuple[str, str]:
    """Return another hash of the data set, and of its Pixel Data.

    Raises CannotUnderstand, OSError.
    """
    with file.open("rb") as stream:
        return _hashed(stream, *_read_beginning(stream), new)


def _hashed(
    stream: BinaryIO, meta: FileMeta, start: int, header: Header, new: Callable[[], Hash]
) -> tuple[str, str]:
    """Return the hash of the data set as received, and of its Pixel Data."""
    whole = new()
    pixels = PixelDigest(header.pixels_start, header.pixels_end, new())
    visible = (
        _inflating() if meta.transfer_syntax_uid == DeflatedExplicitVRLittleEndian else _as_it_is
    )
    stream.seek(start)
    while chunk := stream.read(_CHUNK_BYTES):
        whole.update(chunk)
        for piece in visible(chunk):
            pixels.update(piece)
    return whole.hexdigest(), pixels.hexdigest()


def _as_it_is(chunk: bytes) -> Iterator[bytes]:
    yield chunk


def _inflating() -> Callable[[bytes], Iterator[bytes]]:
    """Return a function that inflates a data set chunk by chunk.

    A broken or exploding one ends early, like truncated pixels.
    """
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    total = 0

    def inflate(chunk: bytes) -> Iterator[bytes]:
        nonlocal total
        rest = chunk
        while total < _MAXIMUM_INFLATED_BYTES:
            try:
                piece = inflater.decompress(rest, _CHUNK_BYTES)
            except zlib.error:
                total = _MAXIMUM_INFLATED_BYTES
                return
            rest = inflater.unconsumed_tail
            if not piece and not rest:
                return
            total += len(piece)
            yield piece

    return inflate
