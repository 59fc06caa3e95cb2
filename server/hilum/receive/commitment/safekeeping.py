"""Whether objects are kept, and so may be committed (PS3.4 annex J).

An acknowledged object is a file in `unindexed`, and then a row. An object with neither was not
received.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from hilum.domain import CommitmentJob, CommitmentRequest, CommitmentVerdict, SopReference
from hilum.errors import Retry
from hilum.store.archive.archive import Archive
from hilum.store.ledger import Ledger

# Failure Reasons (0008,1197), PS3.3 C.14.1.1.
PROCESSING_FAILURE = 0x0110
NO_SUCH_OBJECT = 0x0112
CLASS_INSTANCE_CONFLICT = 0x0119
DUPLICATE_TRANSACTION = 0x0131

_LOOK_AGAIN_SECONDS = 0.5
_ROWS_SECONDS = 30.0  # for rows beyond the usual wait, before the outcome is unknown


@dataclass(frozen=True, slots=True)
class Safekeeping:
    """The objects kept in this archive and ledger.

    `wait_seconds`: for objects that have not come.
    """

    ledger: Ledger
    archive: Archive
    wait_seconds: float
    clock: Callable[[], float] = time.time

    def verdict(self, job: CommitmentJob) -> CommitmentVerdict:
        """Return the outcome of a request; committed objects are kept from now on.

        Raises Retry while an object may still come, or wait for its row.
        """
        references = job.request.references
        if job.is_duplicate:
            return CommitmentVerdict(
                (), tuple((item, DUPLICATE_TRANSACTION) for item in references)
            )
        # In this order: a file that is no longer in `unindexed` has its row.
        is_behind = self._is_behind(job.requested_at)
        classes, disputed = self._kept(job.request)
        is_complete = all(item.sop_instance_uid in classes for item in references)
        if self.archive.is_remote and not is_complete:
            is_behind = True  # it may be in the spool of another host, which cannot be seen
        patience = (0.0 if is_complete else self.wait_seconds) + (
            _ROWS_SECONDS if is_behind else 0.0
        )
        if self.clock() - job.requested_at < patience:
            raise Retry(
                "objects that it names are not there yet",
                after_seconds=_LOOK_AGAIN_SECONDS,
                is_outage=True,
            )
        absent = PROCESSING_FAILURE if is_behind else NO_SUCH_OBJECT
        self._promise(judge(references, classes, disputed, absent))
        # retention may have deleted an object before the commitment
        return judge(references, *self._kept(job.request), absent)

    def _is_behind(self, requested_at: float) -> bool:
        """Return whether a file that came before the request still waits for its row."""
        return any(_came_before(file, requested_at) for file in self.archive.unindexed())

    def _promise(self, verdict: CommitmentVerdict) -> None:
        """Record the commitment before it is reported."""
        if verdict.committed:
            try:
                self.ledger.promise([item.sop_instance_uid for item in verdict.committed])
            except SQLAlchemyError as error:
                raise Retry(
                    "the ledger does not answer", after_seconds=5.0, is_outage=True
                ) from error

    def _kept(self, request: CommitmentRequest) -> tuple[Mapping[str, str], Collection[str]]:
        try:
            return self.ledger.kept(
                [item.sop_instance_uid for item in request.references], request.calling_ae_title
            )
        except SQLAlchemyError as error:
            raise Retry("the ledger does not answer", after_seconds=5.0, is_outage=True) from error


def judge(
    references: tuple[SopReference, ...],
    classes: Mapping[str, str],
    disputed: Collection[str],
    absent: int,
) -> CommitmentVerdict:
    """Return the outcome for each reference (pure).

    `classes`: SOP Instance UID to SOP Class UID of kept objects. `absent`: the reason why the
    others fail.
    """
    reasons = {item: _reason(item, classes, disputed, absent) for item in references}
    failed = tuple((item, reason) for item, reason in reasons.items() if reason is not None)
    return CommitmentVerdict(
        tuple(item for item, reason in reasons.items() if reason is None), failed
    )


def _reason(
    item: SopReference, classes: Mapping[str, str], disputed: Collection[str], absent: int
) -> int | None:
    if (found := classes.get(item.sop_instance_uid)) is None:
        return absent
    if found != item.sop_class_uid:
        return CLASS_INSTANCE_CONFLICT
    return PROCESSING_FAILURE if item.sop_instance_uid in disputed else None


def _came_before(file: Path, moment: float) -> bool:
    try:
        return file.stat().st_mtime <= moment
    except FileNotFoundError:
        return True  # it has just been settled: look once more
