"""One image, from its first bytes to a durable file.

An image is durable before it is acknowledged, for every transport.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from pydicom.uid import DeflatedExplicitVRLittleEndian

from hilum.domain import Instance
from hilum.observability import telemetry, tracing
from hilum.receive.headers import file_meta
from hilum.receive.headers.header import Header
from hilum.receive.indexing.describe import instance_of
from hilum.receive.indexing.indexer import Indexer
from hilum.receive.sinks import StoreOutcome
from hilum.receive.statuses import OutOfResources, TooLarge
from hilum.receive.storage.compiled import digests_of
from hilum.receive.storage.store_command import StoreCommand
from hilum.receive.storage.transfer_library import CompiledDigests
from hilum.receive.upper_layer.provider import BorrowedBuffer
from hilum.settings import Receive
from hilum.store.archive.archive import Archive, Incoming

_LOOK_BYTES = 16 << 20  # of an object, between two looks at the disk


class ImageStore:
    """The intake of images, for any number of threads. `seed`: of their digests."""

    def __init__(
        self, settings: Receive, archive: Archive, indexer: Indexer, seed: int = 0
    ) -> None:
        self._settings = settings
        self._archive = archive
        self._indexer = indexer
        self.seed = seed

    def begin(self, command: StoreCommand, header: Header) -> ImageSink:
        """Return a new image; close it."""
        image = ImageSink(self, command, header, self._archive)
        self._indexer.under_way.add(image)
        return image

    def end(self, image: ImageSink) -> None:
        """Note that the image is stored, or never will be."""
        self._indexer.under_way.discard(image)

    def require_size(self, size: int) -> None:
        """Raise TooLarge for a data set with more bytes than the limit."""
        if size > self._settings.maximum_object_bytes:
            raise TooLarge(
                f"Larger than the limit of {self._settings.maximum_object_bytes >> 20} MiB"
            )

    def permitted(self, size: int) -> int:
        """Return so many bytes of a data set, or the limit."""
        return min(size, self._settings.maximum_object_bytes)

    def require_room(self, more: int) -> int:
        """Return how many bytes may follow `more` bytes before the next look at the disk.

        Raises OutOfResources before the disk is full or the queue too long.
        """
        free = self._archive.free()
        room = free.bytes - more - self._settings.reserve_bytes
        if room < 0 or (free.files is not None and free.files < self._settings.reserve_files):
            raise OutOfResources("Storage is nearly full; send again later")
        if self._indexer.is_overloaded:
            raise OutOfResources("The ledger is not available; send again later")
        # All permitted associations together do not reach the reserve before their next look.
        return min(_LOOK_BYTES, room // self._settings.maximum_associations)

    def index(self, file: str, instance: Instance | None, size_bytes: int) -> None:
        """Give a durable image its row soon."""
        self._indexer.put(file, instance)
        telemetry.RECEIVED_BYTES.inc(size_bytes)


class ImageSink:
    """An image in transit to the archive. Closed without `commit` it leaves nothing on the disk."""

    def __init__(
        self, intake: ImageStore, command: StoreCommand, header: Header, archive: Archive
    ) -> None:
        self._intake = intake
        self._meta = command.meta
        self._header = header
        self._archive = archive
        self._trace = tracing.of_study(header.study_instance_uid)
        self._association = command.association
        self._began = time.time() if self._trace else 0.0
        self._digests = digests_of(header, intake.seed)
        self.is_receiver = isinstance(self._digests, CompiledDigests)
        self._archived: Incoming | None = None
        self._granted = 0  # its permitted size before the next look at the disk

    def write(self, pieces: Sequence[memoryview]) -> None:
        """Write the next bytes of the data set. Raises OutOfResources, OSError."""
        self._require_room(sum(map(len, pieces)))
        if self._archived is None:
            self._archived = self._archive.begin()
            self._archived.write(file_meta.encode(self._meta), *pieces)
        else:
            self._archived.write(*pieces)
        for piece in pieces:
            self._digests.update(piece)

    def receive(self, unread: BorrowedBuffer, size: int) -> None:
        """Receive until the next look at the disk is due. Raises OutOfResources, OSError."""
        digests = self._digests
        if self._archived is None or not isinstance(digests, CompiledDigests):
            return
        self._require_room(unread.first)
        limit = self._intake.permitted(self._granted) - digests.size_bytes
        borrowed = self._archived.borrow()
        try:
            digests.library.transfer(unread, size, limit, borrowed, digests)
        finally:
            self._archived.give_back(borrowed)

    def _require_room(self, more: int) -> None:
        size = self._digests.size_bytes + more
        self._intake.require_size(size)
        if size > self._granted:
            self._granted = size + self._intake.require_room(more)

    def commit(self) -> StoreOutcome:
        """Return when the image is durable and will be indexed. Raises OSError."""
        if (archived := self._archived) is None:
            raise ValueError("no data set was written")
        with telemetry.cpu("sync"):
            archived.make_durable()
        self._intake.index(archived.file, self._instance(archived), self._digests.size_bytes)
        if self._trace is not None:
            self._write_span(self._trace)
        return StoreOutcome.IMAGE

    def _write_span(self, trace: tracing.Trace) -> None:
        above = None if self._association is None else self._association.place_in(trace)
        parent = trace.root if above is None else above.span
        said: tracing.Attributes = {
            "sop_instance_uid": self._header.sop_instance_uid,
            "transfer_syntax_uid": self._meta.transfer_syntax_uid,
            "size_bytes": self._digests.size_bytes,
        }
        place = tracing.new_place(trace)
        tracing.write(
            tracing.FinishedSpan(place, parent, "receive", self._began, time.time(), "server", said)
        )

    def _instance(self, archived: Incoming) -> Instance | None:
        """Return the fields of the row; None: it is deflated, so its pixels have not been seen."""
        if self._meta.transfer_syntax_uid == DeflatedExplicitVRLittleEndian:
            return None
        return instance_of(
            archived.file,
            self._meta,
            self._header,
            self._digests.hexdigests(),
            archived.size_bytes,
            archived.modified_at,
        )

    def close(self) -> None:
        """Close it, once, at the end."""
        self._intake.end(self)
        if self._archived is not None:
            self._archived.close()
