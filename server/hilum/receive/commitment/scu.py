"""The Storage Commitment SCU of one association that the SCP has opened (PS3.4 J.3.3)."""

from __future__ import annotations

from hilum.dicom.storage_commitment import STORAGE_COMMITMENT
from hilum.receive.commitment.request import NO_SUCH_CLASS
from hilum.receive.commitment.small_data_set import SmallDataSet
from hilum.receive.commitment.taken_reports import TakenReports
from hilum.receive.policy.association_record import AssociationRecorder
from hilum.receive.statuses import StatusResponse
from hilum.receive.upper_layer.command import Command
from hilum.receive.upper_layer.provider import AcceptedContext, StoreStatus

_SUCCESS = StoreStatus(0x0000)


class CommitmentScu:
    """The taker of N-EVENT-REPORT requests of one association."""

    def __init__(self, account: AssociationRecorder, reports: TakenReports) -> None:
        self._account = account
        self._reports = reports

    def begin(self, command: Command, context: AcceptedContext) -> SmallDataSet:
        """Begin an N-EVENT-REPORT-RQ (PS3.7 10.1.1)."""
        return SmallDataSet(lambda encoded: self._take(command, context, encoded))

    def _take(self, command: Command, context: AcceptedContext, encoded: bytes) -> StoreStatus:
        failure = (
            self._reports.take(
                command.elements,
                context.transfer_syntax_uid,
                encoded,
                self._account.calling_ae_title,
            )
            if context.sop_class_uid == STORAGE_COMMITMENT
            else StatusResponse(
                NO_SUCH_CLASS, "Reported in the Presentation Context of another SOP Class"
            )
        )
        if failure is None:
            return _SUCCESS
        self._account.report_refusal = failure
        return StoreStatus(failure.status, failure.comment)
