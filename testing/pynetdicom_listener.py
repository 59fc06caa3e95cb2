"""The oracle of our listener.

Pynetdicom's whole upper layer in front of the same archive and ledger, for comparison only.

It negotiates, reads and answers by itself; what is stored, and which status says so, is
`hilum.receive`'s in both.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import socketserver
import sys
import threading
import time
from pathlib import Path

from pydicom.dataset import Dataset
from pynetdicom import AE, _config, evt
from pynetdicom.dimse_messages import C_STORE_RQ
from pynetdicom.dimse_primitives import C_STORE
from pynetdicom.events import Event
from pynetdicom.pdu_primitives import A_ABORT
from pynetdicom.transport import ThreadedAssociationServer

from hilum import IMPLEMENTATION_CLASS_UID, IMPLEMENTATION_VERSION_NAME
from hilum.receive.headers.file_meta import FileMeta
from hilum.receive.policy.advice import NotAccepted, advise
from hilum.receive.policy.association_policy import Policy
from hilum.receive.policy.association_record import AssociationRecorder
from hilum.receive.policy.record_writer import AssociationRecordWriter
from hilum.receive.statuses import Refusal
from hilum.receive.storage.dispatcher import ObjectDispatcher
from hilum.receive.storage.responses import StoreResponses, problem_of_command
from hilum.receive.storage.session import indexing, open_inbox
from hilum.receive.storage.store_command import StoreCommand
from hilum.settings import Settings, restore
from hilum.store.archive.archive import Archive
from hilum.store.ledger import Ledger

_REQUIRED = ("AffectedSOPClassUID", "AffectedSOPInstanceUID")
_FLUSH_SECONDS = 8.0
_ROWS_SECONDS = 3.0


def serve_oracle(
    settings: Settings,
    listening: socket.socket,
    ledger: Ledger,
    archive: Archive,
    stop: threading.Event,
) -> None:
    """Receive on this listening socket until `stop` is set."""
    _config.LOG_HANDLER_LEVEL = "none"
    accounts = AssociationRecordWriter(ledger)
    accounts.start()
    with indexing(settings, ledger, archive, stop, _FLUSH_SECONDS) as reception:
        server = _ae(settings).make_server(
            listening.getsockname()[:2],
            server_class=_Server,
            evt_handlers=[(evt.EVT_CONN_OPEN, _opened, [settings, reception, accounts])],
            listening=listening,
        )
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stop.wait()
        socketserver.BaseServer.shutdown(server)
    accounts.stop(_ROWS_SECONDS)


class _Server(ThreadedAssociationServer):  # type: ignore[misc] # pynetdicom ships no types
    """On a socket that is bound and listening."""

    def __init__(self, *arguments: object, listening: socket.socket, **keywords: object) -> None:
        self._listening = listening
        super().__init__(*arguments, **keywords)

    def server_bind(self) -> None:
        """Instead of binding, take the socket."""
        super().server_close()  # the one that socketserver has just made
        self.socket = self._listening
        self.server_address = self.socket.getsockname()

    def server_activate(self) -> None:
        """It listens already."""


def _ae(settings: Settings) -> AE:
    ae = AE()
    ae.implementation_class_uid = IMPLEMENTATION_CLASS_UID
    ae.implementation_version_name = IMPLEMENTATION_VERSION_NAME
    ae.maximum_pdu_size = settings.receive.maximum_pdu_bytes
    ae.acse_timeout = settings.receive.acse_timeout_seconds
    ae.dimse_timeout = settings.receive.dimse_timeout_seconds
    ae.network_timeout = settings.receive.network_timeout_seconds
    for abstract, syntaxes in Policy(settings.receive, settings.senders).terms("").accepted.items():
        ae.add_supported_context(abstract, list(syntaxes))
    return ae


def _opened(
    event: Event, settings: Settings, reception: ObjectDispatcher, accounts: AssociationRecordWriter
) -> None:
    """EVT_CONN_OPEN: the association exists, and its thread has not started yet."""
    _Association(event, settings, reception, accounts)


class _Association:
    """Handlers of pynetdicom's events."""

    def __init__(
        self,
        event: Event,
        settings: Settings,
        reception: ObjectDispatcher,
        accounts: AssociationRecordWriter,
    ) -> None:
        self._assoc = event.assoc
        self._reception = reception
        self._accounts = accounts
        self._terms = Policy(settings.receive, settings.senders).terms("")
        self._account = AssociationRecorder(event.address[0], started_at=time.time())
        self._verdicts = StoreResponses(self._account)
        for kind, handler in (
            (evt.EVT_ESTABLISHED, self._established),
            (evt.EVT_DIMSE_RECV, self._message_received),
            (evt.EVT_C_STORE, self._store),
            (evt.EVT_ACSE_RECV, self._acse_received),
            (evt.EVT_CONN_CLOSE, self._closed),
        ):
            self._assoc.bind(kind, handler)

    def _established(self, _event: Event) -> None:
        account = self._account
        request = self._assoc.requestor.primitive
        account.is_requested = account.is_established = True
        account.called_ae_title = str(request.called_ae_title)
        account.calling_ae_title = str(request.calling_ae_title)
        account.accepted = frozenset(
            context.abstract_syntax for context in self._assoc.accepted_contexts
        )
        account.not_accepted = tuple(
            NotAccepted(context.abstract_syntax, is_known=context.result == 4)
            for context in self._assoc.rejected_contexts
            if context.abstract_syntax not in account.accepted
        )
        account.advice_on_contexts = advise(account.not_accepted, self._terms)

    def _acse_received(self, event: Event) -> None:
        if isinstance(event.primitive, A_ABORT):
            self._account.abort_reason = "aborted_by_peer"

    def _message_received(self, event: Event) -> None:
        """Answer a command that lacks what pynetdicom needs.

        It would ignore the one and abort for the other.
        """
        command = event.message.command_set
        if not isinstance(event.message, C_STORE_RQ):
            return
        sop_class, sop_instance = (str(command.get(keyword) or "") for keyword in _REQUIRED)
        if (
            problem := problem_of_command(sop_class, sop_instance, command.get("Priority"))
        ) is not None:
            self._refuse(event.message, problem)

    def _refuse(self, message: C_STORE_RQ, problem: Refusal) -> None:
        failure = self._verdicts.refused(problem)
        response = C_STORE()
        response.MessageIDBeingRespondedTo = message.command_set.MessageID
        response.Status = failure.status
        response.ErrorComment = failure.comment
        self._assoc.dimse.send_msg(response, message.context_id)
        for keyword in _REQUIRED:  # without them pynetdicom lets the message lie
            if keyword in message.command_set:
                delattr(message.command_set, keyword)

    def _store(self, event: Event) -> Dataset | int:
        meta = FileMeta(
            sop_class_uid=str(event.request.AffectedSOPClassUID),
            sop_instance_uid=str(event.request.AffectedSOPInstanceUID),
            transfer_syntax_uid=str(event.context.transfer_syntax),
            calling_ae_title=self._account.calling_ae_title,
            called_ae_title=self._account.called_ae_title,
            peer_address=self._account.peer_address,
        )
        try:
            with contextlib.closing(
                self._reception.begin(StoreCommand(meta, str(event.context.abstract_syntax)))
            ) as arriving:
                arriving.write([event.request.DataSet.getbuffer()])
                self._verdicts.count(arriving.commit(), meta.sop_class_uid)
        except Exception as error:  # noqa: BLE001 - the C-STORE edge: the sender gets a status, whatever went wrong
            failure = self._verdicts.failed(error)
            answer = Dataset()
            answer.Status = failure.status
            answer.ErrorComment = failure.comment
            return answer
        return 0x0000

    def _closed(self, _event: Event) -> None:
        threading.Thread(target=self._write_row, daemon=True).start()

    def _write_row(self) -> None:
        """When pynetdicom's thread has ended, and knows how the association did."""
        self._assoc.join()
        outcome = self._account.outcome(is_released=self._assoc.is_released)
        if outcome is not None:
            self._accounts.put(self._account.record(outcome, time.time()))


def main(settings_file: str) -> None:
    """Until SIGTERM."""
    settings = restore(Path(settings_file).read_text(encoding="utf-8"))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    listening = socket.create_server((settings.receive.host, settings.receive.port))
    serve_oracle(
        settings, listening, Ledger(settings.ledger_url), open_inbox(settings, "oracle"), stop
    )


if __name__ == "__main__":
    main(sys.argv[1])
