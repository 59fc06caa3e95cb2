"""The Storage Commitment SCP of one association (PS3.4 annex J): pynetdicom's events in, statuses out, reports back."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from io import BytesIO

from pydicom.dataset import Dataset
from pydicom.uid import UID
from pynetdicom.association import Association
from pynetdicom.dimse_messages import N_ACTION_RQ, N_EVENT_REPORT_RSP
from pynetdicom.dimse_primitives import N_ACTION
from pynetdicom.dsutils import encode
from pynetdicom.events import Event
from sqlalchemy.exc import SQLAlchemyError

from hilum import telemetry
from hilum.domain import Advance, CommitmentRequest, CommitmentVerdict
from hilum.errors import Retry
from hilum.receive.account import Account
from hilum.receive.commitment_desk import Desk
from hilum.receive.commitment_report import answered, command_of, event_type_of, information_of
from hilum.receive.commitment_request import RESOURCE_LIMITATION, CommitmentRefused, read_information, require_command
from hilum.receive.refusals import Answer
from hilum.receive.terms import STORAGE_COMMITMENT

_QUIET_SECONDS = 0.5  # who is about to release does it within this time, and who stores goes on
_LOOK_SECONDS = 0.05
_SUCCESS = 0x0000
_REQUIRED = ("RequestedSOPClassUID", "RequestedSOPInstanceUID", "ActionTypeID")


class Commitment:
    """`requested` runs on the association's thread, `message_received` on the one that reads PDUs, `report` on one of the desk's."""

    def __init__(self, assoc: Association, account: Account, desk: Desk, is_busy: Callable[[], bool]) -> None:
        self._assoc, self._account, self._desk, self._is_busy = assoc, account, desk, is_busy
        self._heard_at = time.monotonic()
        self._answers: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self._reporting = threading.Lock()
        self._message_id = 0

    def requested(self, event: Event) -> tuple[Dataset, None]:
        """EVT_N_ACTION: the status that answers the request (PS3.7 10.1.4.1.10). Success: a report is owed, whatever happens now."""
        try:
            transaction_uid, references = read_information(event.request.ActionInformation, event.context.transfer_syntax)
            titles = self._account.calling_ae_title, self._account.called_ae_title, self._account.peer_address
            self._desk.take(CommitmentRequest(transaction_uid, references, *titles), self)
        except CommitmentRefused as refused:
            return self._failure(refused.answer), None
        except SQLAlchemyError:
            return self._failure(Answer(RESOURCE_LIMITATION, "The ledger is not available; ask again later")), None
        telemetry.COMMITMENT_REQUESTS.labels("0x0000").inc()
        return _status(_SUCCESS), None

    def _failure(self, answer: Answer) -> Dataset:
        telemetry.COMMITMENT_REQUESTS.labels(answer.label).inc()
        self._account.commitment_refusal = answer
        return _status(answer.status, answer.comment)

    def message_received(self, event: Event) -> None:
        """EVT_DIMSE_RECV: take the answer to a report, and refuse a command that pynetdicom would not answer at all."""
        self._heard_at = time.monotonic()
        command = event.message.command_set
        if isinstance(event.message, N_EVENT_REPORT_RSP):
            self._answers.put((int(command.get("MessageIDBeingRespondedTo") or 0), int(command.get("Status", 0x0110))))
        elif isinstance(event.message, N_ACTION_RQ):
            try:
                sop_class_uid, sop_instance_uid, action_type = (command.get(keyword) for keyword in _REQUIRED)
                require_command(str(sop_class_uid or ""), str(sop_instance_uid or ""), action_type)
            except CommitmentRefused as refused:
                self._refuse_command(event.message, self._failure(refused.answer))

    def _refuse_command(self, message: N_ACTION_RQ, failure: Dataset) -> None:
        if (message_id := message.command_set.get("MessageID")) is None:
            self._assoc.abort()
            return
        response = N_ACTION()
        response.MessageIDBeingRespondedTo = message_id
        response.Status, response.ErrorComment = failure.Status, failure.ErrorComment
        self._assoc.dimse.send_msg(response, message.context_id)
        for keyword in _REQUIRED:  # without them pynetdicom lets the message lie
            if keyword in message.command_set:
                delattr(message.command_set, keyword)

    @property
    def is_open(self) -> bool:
        """Whether a report may still go over it."""
        return bool(self._assoc.is_established)

    def report(self, transaction_uid: str, verdict: CommitmentVerdict) -> Advance:
        """Over the association of the request. Return when the asker has answered. Raises Retry or Refused."""
        with self._reporting:
            self._await_quiet()
            self._message_id += 1
            context = next(item for item in self._assoc.accepted_contexts if item.abstract_syntax == STORAGE_COMMITMENT)
            command = command_of(event_type_of(verdict), self._message_id)
            command.EventInformation = BytesIO(_encoded(information_of(transaction_uid, verdict), context.transfer_syntax[0]))
            self._assoc.dimse.send_msg(command, context.context_id)
            return answered(self._answer(), verdict)

    def _await_quiet(self) -> None:
        """Messages of two threads must not be mixed on the wire, and who releases must not be met by a request."""
        while self._is_busy() or time.monotonic() - self._heard_at < _QUIET_SECONDS:
            self._require_open()
            time.sleep(_LOOK_SECONDS)
        self._require_open()

    def _require_open(self) -> None:
        if not self.is_open:
            raise Retry("the association of the request has ended", is_outage=True)

    def _answer(self) -> int | None:
        end = time.monotonic() + self._assoc.dimse_timeout
        while self.is_open and time.monotonic() < end:
            with contextlib.suppress(queue.Empty):
                message_id, status = self._answers.get(timeout=_LOOK_SECONDS)
                if message_id == self._message_id:
                    return status
        return None


def _encoded(information: Dataset, syntax: UID) -> bytes:
    encoded: bytes | None = encode(information, syntax.is_implicit_VR, syntax.is_little_endian, syntax.is_deflated)
    assert encoded is not None, "UIDs and numbers of our own can be encoded"
    return encoded


def _status(status: int, comment: str = "") -> Dataset:
    answer = Dataset()
    answer.Status = status
    if comment:
        answer.ErrorComment = comment
    return answer
