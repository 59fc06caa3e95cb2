"""A small Storage SCP by pynetdicom, as the destination of a C-MOVE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from pynetdicom import AE, evt

from hilum.domain import IMAGE_SOP_CLASSES, TRANSFER_SYNTAXES

STORED = 0x0000
REFUSED = 0xA700


class StorageScp:
    """Takes images only; enter it as a context.

    `refuses`: whether the image with this number (the first is 1) is answered A700. `uids`: what
    was stored, in its order.
    """

    def __init__(self, refuses: Callable[[int], bool] = lambda _number: False) -> None:
        self.uids: list[str] = []
        self.asked = 0
        self._refuses = refuses
        entity = AE(ae_title="HILUM_ARC")
        for sop_class in IMAGE_SOP_CLASSES.values():
            entity.add_supported_context(sop_class, list(TRANSFER_SYNTAXES.values()))
        self._server = entity.start_server(
            ("127.0.0.1", 0), block=False, evt_handlers=[(evt.EVT_C_STORE, self._store)]
        )
        self.port = int(self._server.socket.getsockname()[1])

    def __enter__(self) -> Self:
        """It runs already."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop it."""
        self._server.shutdown()

    def _store(self, event: Any) -> int:
        self.asked += 1
        if self._refuses(self.asked):
            return REFUSED
        self.uids.append(str(event.request.AffectedSOPInstanceUID))
        return STORED
