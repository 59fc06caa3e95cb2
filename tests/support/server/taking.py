"""An object that is here as a whole, taken as one that comes piece by piece."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from hilum.receive.headers.file_meta import FileMeta
from hilum.receive.sinks import StoreOutcome
from hilum.receive.storage.dispatcher import ObjectDispatcher
from hilum.receive.storage.incoming_object import Arriving, TakerOf
from hilum.receive.storage.store_command import StoreCommand


@dataclass(frozen=True, slots=True)
class StoreRequest:
    """A C-STORE-RQ with its data set."""

    meta: FileMeta
    context_sop_class_uid: str
    data_set: memoryview

    @property
    def command(self) -> StoreCommand:
        """Without the data set."""
        return StoreCommand(self.meta, self.context_sop_class_uid)


def store(request: StoreRequest, taker_of: TakerOf) -> StoreOutcome:
    """Return when the request may be acknowledged.

    Raises Refusal or OSError, and then nothing of it is left.
    """
    with contextlib.closing(Arriving(request.command, taker_of)) as arriving:
        arriving.write([request.data_set])
        return arriving.commit()


def receive(request: StoreRequest, reception: ObjectDispatcher) -> StoreOutcome:
    """The same by all that a reception knows."""
    with contextlib.closing(reception.begin(request.command)) as arriving:
        arriving.write([request.data_set])
        return arriving.commit()
