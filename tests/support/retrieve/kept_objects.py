"""Stores of fetched objects in memory; see `retrieve.source.ObjectStore`."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import pydicom

from hilum.retrieve.source import PartOutcome


class KeptObjects:
    """Remembers the objects that were ended, and those that were abandoned."""

    def __init__(self, problem: str = "") -> None:
        self.stored: list[bytes] = []
        self.abandoned: list[bytes] = []
        self._problem = problem

    def begin(self, origin: str = "") -> KeptPart:
        """Begin an object."""
        return KeptPart(self)

    def outcome(self, content: bytes) -> PartOutcome:
        """Keep a whole object."""
        self.stored.append(content)
        return PartOutcome("1.2.3", self._problem)


class KeptPart:
    """One object on its way."""

    def __init__(self, kept: KeptObjects) -> None:
        self._kept = kept
        self._content = bytearray()
        self._is_over = False

    def write(self, piece: bytes) -> None:
        """Take the next bytes."""
        assert not self._is_over
        self._content += piece

    def end(self) -> PartOutcome:
        """Keep it."""
        assert not self._is_over
        self._is_over = True
        return self._kept.outcome(bytes(self._content))

    def abandon(self) -> None:
        """Discard it."""
        assert not self._is_over
        self._is_over = True
        self._kept.abandoned.append(bytes(self._content))


class MemoryStore(KeptObjects):
    """Keeps DICOM objects under their own UIDs; `refuses` counts as `StorageScp` does."""

    def __init__(self, refuses: Callable[[int], bool] = lambda _number: False) -> None:
        super().__init__()
        self._refuses = refuses
        self._asked = 0

    def outcome(self, content: bytes) -> PartOutcome:
        """Keep a whole object, or refuse it."""
        self._asked += 1
        if self._refuses(self._asked):
            return PartOutcome(_uid_of(content), "the disk is full", is_transient=True)
        self.stored.append(content)
        return PartOutcome(_uid_of(content))

    def uids(self) -> Sequence[str]:
        """What was stored."""
        return [_uid_of(item) for item in self.stored]


def _uid_of(content: bytes) -> str:
    return str(pydicom.dcmread(io.BytesIO(content)).SOPInstanceUID)
