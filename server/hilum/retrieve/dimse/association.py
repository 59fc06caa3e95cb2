"""The association to a PACS: opened when needed, kept while requests follow."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from typing import Any, Final

from pynetdicom import AE, _config

from hilum import IMPLEMENTATION_CLASS_UID, IMPLEMENTATION_VERSION_NAME
from hilum.dicom.rejections import is_passing, rejection_text
from hilum.dicom.tls_client import Tls, handshake_problem, tls_of
from hilum.errors import Retry
from hilum.retrieve.dimse.contexts import MODALITY_WORKLIST_FIND, SERVICE_NAMES, Proposal
from hilum.retrieve.dimse.request import PendingRequest, RequestLimits, StoreHandler, abort
from hilum.retrieve.source import SourceError
from hilum.settings import DimsePeer

_LARGEST_PDU_BYTES: Final = 131_072  # DCMTK takes no larger ones
_LAST_MESSAGE_ID: Final = 65_535
# pynetdicom looks at a socket a thousand times a second, so an idle association is released.
_IDLE_SECONDS: Final = 20.0
_REUSED_SECONDS: Final = 15.0  # less: a request must not meet that release
_RELEASE_SECONDS: Final = 5.0


class PacsAssociation:
    """At most one association, and one request on it at a time. For one thread."""

    def __init__(self, settings: DimsePeer, proposal: Proposal) -> None:
        self._settings = settings
        self._proposal = proposal
        self._assoc: Any = None
        self._message_id = 0
        self._rested_at: float | None = None

    def accepted(self) -> dict[int, Any]:
        """Return the accepted contexts by ID, of an association that is opened if needed.

        Raises SourceError.
        """
        assoc = self._open()
        return {context.context_id: context for context in assoc.accepted_contexts}

    def request(
        self,
        model: str,
        message: Any,  # noqa: ANN401 - pynetdicom ships no types
        limits: RequestLimits,
        store: StoreHandler | None = None,
    ) -> PendingRequest:
        """Send a request of a service and return it. Raises SourceError."""
        context_id = self.context_id(model)
        self._message_id = self._message_id % _LAST_MESSAGE_ID + 1
        message.MessageID = self._message_id
        message.AffectedSOPClassUID = model
        return PendingRequest(self._assoc, context_id, message, limits, store)

    def context_id(self, model: str) -> int:
        """Return the context of a service. Raises SourceError, also where it is not accepted."""
        accepted = self.accepted().items()
        found = next((key for key, item in accepted if item.abstract_syntax == model), None)
        if found is None:
            raise SourceError(
                f"{self._settings.address} does not offer {SERVICE_NAMES[model]} to our AE Title"
                f" {self._settings.calling_ae_title}; enable it there",
                is_final=True,
            )
        return found

    def transfer_syntax(self, model: str) -> Any:  # noqa: ANN401 - the same
        """Return the Transfer Syntax of the identifiers of a service."""
        return self.accepted()[self.context_id(model)].transfer_syntax[0]

    def rest(self) -> None:
        """Release the association when nothing follows for a while."""
        self._rested_at = time.monotonic()
        if self._assoc is not None:
            self._assoc.network_timeout = _IDLE_SECONDS

    def close(self) -> None:
        """Release the association now; may be called twice."""
        assoc = self._assoc
        self._assoc = None
        if assoc is None:
            return
        # Its own thread releases it: `release` of another thread may wait without end in a race.
        assoc.network_timeout = 0.0
        assoc.join(_RELEASE_SECONDS)
        if assoc.is_alive():
            abort(assoc)

    def _open(self) -> Any:  # noqa: ANN401 - the same
        """Return the association; a new one where there is none, or it was idle too long."""
        assoc = self._assoc
        rested = 0.0 if self._rested_at is None else time.monotonic() - self._rested_at
        if assoc is None or not assoc.is_established or rested > _REUSED_SECONDS:
            self.close()
            assoc = self._associate()
            # Nagle's algorithm would hold back the second packet of each request for 40 ms.
            assoc.dul.socket.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            acknowledge_without_delay(assoc.dul.socket)
            assoc.network_timeout_response = "A-RELEASE"
            # Its reactor serves no request, and must never take a response off the queue.
            assoc.dimse.get_msg = _no_message
        assoc.network_timeout = None
        self._assoc = assoc
        self._rested_at = None
        return assoc

    def _associate(self) -> Any:  # noqa: ANN401 - the same
        settings = self._settings
        tls = tls_of(settings, settings.host)
        try:
            assoc = _entity(settings).associate(
                settings.host,
                settings.port,
                self._proposal.contexts,
                ae_title=settings.ae_title,
                max_pdu=_LARGEST_PDU_BYTES,
                ext_neg=list(self._proposal.roles),
                tls_args=tls and (tls.context(), tls.server_name),
            )
        except Retry as error:
            raise SourceError(error.detail, is_outage=True) from error
        except OSError as error:
            raise _unreachable(settings, error) from error
        if not assoc.is_established:
            raise _refusal(settings, assoc, tls)
        return assoc


def acknowledge_without_delay(transport: Any) -> None:  # noqa: ANN401 - the same
    """Have each read set TCP_QUICKACK, because the kernel forgets it.

    DCMTK and Orthanc write a response and its identifier apart. Their kernel holds the second back
    until ours acknowledges the first, which by default takes 40 ms.
    """
    receive = transport.recv

    def receive_at_once(count: int) -> bytearray:
        with contextlib.suppress(OSError):  # a read that fails too says it better
            transport.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        received: bytearray = receive(count)
        return received

    transport.recv = receive_at_once


def _entity(settings: DimsePeer) -> AE:
    _config.LOG_HANDLER_LEVEL = "none"
    entity = AE(ae_title=settings.calling_ae_title)
    entity.implementation_class_uid = IMPLEMENTATION_CLASS_UID
    entity.implementation_version_name = IMPLEMENTATION_VERSION_NAME
    entity.acse_timeout = settings.timeout_seconds
    entity.connection_timeout = settings.timeout_seconds
    entity.network_timeout = None
    return entity


def _refusal(settings: DimsePeer, assoc: Any, tls: Tls | None) -> SourceError:  # noqa: ANN401
    """Return why there is no association."""
    if assoc.is_rejected:
        return _rejection(settings, assoc.acceptor.primitive)
    if assoc.rejected_contexts:
        asked = {str(item.abstract_syntax) for item in assoc.rejected_contexts}
        service = "modality worklist" if MODALITY_WORKLIST_FIND in asked else "query and retrieve"
        return SourceError(
            f"{settings.address} offers no {service} to our AE Title"
            f" {settings.calling_ae_title}; enable it there",
            is_final=True,
        )
    return _connection_problem(settings, tls)


def _rejection(settings: DimsePeer, answer: Any) -> SourceError:  # noqa: ANN401 - the same
    source = int(answer.result_source)
    reason = int(answer.diagnostic)
    text = rejection_text(
        source,
        reason,
        calling=settings.calling_ae_title,
        called=settings.ae_title,
        role="source",
    )
    return SourceError(
        f"{settings.address} rejected the association: ({answer.result},{source},{reason}) {text}",
        is_outage=is_passing(source),
        is_final=not is_passing(source),
    )


def _no_message(block: bool = False) -> tuple[None, None]:  # noqa: ARG001 - pynetdicom's own form
    return None, None


def _connection_problem(settings: DimsePeer, tls: Tls | None) -> SourceError:
    """Return why no association came about; pynetdicom keeps the reason for itself, so connect."""
    try:
        _connect(settings, tls)
    except ssl.SSLError as error:
        return SourceError(f"{settings.address}: {handshake_problem(error)}", is_outage=True)
    except OSError as error:
        return _unreachable(settings, error)
    advice = "does this port speak TLS?" if tls is None else "is this a DICOM port?"
    return SourceError(
        f"{settings.address} took the connection and answered no association within"
        f" {settings.timeout_seconds:g} s; {advice}",
        is_outage=True,
    )


def _connect(settings: DimsePeer, tls: Tls | None) -> None:
    address = (settings.host, settings.port)
    plain = socket.create_connection(address, settings.timeout_seconds)
    with contextlib.closing(plain):
        if tls is not None:
            tls.context().wrap_socket(plain, server_hostname=tls.server_name).close()


def _unreachable(settings: DimsePeer, error: OSError) -> SourceError:
    return SourceError(
        f"no DICOM answer from {settings.host}:{settings.port}"
        f" ({error.strerror or 'no answer in time'}); is it running, are host and port right, is a"
        " firewall between?",
        is_outage=True,
    )
