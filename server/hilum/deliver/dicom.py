"""A PACS as destination: C-STORE over one association that is kept for the next document and released when idle."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydicom.uid import ExplicitVRLittleEndian

from hilum.deliver.association import Peer, associate, store
from hilum.deliver.lane import Unknown
from hilum.domain import Document
from hilum.errors import Refused
from hilum.settings import Destination

_RELEASE_SECONDS: Final = 5.0


class DicomLane:
    """One association at a time, for one SOP Class. A timer releases it when it has been idle for long enough."""

    def __init__(self, name: str, destination: Destination) -> None:
        self._name = name
        self._peer = Peer(
            destination.host, destination.port, destination.ae_title, destination.calling_ae_title, destination.timeout_seconds
        )
        self._idle_seconds = destination.idle_release_seconds
        self._lock = threading.Lock()
        self._association: Any = None
        self._sop_class_uid: str | None = None
        self._timer: threading.Timer | None = None

    def deliver(self, document: Document) -> None:
        """Return when the receiver has answered with success or a warning (see `Lane.deliver`)."""
        if document.sop_class_uid is None:
            raise Refused("not_a_dicom_object", f"{document.kind} is no DICOM object; send it to a folder")
        with self._lock, _as_file(document.content) as file:
            self._stop_timer()
            try:
                store(self._established(document.sop_class_uid), file, self._peer)
            except Unknown:
                self._abort()
                raise
            finally:
                self._start_timer()

    def close(self) -> None:
        """Release the association."""
        with self._lock:
            self._stop_timer()
            self._release()

    def _established(self, sop_class_uid: str) -> Any:  # noqa: ANN401 - pynetdicom ships no types
        """The open association if it serves this class and the receiver has not ended it meanwhile; else a new one."""
        if self._association is None or not self._association.is_established or self._sop_class_uid != sop_class_uid:
            self._release()
            # Exactly what is sent is proposed: some receivers reject associations that propose more than they know.
            self._association = associate(self._peer, [(sop_class_uid, ExplicitVRLittleEndian)])
            self._sop_class_uid = sop_class_uid
        return self._association

    def _abort(self) -> None:
        """An answer may still be on its way, and it must not be taken for the answer to the next document."""
        if self._association is not None:
            self._association.abort()
            self._association = None

    def _start_timer(self) -> None:
        if self._association is None:
            return
        self._timer = threading.Timer(self._idle_seconds, self.close)
        self._timer.name, self._timer.daemon = f"idle-{self._name}", True
        self._timer.start()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _release(self) -> None:
        """Release, but do not wait long for a receiver that has gone: pynetdicom's thread would keep the process from ending."""
        if self._association is not None and self._association.is_established:
            self._association.acse_timeout = _RELEASE_SECONDS
            self._association.release()
        self._association = None


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[Path]:
    """The bytes under a path, in memory: pynetdicom reads only files without decoding them."""
    descriptor = os.memfd_create("document")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
