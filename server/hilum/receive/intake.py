"""One C-STORE request, from its bytes to a durable file: promise 1, whatever the bytes came over."""

from __future__ import annotations

from dataclasses import dataclass

from hilum import telemetry
from hilum.receive import file_meta
from hilum.receive.file_meta import FileMeta
from hilum.receive.header import Header, is_uid, read_header
from hilum.receive.indexer import Indexer
from hilum.receive.refusals import DataSetDoesNotMatch, OutOfResources, SopClassNotNegotiated
from hilum.settings import Receive
from hilum.store.archive import Archive


@dataclass(frozen=True, slots=True)
class StoreRequest:
    """A C-STORE-RQ: what the command said, under which Presentation Context, and the data set as received."""

    meta: FileMeta
    context_sop_class_uid: str
    data_set: memoryview


class Intake:
    """Takes requests from any number of threads."""

    def __init__(self, settings: Receive, archive: Archive, indexer: Indexer) -> None:
        self._settings, self._archive, self._indexer = settings, archive, indexer

    def store(self, request: StoreRequest) -> None:
        """Return when the object is durable and will be indexed: only then may it be acknowledged.

        Raises Refusal or OSError, and then nothing of it is left on the disk.
        """
        self.require_room(len(request.data_set))
        consistent_header(request)
        with self._archive.begin() as incoming:
            incoming.write(file_meta.encode(request.meta))
            incoming.write(request.data_set)
            with telemetry.cpu("sync"):
                file = incoming.commit()
        self._indexer.put(file)
        telemetry.RECEIVED_BYTES.inc(len(request.data_set))

    def require_room(self, size: int) -> None:
        """Refuse before the disk is full or the queue too long (promise 3)."""
        if size > self._settings.maximum_object_bytes:
            raise OutOfResources(f"Larger than the limit of {self._settings.maximum_object_bytes >> 20} MiB")
        if self._archive.free_bytes() - size < self._settings.reserve_bytes:
            raise OutOfResources("Storage is nearly full; send again later")
        if self._indexer.is_overloaded:
            raise OutOfResources("The ledger is not available; send again later")


def consistent_header(request: StoreRequest) -> Header:
    """The command, its Presentation Context and the data set must speak of one object (PS3.4 B.2.3, A9xx). Raises Refusal."""
    meta = request.meta
    if meta.sop_class_uid != request.context_sop_class_uid:
        raise SopClassNotNegotiated("The command names another SOP Class than its context")
    if not is_uid(meta.sop_instance_uid):
        raise DataSetDoesNotMatch("Affected SOP Instance UID (0000,1000) is not a valid UID")
    header = read_header(request.data_set, meta.transfer_syntax_uid)
    if header.sop_class_uid != meta.sop_class_uid:
        raise DataSetDoesNotMatch("SOP Class UID (0008,0016) differs from the command's")
    if header.sop_instance_uid != meta.sop_instance_uid:
        raise DataSetDoesNotMatch("SOP Instance UID (0008,0018) differs from the command's")
    return header
