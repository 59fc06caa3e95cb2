"""A stand-in for a whole Hilum, for tests of the load generator.

It takes images and sends a report on each study.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from pydicom import Dataset
from pydicom.dataset import FileMetaDataset
from pydicom.uid import (
    Comprehensive3DSRStorage,
    DigitalXRayImageStorageForPresentation,
    ExplicitVRLittleEndian,
    generate_uid,
)
from pynetdicom import AE, evt
from pynetdicom.events import Event

_TRIES = 5


class AnsweringPeer:
    """Sends one report when a study has two images.

    `status` is what it answers to images; `is_silent`: it never reports.
    """

    def __init__(
        self,
        report_port: int,
        *,
        status: int = 0x0000,
        is_silent: bool = False,
        changes: bool = False,
    ) -> None:
        self._report_port, self._status, self._is_silent, self._changes = (
            report_port,
            status,
            is_silent,
            changes,
        )
        self._images: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._uid = generate_uid()

    def store(self, event: Event) -> int:
        """EVT_C_STORE."""
        study = str(event.dataset.StudyInstanceUID)
        with self._lock:
            self._images[study] += 1
            is_complete = self._images[study] == 2
        if is_complete and not self._is_silent and self._status == 0:
            threading.Timer(0.05, self._report, [study]).start()
        return self._status

    def _report(self, study: str) -> None:
        report = Dataset()
        report.SOPClassUID, report.StudyInstanceUID = Comprehensive3DSRStorage, study
        # A peer that breaks its promise sends other bytes under one UID.
        report.SOPInstanceUID = self._uid if self._changes else generate_uid()
        report.file_meta = FileMetaDataset()
        report.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        ae = AE("FAKE")
        ae.add_requested_context(Comprehensive3DSRStorage, ExplicitVRLittleEndian)
        if not any(_is_sent(ae, report, self._report_port) for _ in range(_TRIES)):
            raise RuntimeError(f"no report of {study} was taken in {_TRIES} tries")


def _is_sent(ae: AE, report: Dataset, port: int) -> bool:
    """On a busy machine an association may break off.

    Like any sender of reports, the peer tries again.
    """
    association = ae.associate("127.0.0.1", port)
    if not association.is_established:
        return False
    answer = association.send_c_store(report)
    association.release()
    return "Status" in answer and answer.Status == 0


@contextmanager
def answering(peer: AnsweringPeer, port: int) -> Iterator[None]:
    """The peer, listening."""
    ae = AE("FAKE")
    ae.add_supported_context(DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian)
    server = ae.start_server(
        ("127.0.0.1", port), block=False, evt_handlers=[(evt.EVT_C_STORE, peer.store)]
    )
    try:
        yield
    finally:
        server.shutdown()
