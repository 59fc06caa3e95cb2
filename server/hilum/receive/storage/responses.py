"""Responses to the C-STORE requests of one association, with account, metrics and log."""

from __future__ import annotations

import time
from typing import Final

from hilum.dicom.uid import problem_of_uid
from hilum.observability import telemetry
from hilum.receive.policy.association_record import AssociationRecorder
from hilum.receive.sinks import StoreOutcome
from hilum.receive.statuses import CannotUnderstand, Refusal, StatusResponse, answer

_log = telemetry.logger("receive")
_LOGGED_REFUSALS: Final = 20  # of one association or request: its row has the number and the last


class StoreResponses:
    """The responses, used from one thread."""

    def __init__(self, account: AssociationRecorder) -> None:
        self._account = account

    def taken(self, taken: StoreOutcome, sop_class_uid: str, began: float) -> None:
        """Count an acknowledged object; `began`, monotonic: the first byte of its message."""
        self.count(taken, sop_class_uid)
        telemetry.RECEIVE_SECONDS.observe(time.monotonic() - began)

    def count(self, taken: StoreOutcome, sop_class_uid: str) -> None:
        """Count an acknowledged object without its time."""
        if taken is StoreOutcome.OTHER_OBJECT:
            self._account.discarded[sop_class_uid] += 1
            return
        if taken is StoreOutcome.OWN_DOCUMENT:
            self._account.own_documents += 1
            return
        self._account.stored += 1
        self._account.has_note_not_permitted |= taken is StoreOutcome.NOTE_NOT_PERMITTED

    def failed(self, error: Exception) -> StatusResponse:
        """Return the response to an error, after counting and logging it."""
        failure = self.refused(error)
        if isinstance(error, Refusal | OSError):
            self._log(error, failure)
        else:
            _log.exception("not_stored", status=failure.label, exc_info=error)
        return failure

    def _log(self, error: Refusal | OSError, failure: StatusResponse) -> None:
        """Log the first refusals: a sender must not decide the length of our log."""
        if self._account.refused > _LOGGED_REFUSALS:
            return
        if isinstance(error, OSError):
            _log.error("not_stored", status=failure.label, problem=error.strerror)
        else:
            _log.warning("refused", status=failure.label, comment=failure.comment)
        if self._account.refused == _LOGGED_REFUSALS:
            _log.warning(
                "refusals_not_logged", advice="GET /api/v1/associations counts those to come"
            )

    def refused(self, error: Exception) -> StatusResponse:
        """Return the response to an error, after counting it, without a log line."""
        failure = answer(error)
        self._account.refused += 1
        self._account.last_refusal = failure
        telemetry.INSTANCES_REFUSED.labels(status=failure.label).inc()
        return failure


def problem_of_command(
    sop_class_uid: str, sop_instance_uid: str, priority: int | None
) -> Refusal | None:
    """Return the fault of a C-STORE-RQ (PS3.7 9.3.1.1), if any.

    Missing values are empty or None.
    """
    for name, value in (
        ("Affected SOP Class UID", sop_class_uid),
        ("Affected SOP Instance UID", sop_instance_uid),
    ):
        if not value:
            return CannotUnderstand(f"{name} is missing in the command")
        if problem := problem_of_uid(value):
            return CannotUnderstand(f"{name} in the command {problem}")
    return (
        CannotUnderstand("Priority (0000,0700) is missing in the command")
        if priority is None
        else None
    )
