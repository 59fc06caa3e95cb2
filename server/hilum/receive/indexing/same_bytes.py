"""Comparison of the data sets, or the pixels, of two files, before any is deleted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import xxhash

from hilum.receive.headers import file_meta
from hilum.receive.indexing.describe import hashed
from hilum.store.installation.digest_seed import written

_CHUNK_BYTES = 1 << 20


def is_same_data_set(one: Path, other: Path) -> bool:
    """Return whether the data sets are equal byte by byte. Raises CannotUnderstand, OSError.

    The bytes before the data sets do not count.
    """
    with one.open("rb") as ours, other.open("rb") as theirs:
        return all(a == b for a, b in _pairs(_data_set(ours), _data_set(theirs)))


def _pairs(one: Iterator[bytes], other: Iterator[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Return pairs up to the end of the longer one."""
    while (pair := (next(one, b""), next(other, b""))) != (b"", b""):
        yield pair


def _data_set(stream: BinaryIO) -> Iterator[bytes]:
    _, start = file_meta.decode(stream.read(file_meta.MAXIMUM_BYTES))
    stream.seek(start)
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk


def fingerprints(file: Path) -> tuple[str, str]:
    """Return SHA-256 of the data set, and of its Pixel Data. Raises CannotUnderstand, OSError."""
    return hashed(file, hashlib.sha256)


def sha256_of(file: Path) -> str:
    """Return SHA-256 of the data set. Raises CannotUnderstand, OSError."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        for chunk in _data_set(stream):
            digest.update(chunk)
    return digest.hexdigest()


def digest_of(file: Path, seed: int) -> str:
    """Return the digest of rows, of the data set alone. Raises CannotUnderstand, OSError."""
    digest = xxhash.xxh3_128(seed=seed)
    with file.open("rb") as stream:
        for chunk in _data_set(stream):
            digest.update(chunk)
    return written(digest.hexdigest(), seed)
