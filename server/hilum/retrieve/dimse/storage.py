"""The storage side of a C-GET: an object becomes a Part 10 stream (PS3.10 7.1) in the store."""

from __future__ import annotations

import io
from collections.abc import Collection
from typing import Any, Final

from pydicom.dataset import FileMetaDataset
from pydicom.filebase import DicomBytesIO
from pydicom.filewriter import write_file_meta_info
from pydicom.uid import UID

from hilum import IMPLEMENTATION_CLASS_UID, IMPLEMENTATION_VERSION_NAME
from hilum.retrieve.source import ObjectStore

_STORED: Final = 0x0000
_REFUSED: Final = 0xA700  # out of resources: the server may send it again
_NOT_NEGOTIATED: Final = 0x0122
_NOT_WANTED: Final = 0xB006  # a warning, "elements discarded": servers go on with the next object
_PIECE_BYTES: Final = 1 << 20
_PREAMBLE: Final = bytes(128) + b"DICM"


class GetStorage:
    """Takes the objects of one C-GET; `problem` is that of the last one that was not stored.

    An object that was not asked for is discarded.
    """

    def __init__(
        self, store: ObjectStore, wanted: Collection[str], contexts: dict[int, Any]
    ) -> None:
        self.problem = ""
        self.stored = 0
        self._store = store
        self._wanted = frozenset(wanted)
        self._contexts = contexts

    def take(self, message: Any, context_id: int) -> int:  # noqa: ANN401 - pynetdicom has no types
        """Store the object of a C-STORE request; return the status of the response."""
        context = self._contexts.get(context_id)
        sop_class = str(message.AffectedSOPClassUID)
        if context is None or context.abstract_syntax != sop_class or message.DataSet is None:
            return _NOT_NEGOTIATED
        uid = str(message.AffectedSOPInstanceUID)
        if uid not in self._wanted:
            return _NOT_WANTED
        meta = file_meta(sop_class, uid, str(context.transfer_syntax[0]))
        return self._put(meta, message.DataSet)

    def _put(self, meta: bytes, data_set: io.BytesIO) -> int:
        part = self._store.begin()
        try:
            part.write(meta)
            with data_set.getbuffer() as content:
                for first in range(0, len(content), _PIECE_BYTES):
                    part.write(bytes(content[first : first + _PIECE_BYTES]))
        except BaseException:
            part.abandon()
            raise
        outcome = part.end()
        if outcome.problem:
            self.problem = outcome.problem
            return _REFUSED
        self.stored += 1
        return _STORED


def file_meta(sop_class_uid: str, sop_instance_uid: str, transfer_syntax_uid: str) -> bytes:
    """Return the preamble and the File Meta Information of an object."""
    meta = FileMetaDataset()
    meta.FileMetaInformationVersion = b"\0\1"
    meta.MediaStorageSOPClassUID = UID(sop_class_uid)
    meta.MediaStorageSOPInstanceUID = UID(sop_instance_uid)
    meta.TransferSyntaxUID = UID(transfer_syntax_uid)
    meta.ImplementationClassUID = UID(IMPLEMENTATION_CLASS_UID)
    meta.ImplementationVersionName = IMPLEMENTATION_VERSION_NAME
    stream = DicomBytesIO()
    write_file_meta_info(stream, meta)
    return _PREAMBLE + stream.getvalue()
