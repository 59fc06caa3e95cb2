"""A PACS as destination: C-STORE over one association, kept for the next document.

The association is released when idle.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from io import BytesIO

from pydicom.uid import ExplicitVRLittleEndian

from hilum.deliver.class_ladder import ClassLadder, instead
from hilum.deliver.client import Probe
from hilum.deliver.probe import probe_receiver
from hilum.deliver.scu.association import OutgoingMessage, Peer, ScuAssociation, associate, refusal
from hilum.dicom.tls_client import tls_of
from hilum.domain import SR, SR_KINDS, Document
from hilum.errors import Refused
from hilum.settings import DicomDestination
from hilum_preprocessing.header.part10 import data_set_start


def peer_of(destination: DicomDestination) -> Peer:
    """Return the receiver as the settings describe it."""
    titles = destination.ae_title, destination.calling_ae_title
    return Peer(
        destination.host,
        destination.port,
        *titles,
        destination.timeout_seconds,
        tls_of(destination, destination.host),
    )


def commitment_peer(destination: DicomDestination) -> Peer:
    """Return the receiver that is asked for storage commitment."""
    host = destination.commitment_host or destination.host
    return Peer(
        host,
        destination.commitment_port or destination.port,
        destination.commitment_ae_title or destination.ae_title,
        destination.calling_ae_title,
        destination.timeout_seconds,
        tls_of(destination, host),
    )


class DicomClient:
    """The client to a PACS: one association at a time, released when idle.

    It serves the SR classes of the destination and the other classes sent there.
    """

    def __init__(self, name: str, destination: DicomDestination) -> None:
        self._name = name
        self._destination = destination
        self._peer = peer_of(destination)
        self._ladder = ClassLadder(destination)
        self._idle_seconds = destination.idle_release_seconds
        self._lock = threading.Lock()
        self._association: ScuAssociation | None = None
        self._takes_reports = SR.key in destination.documents
        self._others: tuple[str, ...] = ()
        self._proposed: tuple[str, ...] = ()
        self._timer: threading.Timer | None = None
        self._used_at = 0.0

    def deliver(self, document: Document) -> None:
        """Return when the receiver has responded with success or a warning.

        See `DestinationClient.deliver`.
        """
        if document.sop_class_uid is None:
            raise Refused(
                "not_a_dicom_object", f"{document.kind} is no DICOM object; send it to a folder"
            )
        with self._lock:
            try:
                self._store(document.sop_class_uid, _outgoing(document), document.kind)
            finally:
                self._used_at = time.monotonic()
                if self._timer is None:
                    self._start_timer(self._idle_seconds)

    def probe(self, limit_seconds: float | None = None) -> Probe:
        """Test the receiver by an association of its own (see `probe_receiver`)."""
        allowed = self._peer.timeout_seconds
        seconds = allowed if limit_seconds is None else min(allowed, limit_seconds)
        peer = replace(self._peer, timeout_seconds=seconds)
        return probe_receiver(self._name, peer, self._destination, self._ladder.classes)

    def close(self) -> None:
        """Release the association."""
        with self._lock:
            self._stop_timer()
            self._release()

    def _store(self, sop_class_uid: str, outgoing: OutgoingMessage, kind: str) -> None:
        association = self._established(sop_class_uid, kind)
        below = self._ladder.below(sop_class_uid)
        lower = next((item for item in below if association.context(item.sop_class_uid)), None)
        if association.context(sop_class_uid) is None:
            raise (
                instead(str(self._peer), sop_class_uid, lower)
                if lower
                else refusal(association, sop_class_uid)
            )
        try:
            association.store(outgoing)
        except Refused as error:  # accepted in the negotiation, but refused (0x0122)
            if lower is None or error.reason != "sop_class_refused":
                raise
            raise instead(str(self._peer), sop_class_uid, lower) from error

    def _established(self, sop_class_uid: str, kind: str) -> ScuAssociation:
        """Return the open association if it serves this class and has not ended, else a new one."""
        wanted = self._contexts(sop_class_uid, kind)
        if (
            self._association is None
            or not self._association.is_established
            or self._proposed != wanted
        ):
            self._release()
            # Only classes that may be sent are proposed: some receivers reject associations that
            # propose unknown ones.
            self._association = associate(
                self._peer, [(uid, ExplicitVRLittleEndian) for uid in wanted]
            )
            self._proposed = wanted
        return self._association

    def _contexts(self, sop_class_uid: str, kind: str) -> tuple[str, ...]:
        """Return the SOP Classes to propose together, the same for the next document.

        The SR class that is accepted decides the class that is sent. A text report that was asked
        for as such has one class, and the ladder may lack it.
        """
        is_of_ladder = kind in SR_KINDS
        if not is_of_ladder:
            self._others = tuple(dict.fromkeys([*self._others, sop_class_uid]))
        reports = (
            [item.sop_class_uid for item in self._ladder.classes]
            if self._takes_reports or is_of_ladder
            else []
        )
        return tuple(dict.fromkeys([*reports, *self._others]))

    def _start_timer(self, seconds: float) -> None:
        if self._association is None:
            return
        timer = threading.Timer(seconds, self._release_if_idle)
        timer.name = f"idle-{self._name}"
        timer.daemon = True
        # raises where the machine has no thread left; then the next document tries again
        timer.start()
        self._timer = timer

    def _release_if_idle(self) -> None:
        """Release the association if it is idle; runs in the timer's thread.

        A timer for each document would be a thread for each, so one timer checks the time of the
        last document.
        """
        with self._lock:
            if self._timer is not threading.current_thread():
                return  # the client was closed while this thread waited for the lock
            self._timer = None
            left = self._used_at + self._idle_seconds - time.monotonic()
            if left > 0:
                self._start_timer(left)
            else:
                self._release()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _release(self) -> None:
        if self._association is not None:
            self._association.release()
        self._association = None


def _outgoing(document: Document) -> OutgoingMessage:
    """Return the data set of a stored document, without its File Meta Information."""
    content = document.content
    start = data_set_start(content)
    stream = BytesIO(content)
    stream.seek(start)
    uids = str(document.sop_class_uid), str(document.sop_instance_uid)
    return OutgoingMessage(*uids, ExplicitVRLittleEndian, stream, len(content) - start)
