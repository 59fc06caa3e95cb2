"""One association of the router, opened when it is needed, and again when it broke."""

from __future__ import annotations

from load_tests.proof.images import Image
from testing.network.peer_address import Peer
from testing.network.storage_scu import NotStored, StorageScu

CALLING_AE_TITLE = "ROUTER"
_ANSWER_SECONDS = 20.0


class Line:
    """For one thread."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._peer = Peer("HILUM", host, port)
        self._association: StorageScu | None = None

    def store(self, image: Image) -> str:
        """The status of the answer in hexadecimal, or why there is none.

        Then nobody knows what became of the image.
        """
        try:
            return f"0x{self._open(image).store(image.outgoing):04X}"
        except NotStored as reason:
            return str(reason)

    def close(self) -> None:
        """Release."""
        if self._association is not None:
            self._association.release()

    def _open(self, image: Image) -> StorageScu:
        if self._association is None or not self._association.is_open:
            self._association = StorageScu(
                self._peer, CALLING_AE_TITLE, [image.kind], _ANSWER_SECONDS
            )
            self._association.associate()
        return self._association
