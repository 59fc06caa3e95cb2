"""The open file of an object, lent to a caller that writes to it by itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WritePolicy:
    """How an object is written.

    Each write but the first and the last ends at a multiple of `aligned_bytes`. After
    `write_out_bytes` more the disk is asked to begin with them; 0: never.
    """

    write_out_bytes: int
    aligned_bytes: int


@dataclass(slots=True)
class BorrowedFile:
    """A lent file of `size_bytes`, of which the disk was asked to write `written_out`.

    `end` is written next. Bytes behind the last multiple of `writing.aligned_bytes` become the new
    `end`.
    """

    descriptor: int
    size_bytes: int
    end: bytes
    written_out: int
    writing: WritePolicy
