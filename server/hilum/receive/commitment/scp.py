"""The Storage Commitment SCP of one association (PS3.4 annex J).

It takes N-ACTION requests and returns statuses and reports.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.exc import SQLAlchemyError

from hilum.dicom import pdu
from hilum.dicom.storage_commitment import STORAGE_COMMITMENT
from hilum.domain import Advance, CommitmentRequest, CommitmentVerdict
from hilum.errors import Retry
from hilum.observability import telemetry
from hilum.receive.commitment.report import answered, command_of, encoded_information, event_type_of
from hilum.receive.commitment.reporter import CommitmentReporter
from hilum.receive.commitment.request import (
    NO_SUCH_CLASS,
    RESOURCE_LIMITATION,
    CommitmentRefused,
    read_information,
    require_command,
)
from hilum.receive.commitment.small_data_set import SmallDataSet
from hilum.receive.policy.association_record import AssociationRecorder
from hilum.receive.statuses import StatusResponse
from hilum.receive.upper_layer.command import Command
from hilum.receive.upper_layer.provider import AcceptedContext, StoreStatus
from hilum.receive.upper_layer.requests import RequestSender

_SUCCESS = StoreStatus(0x0000)


class CommitmentScp:
    """The provider of one association.

    `begin` and its action run on the association's thread, `report` on one of the reporter's.
    """

    def __init__(
        self,
        account: AssociationRecorder,
        reporter: CommitmentReporter,
        outgoing: RequestSender,
        contexts: Mapping[int, AcceptedContext],
        maximum_pdu_bytes: int,
    ) -> None:
        """Keep the parameters. `maximum_pdu_bytes`: the largest PDU of the peer, 0: any."""
        self._account = account
        self._reporter = reporter
        self._outgoing = outgoing
        self._maximum_pdu_bytes = maximum_pdu_bytes
        self._context_id, self._context = next(
            (number, context)
            for number, context in contexts.items()
            if context.sop_class_uid == STORAGE_COMMITMENT
        )

    def begin(self, command: Command, context: AcceptedContext) -> SmallDataSet:
        """Begin an N-ACTION-RQ (PS3.7 10.1.4)."""
        return SmallDataSet(lambda encoded: self.take(command, context, encoded))

    def take(self, command: Command, context: AcceptedContext, encoded: bytes) -> StoreStatus:
        """Return the status of the response (PS3.7 10.1.4.1.10).

        After success the report is recorded as due.
        """
        try:
            self._take(command, context, encoded)
        except CommitmentRefused as refused:
            return self._failure(refused.answer)
        except SQLAlchemyError:
            return self._failure(
                StatusResponse(RESOURCE_LIMITATION, "The ledger is not available; ask again later")
            )
        telemetry.COMMITMENT_REQUESTS.labels("0x0000").inc()
        return _SUCCESS

    def _take(self, command: Command, context: AcceptedContext, encoded: bytes) -> None:
        if context.sop_class_uid != STORAGE_COMMITMENT:
            raise CommitmentRefused(
                NO_SUCH_CLASS, "Asked for in the Presentation Context of another SOP Class"
            )
        require_command(command)
        transaction_uid, references = read_information(encoded, context.transfer_syntax_uid)
        titles = (
            self._account.calling_ae_title,
            self._account.called_ae_title,
            self._account.peer_address,
        )
        self._outgoing.is_expected = True
        self._reporter.take(CommitmentRequest(transaction_uid, references, *titles), self)

    def _failure(self, answer: StatusResponse) -> StoreStatus:
        telemetry.COMMITMENT_REQUESTS.labels(answer.label).inc()
        self._account.commitment_refusal = answer
        return StoreStatus(answer.status, answer.comment)

    @property
    def is_open(self) -> bool:
        """Whether a report may still go over the association."""
        return not self._outgoing.is_closed

    def report(self, transaction_uid: str, verdict: CommitmentVerdict, seconds: float) -> Advance:
        """Send a report over the association of the request. Raises Retry or Refused.

        Return when the requester has responded.
        """
        information = encoded_information(
            transaction_uid, verdict, self._context.transfer_syntax_uid
        )

        def message(message_id: int) -> bytes:
            command = command_of(event_type_of(verdict), message_id)
            return self._p_data(command, is_command=True) + self._p_data(
                information, is_command=False
            )

        try:
            return answered(self._outgoing.exchange(message, seconds), verdict)
        except ConnectionResetError:
            raise Retry("the association of the request has ended", is_outage=True) from None

    def _p_data(self, encoded: bytes, *, is_command: bool) -> bytes:
        return pdu.message(
            self._context_id, encoded, self._maximum_pdu_bytes, is_command=is_command
        )
