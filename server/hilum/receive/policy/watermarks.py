"""Back-pressure: new associations wait while the disk is nearly full or the queue too long.

The soft limit of the disk is above the hard one of `Intake`, so that open associations can finish.
"""

from __future__ import annotations

import time

from hilum.errors import Retry
from hilum.receive.policy.association_policy import LATER, AssociationRejection
from hilum.settings import Receive
from hilum.store.archive.archive import Archive
from hilum.store.queries.views import LedgerViews

_FRESH_SECONDS = 0.25  # a burst of associations between two looks is admitted unseen


class Watermarks:
    """The limits, read once for each association. Thread-safe.

    Two threads that read the queue at once only read it twice.
    """

    def __init__(self, settings: Receive, archive: Archive, views: LedgerViews) -> None:
        self._settings = settings
        self._archive = archive
        self._views = views
        self._due = 0
        self._read_at = float("-inf")

    def rejection(self) -> AssociationRejection | None:
        """Return the rejection of any new association now, or None."""
        return self._rejection_of_disk() or self._rejection_of_queue()

    def _rejection_of_disk(self) -> AssociationRejection | None:
        limit = self._settings.reject_below_bytes
        try:
            free = self._archive.free()
        # a mount that is dead or a server that is away: nothing could be stored
        except OSError as error:
            advice = (
                f"The archive's file system fails ({error.strerror}): mount it again at the"
                " receiver; send again later."
            )
            return AssociationRejection(*LATER, "archive_not_available", advice)
        if free.bytes < limit:
            missing = (
                f"{free.bytes >> 20} MiB of disk are free, {limit >> 20} MiB are wanted"
                " (receive.reject_bytes)"
            )
            return AssociationRejection(
                *LATER, "disk_nearly_full", f"{missing}: free space; send again later."
            )
        if free.files is not None and free.files < (files := self._settings.reject_below_files):
            missing = (
                f"{free.files} inodes are free, {files} are wanted (twice receive.reserve_files)"
            )
            return AssociationRejection(
                *LATER, "disk_nearly_full", f"{missing}: delete files; send again later."
            )
        return None

    def _rejection_of_queue(self) -> AssociationRejection | None:
        maximum = self._settings.maximum_due_readings
        if maximum and (due := self._due_readings(maximum)) >= maximum:
            advice = (
                f"{due} or more readings wait (receive.maximum_due_readings): check that the"
                " analysers work; send again later."
            )
            return AssociationRejection(*LATER, "queue_full", advice)
        return None

    def _due_readings(self, maximum: int) -> int:
        """Return the due readings, at most `maximum`, at most 0.25 s old.

        A ledger that is away counts as 0; `Intake` limits how long that is accepted.
        """
        if time.monotonic() - self._read_at > _FRESH_SECONDS:
            try:
                self._due = self._views.due_readings(maximum)
            except Retry:
                self._due = 0
            self._read_at = time.monotonic()
        return self._due
