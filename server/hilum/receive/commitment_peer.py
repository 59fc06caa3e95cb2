"""A report of storage commitment over an association of our own, in which we are the SCP (PS3.7 D.3.3.4)."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator

from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian
from pynetdicom import AE, build_role, evt
from pynetdicom.association import Association
from pynetdicom.events import Event

from hilum import IMPLEMENTATION_CLASS_UID, IMPLEMENTATION_VERSION_NAME
from hilum.domain import Advance, CommitmentJob, CommitmentVerdict
from hilum.errors import Refused, Retry
from hilum.receive.commitment_report import answered, event_type_of, information_of
from hilum.receive.commitment_request import WELL_KNOWN_INSTANCE
from hilum.receive.terms import STORAGE_COMMITMENT
from hilum.settings import CommitmentPeer

Tls = tuple[ssl.SSLContext, str]  # and the name in the certificate


def report_to(peer: CommitmentPeer, job: CommitmentJob, verdict: CommitmentVerdict, tls: Tls | None = None) -> Advance:
    """Return when the asker has answered. Raises Retry or Refused."""
    request = job.request
    called = peer.ae_title or request.calling_ae_title
    with _associated(peer, tls, calling=request.called_ae_title, called=called) as assoc:
        information = information_of(request.transaction_uid, verdict)
        answer, _ = assoc.send_n_event_report(information, event_type_of(verdict), STORAGE_COMMITMENT, WELL_KNOWN_INSTANCE)
        return answered(answer.get("Status"), verdict)


@contextlib.contextmanager
def _associated(peer: CommitmentPeer, tls: Tls | None, *, calling: str, called: str) -> Iterator[Association]:
    """The Called AE Title of the request calls: its sender knows it."""
    ae = AE(calling)
    ae.implementation_class_uid, ae.implementation_version_name = IMPLEMENTATION_CLASS_UID, IMPLEMENTATION_VERSION_NAME
    ae.connection_timeout = ae.acse_timeout = ae.dimse_timeout = ae.network_timeout = peer.timeout_seconds
    ae.add_requested_context(STORAGE_COMMITMENT, [ExplicitVRLittleEndian, ImplicitVRLittleEndian])
    role = build_role(STORAGE_COMMITMENT, scp_role=True)
    opened = [(evt.EVT_CONN_OPEN, _send_at_once)]
    assoc = ae.associate(peer.host, peer.port, ae_title=called, ext_neg=[role], evt_handlers=opened, tls_args=tls)
    try:
        _require_established(assoc, f"{called} at {peer.host}:{peer.port}", calling)
        yield assoc
    finally:
        if assoc.is_established:
            assoc.release()


def _require_established(assoc: Association, who: str, calling: str) -> None:
    if assoc.is_rejected:
        raise Retry(f"{who} rejected the association; register {calling} there")
    if assoc.rejected_contexts and not assoc.accepted_contexts:
        raise Refused("sop_class_refused", f"{who} does not take Storage Commitment with us as SCP; enable it there, then requeue")
    if not assoc.is_established:
        raise Retry(f"no DICOM answer from {who}; is it running, are host and port right, is a firewall between?")


def _send_at_once(event: Event) -> None:
    """Without it command and data set wait for each other's acknowledgement."""
    event.assoc.dul.socket.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
