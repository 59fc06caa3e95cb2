"""Identifiers for the web: they are in stored headers alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from hilum.api.identifiers import FoundStudies, StudyQuery
from hilum.domain import Identifiers
from hilum.errors import Retry
from hilum.receive.headers.accession import Accession
from hilum.receive.headers.identifiers import AllOf, read_identifiers
from hilum.receive.headers.patient import HeaderOwner, Patient
from hilum.receive.headers.study_date import StudyDates
from hilum.receive.statuses import CannotUnderstand
from hilum.services.find import look, whole_header
from hilum.store.queries.headers import StoredHeader
from hilum.store.queries.views import LedgerViews

_SEARCH_SECONDS: Final = 3.0  # a browser waits, and the web process has other work
_WAIT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class LedgerIdentifiers:
    """Identifiers of one ledger. One search runs at a time.

    `seconds`: the time limit of a search before it returns its position. `wait_seconds`: how long
    one search waits for another.
    """

    views: LedgerViews
    seconds: float = _SEARCH_SECONDS
    wait_seconds: float = _WAIT_SECONDS
    clock: Callable[[], float] = time.monotonic
    lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, query: StudyQuery, *, before: int | None, limit: int) -> FoundStudies:
        """Return studies with a header that matches the whole query, newest image first.

        Raises Retry.
        """
        with self._alone():
            return self._find(query, before, limit)

    def of(self, study_instance_uids: Sequence[str]) -> Mapping[str, Identifiers]:
        """Return the identifiers in the newest image of each study; unreadable ones are left out.

        Raises Retry.
        """
        found = (
            (stored.study_instance_uid, self._read(stored))
            for stored in self.views.newest_headers(study_instance_uids)
        )
        return {uid: said for uid, said in found if said is not None}

    def _find(self, query: StudyQuery, before: int | None, limit: int) -> FoundStudies:
        found: dict[str, Identifiers] = {}
        until = self.clock() + self.seconds
        for stored, header in look(self.views, _owner_of(query), before=before):
            if header is not None:
                found[stored.study_instance_uid] = read_identifiers(
                    header, stored.transfer_syntax_uid
                )
            if len(found) == limit or self.clock() >= until:
                return FoundStudies(found, stored.row_id, stored.received_at)
        return FoundStudies(found)

    def _read(self, stored: StoredHeader) -> Identifiers | None:
        try:
            return read_identifiers(whole_header(self.views, stored), stored.transfer_syntax_uid)
        except CannotUnderstand:
            return None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self.lock.acquire(timeout=self.wait_seconds):
            raise Retry("another search is running", after_seconds=5)
        try:
            yield
        finally:
            self.lock.release()


def _owner_of(query: StudyQuery) -> HeaderOwner:
    """Return the owner of a query; the condition that rules out a header fastest comes first."""
    owners: list[HeaderOwner] = []
    if query.accession_number:
        owners.append(Accession(query.accession_number))
    if query.patient_id:
        owners.append(Patient(query.patient_id))
    if query.study_date_from or query.study_date_to:
        owners.append(StudyDates(query.study_date_from, query.study_date_to))
    return AllOf(tuple(owners))
