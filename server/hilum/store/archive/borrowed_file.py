"""The open file of an object, lent to who writes to it by itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WritePolicy:
    """How an object is written: so that each write but the first and the last ends at a multiple of `aligned_bytes`.

    After `write_out_bytes` more the disk is asked to begin with them; 0: never.
    """

    write_out_bytes: int
    aligned_bytes: int


@dataclass(slots=True)
class BorrowedFile:
    """The file has `size_bytes`, of which the disk was asked to begin with `written_out`.

    `end` comes next.

    What is behind the last multiple of `writing.aligned_bytes` is the new `end`.
    """

    descriptor: int
    size_bytes: int
    end: bytes
    written_out: int
    writing: WritePolicy
