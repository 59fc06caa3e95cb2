"""A store of fetched objects in memory; see `retrieve.source.ObjectStore`."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import pydicom

from hilum.retrieve.source import PartOutcome


class MemoryPart:
    """An object on its way into a `MemoryStore`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._stream = io.BytesIO()

    def write(self, piece: bytes) -> None:
        """Take the next bytes."""
        self._stream.write(piece)

    def end(self) -> PartOutcome:
        """Keep it, or refuse it."""
        return self._store.keep(self._stream.getvalue())

    def abandon(self) -> None:
        """Count it."""
        self._store.abandoned += 1


class MemoryStore:
    """A store of fetched objects in memory; `refuses` counts as `StorageScp` does."""

    def __init__(self, refuses: Callable[[int], bool] = lambda _number: False) -> None:
        self.files: list[bytes] = []
        self.abandoned = 0
        self._refuses = refuses
        self._asked = 0

    def begin(self, origin: str = "") -> MemoryPart:
        """Begin an object."""
        del origin
        return MemoryPart(self)

    def keep(self, content: bytes) -> PartOutcome:
        """Keep a whole object, or refuse it."""
        uid = str(pydicom.dcmread(io.BytesIO(content)).SOPInstanceUID)
        self._asked += 1
        if self._refuses(self._asked):
            return PartOutcome(uid, "the disk is full", is_transient=True)
        self.files.append(content)
        return PartOutcome(uid)

    def uids(self) -> Sequence[str]:
        """What was stored."""
        return [str(pydicom.dcmread(io.BytesIO(item)).SOPInstanceUID) for item in self.files]
