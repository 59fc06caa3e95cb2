"""The data set of an N-ACTION or N-EVENT-REPORT request in transit, held in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hilum.receive.commitment.request import MAXIMUM_BYTES
from hilum.receive.upper_layer.provider import BorrowedBuffer, StoreStatus


class SmallDataSet:
    """A `DataSetSink` that hands its bytes to `take`, which returns the status.

    Beyond the limit one byte is kept as a mark, the rest discarded.
    """

    reads_after = None

    def __init__(self, take: Callable[[bytes], StoreStatus]) -> None:
        self._take = take
        self._encoded = bytearray()

    def write(self, pieces: Sequence[memoryview]) -> None:
        """Take the next bytes."""
        for piece in pieces:
            self._encoded += piece[: MAXIMUM_BYTES + 1 - len(self._encoded)]

    def receive(self, unread: BorrowedBuffer, size: int) -> None:
        """Raise NotImplementedError: it is never called."""
        raise NotImplementedError

    def finish(self) -> StoreStatus:
        """Return the status of the complete request."""
        return self._take(bytes(self._encoded))

    def close(self) -> None:
        """Discard the bytes."""
        self._encoded = bytearray()
