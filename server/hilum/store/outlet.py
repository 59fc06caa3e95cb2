"""The open file of an object, lent to who writes to it by itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Outlet:
    """The file has `size_bytes`, of which the disk was asked to begin with `written_out`; `end` comes next.

    A write ends at a multiple of `aligned_bytes`, and what is behind that is the new `end`. After `write_out_bytes` more the disk is
    asked again; 0: never.
    """

    descriptor: int
    size_bytes: int
    end: bytes
    aligned_bytes: int
    written_out: int
    write_out_bytes: int
