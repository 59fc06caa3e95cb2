"""Cutting of byte pieces without a copy."""

from __future__ import annotations

from collections.abc import Sequence

Pieces = Sequence[bytes | memoryview]


def behind(pieces: Pieces, count: int) -> Pieces:
    """The remainder of the pieces behind the first `count` bytes."""
    for number, piece in enumerate(pieces):
        if count < len(piece):
            return [memoryview(piece)[count:], *pieces[number + 1 :]]
        count -= len(piece)
    return []


def without_end(pieces: Pieces, count: int) -> tuple[Pieces, bytes]:
    """The pieces without their last `count` bytes, and a copy of those bytes.

    The pieces have at least `count` bytes.
    """
    rest = list(pieces)
    end = list[bytes | memoryview]()
    while count > 0:
        last = memoryview(rest.pop())
        cut = max(0, len(last) - count)
        if cut:
            rest.append(last[:cut])
        end.append(last[cut:])
        count -= len(last)
    return rest, b"".join(reversed(end))
