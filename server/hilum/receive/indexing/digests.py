"""xxh3-128 of a data set as received, and of the value of Pixel Data.

They show whether two objects are the same, and whether their pixels are.
"""

from __future__ import annotations

from typing import Protocol

import xxhash

from hilum.store.installation.digest_seed import written

# For 100 kB and more xxhash releases the interpreter. With many associations, getting it back takes
# longer than hashing.
_SLICE_BYTES = 64 << 10


class Hash(Protocol):
    """The interface of a hash, as in hashlib and xxhash."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Add the next bytes."""

    def hexdigest(self) -> str:
        """Return the digest so far."""


class PixelDigest:
    """The digest of Pixel Data, in a data set given piece by piece.

    The data set is inflated if it was deflated. `pixels_start` None: it has no Pixel Data.
    `pixels_end` None: Pixel Data has no defined length (it is encapsulated), and the digest runs to
    the end of the data set. `digest`: new, of any kind.
    """

    def __init__(self, pixels_start: int | None, pixels_end: int | None, digest: Hash) -> None:
        self._start = pixels_start
        self._end = pixels_end
        self._digest = digest
        self._position = 0

    def update(self, piece: bytes | memoryview) -> None:
        """Add the next bytes."""
        if self._start is not None:
            end = len(piece) if self._end is None else max(0, self._end - self._position)
            self._digest.update(memoryview(piece)[max(0, self._start - self._position) : end])
        self._position += len(piece)

    def hexdigest(self) -> str:
        """Return the digest so far."""
        return self._digest.hexdigest()


class Digests:
    """Both digests of a data set that is not deflated, and its size. `seed` 0: no seed."""

    def __init__(self, pixels_start: int | None, pixels_end: int | None, seed: int = 0) -> None:
        self._whole = xxhash.xxh3_128(seed=seed)
        self._pixels = PixelDigest(pixels_start, pixels_end, xxhash.xxh3_128(seed=seed))
        self._seed = seed
        self.size_bytes = 0

    def update(self, piece: bytes | memoryview) -> None:
        """Add the next bytes."""
        view = memoryview(piece)
        for start in range(0, len(view), _SLICE_BYTES):
            part = view[start : start + _SLICE_BYTES]
            self._whole.update(part)
            self._pixels.update(part)
        self.size_bytes += len(view)

    def hexdigests(self) -> tuple[str, str]:
        """Return the digests of the data set, and of its Pixel Data."""
        return written(self._whole.hexdigest(), self._seed), written(
            self._pixels.hexdigest(), self._seed
        )
