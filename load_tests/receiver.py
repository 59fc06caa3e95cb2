"""The destination of a load test: an SCP that notes when each report arrives, and whether one comes twice with other bytes."""

from __future__ import annotations

import hashlib
import io
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import pydicom
from pydicom.uid import Comprehensive3DSRStorage, ExplicitVRLittleEndian, ImplicitVRLittleEndian
from pynetdicom import AE, evt
from pynetdicom.events import Event

from load_tests.sender import without_delay

AE_TITLE = "LOADTEST"
_SUCCESS, _CANNOT_UNDERSTAND = 0x0000, 0xC000


@dataclass
class Arrivals:
    """Reports by study: when each came (`time.monotonic`). Filled by the association's threads."""

    by_study: dict[str, list[float]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    repeated: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, study_instance_uid: str, sop_instance_uid: str, digest: str, moment: float) -> None:
        """One report. The same SOP Instance again is a repetition: harmless with the same bytes, a broken promise with others."""
        with self.lock:
            known = self.digests.get(sop_instance_uid)
            if known is None:
                self.digests[sop_instance_uid] = digest
                self.by_study.setdefault(study_instance_uid, []).append(moment)
            elif known == digest:
                self.repeated += 1
            else:
                self.changed.append(sop_instance_uid)

    def first_after(self, study_instance_uid: str, moment: float) -> float | None:
        """When the first report on the study came after `moment`."""
        with self.lock:
            return next((at for at in self.by_study.get(study_instance_uid, []) if at >= moment), None)

    def count(self) -> int:
        """Studies that have a report."""
        with self.lock:
            return len(self.by_study)


class Receiver:
    """C-STORE SCP for Comprehensive 3D SR. A context manager."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.arrivals = Arrivals()
        self._address = (host, port)
        self._ae = AE(AE_TITLE)
        self._ae.maximum_pdu_size = 0
        self._ae.add_supported_context(Comprehensive3DSRStorage, [ExplicitVRLittleEndian, ImplicitVRLittleEndian])
        self._ae.add_supported_context("1.2.840.10008.1.1")

    def __enter__(self) -> Self:
        """Listen."""
        handlers = [(evt.EVT_C_STORE, self._store), (evt.EVT_CONN_OPEN, without_delay)]
        self._server = self._ae.start_server(self._address, block=False, evt_handlers=handlers)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Stop listening."""
        self._server.shutdown()

    def _store(self, event: Event) -> int:
        moment = time.monotonic()
        content = event.request.DataSet.getvalue()
        is_implicit = event.context.transfer_syntax == ImplicitVRLittleEndian
        uids = pydicom.filereader.read_dataset(
            io.BytesIO(content), is_implicit, is_little_endian=True, specific_tags=[pydicom.tag.Tag("StudyInstanceUID")]
        )
        if not uids.get("StudyInstanceUID"):
            return _CANNOT_UNDERSTAND
        sop_instance_uid = str(event.request.AffectedSOPInstanceUID)
        self.arrivals.note(str(uids.StudyInstanceUID), sop_instance_uid, hashlib.sha256(content).hexdigest(), moment)
        return _SUCCESS
