"""Interventions for the API: the ledger's verbs, and the erasure, which needs the archive."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hilum.errors import Retry
from hilum.receive.headers.patient import OneStudy, Patient
from hilum.services.erase import erase
from hilum.settings import Settings
from hilum.store.admin.operator import Completed, Forgotten
from hilum.store.archive.archives import open_archive
from hilum.store.archive.store_errors import StoreAway
from hilum.store.audit.log import Deed
from hilum.store.ledger import Ledger
from hilum.store.queue.resend import Resent


@dataclass(frozen=True, slots=True)
class LedgerInterventions:
    """The interventions of one installation."""

    settings: Settings
    ledger: Ledger

    def complete(
        self, study_uid: str, *, is_waiting: bool, deed: Deed | None = None
    ) -> Completed | None:
        """End a study's quiet period now."""
        return self.ledger.complete(study_uid, is_waiting=is_waiting, deed=deed)

    def pause(self, name: str, *, is_paused: bool, deed: Deed | None = None) -> None:
        """Stop or resume deliveries to a destination."""
        self.ledger.pause(name, is_paused=is_paused, deed=deed)

    def resend(
        self,
        study_uid: str,
        sop_instance_uid: str | None,
        destination_name: str | None,
        deed: Deed | None = None,
    ) -> Resent | None:
        """Send the delivered documents of a study again."""
        chosen = {"sop_instance_uid": sop_instance_uid, "destination_name": destination_name}
        return self.ledger.resend(study_uid, **chosen, among=self.settings.destinations, deed=deed)

    def forget(self, name: str, deed: Deed | None = None) -> Forgotten:
        """Discard the documents that wait for a destination that is no longer in the settings."""
        return self.ledger.forget_destination(name, deed)

    def forget_commitments(self, calling_ae_title: str, deed: Deed | None = None) -> int:
        """Discard the dead reports of storage commitment for this AE Title."""
        return self.ledger.forget_commitments(calling_ae_title, deed)

    def erase(
        self, patient_id: str, issuer: str | None, *, is_dry_run: bool, deed: Deed | None = None
    ) -> dict[str, Any]:
        """Erase a patient. Raises Retry where the archive is not mounted."""
        return self._erase(Patient(patient_id, issuer), deed, is_dry_run=is_dry_run)

    def erase_study(
        self, study_uid: str, *, is_dry_run: bool, deed: Deed | None = None
    ) -> dict[str, Any]:
        """Erase one study. Raises Retry as `erase`."""
        return self._erase(OneStudy(study_uid), deed, is_dry_run=is_dry_run)

    def _erase(
        self, owner: Patient | OneStudy, deed: Deed | None, *, is_dry_run: bool
    ) -> dict[str, Any]:
        if not _is_there(self.settings):
            raise Retry(
                "the archive is not mounted on this host, or has never received anything",
                after_seconds=60,
            )
        report = erase(self.settings, owner, is_dry_run=is_dry_run, deed=deed)
        # `asdict` changes a Counter
        counted = {"delivered": dict(report.delivered), "tried": dict(report.tried)}
        return {**asdict(report), **counted, "is_complete": report.is_complete}


def _is_there(settings: Settings) -> bool:
    """Return whether the archive is there. Raises Retry while an object store is away."""
    try:
        return open_archive(settings).is_there
    except StoreAway as away:
        raise Retry(away.said, after_seconds=60) from away
