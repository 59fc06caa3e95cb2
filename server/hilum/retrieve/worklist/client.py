"""A client of a Modality Worklist SCP: one query by C-FIND for one order."""

from __future__ import annotations

import contextlib
import io
import time
from typing import Any, Final

from pynetdicom.dimse_primitives import C_FIND

from hilum.retrieve.dimse.answers import encoded
from hilum.retrieve.dimse.association import PacsAssociation
from hilum.retrieve.dimse.contexts import MODALITY_WORKLIST_FIND, services
from hilum.retrieve.dimse.request import DimseResponse, PendingRequest, RequestEnd, RequestLimits
from hilum.retrieve.dimse.statuses import SUCCESS, is_pending, status_text
from hilum.retrieve.source import SourceError
from hilum.retrieve.worklist.entries import (
    OrderPriority,
    UnreadableEntry,
    entry_identifier,
    judged,
    words_of_entry,
)
from hilum.settings import Worklist

_MEDIUM_PRIORITY: Final = 0
_MAXIMUM_ENTRIES: Final = 50
_CANCEL_SECONDS: Final = 0.1
_ALL_OTHERS: Final = (
    f"sent more than {_MAXIMUM_ENTRIES} entries for one Accession Number, and none of it; does it"
    " ignore this key?"
)


class WorklistClient:
    """Asks for orders, one after the other. For one thread."""

    def __init__(self, settings: Worklist) -> None:
        self._settings = settings
        # It connects, and then asks for the association: each has half of the limit.
        halved = {"timeout_seconds": settings.timeout_seconds / 2}
        self._association = PacsAssociation(
            settings.model_copy(update=halved), services(MODALITY_WORKLIST_FIND)
        )

    def open(self) -> None:
        """Open the association, which shows that the server offers a worklist.

        Raises SourceError.
        """
        self._association.context_id(MODALITY_WORKLIST_FIND)

    def ask(self, accession: str) -> OrderPriority:
        """Return the priority of the order with this Accession Number, which `is_askable`.

        Raises SourceError, whose text names neither the order nor the patient.
        """
        deadline = time.monotonic() + self._settings.timeout_seconds
        syntax = self._association.transfer_syntax(MODALITY_WORKLIST_FIND)
        message = C_FIND()
        message.Priority = _MEDIUM_PRIORITY
        message.Identifier = io.BytesIO(encoded(entry_identifier(accession), syntax))
        limits = RequestLimits(
            max(0.0, deadline - time.monotonic()), cancel_seconds=_CANCEL_SECONDS
        )
        request = self._association.request(MODALITY_WORKLIST_FIND, message, limits)
        entries = _Entries(request, syntax, accession, self._settings)
        return judged(entries.collected(), self._settings.urgent_words)

    def close(self) -> None:
        """Release the association; the next query opens another one."""
        self._association.close()


class _Entries:
    """Collects the entries of one order from the responses to one query."""

    def __init__(
        self,
        request: PendingRequest,
        syntax: Any,  # noqa: ANN401 - pynetdicom ships no types
        accession: str,
        settings: Worklist,
    ) -> None:
        self._request = request
        self._syntax = syntax
        self._accession = accession
        self._settings = settings
        self._own = list[list[str]]()
        self._answers = 0
        self._unreadable = 0
        self._status: int | None = None

    def collected(self) -> list[list[str]]:
        """Return the priorities of each entry when the request is over. Raises SourceError."""
        with contextlib.closing(self._request.responses()) as responses:
            for response in responses:
                self._take(response)
        if problem := self._problem():
            raise SourceError(f"{self._settings.address} {problem}", is_outage=True)
        return self._own

    def _take(self, response: DimseResponse) -> None:
        if not is_pending(response.status):
            self._status = response.status
            return
        self._answers += 1
        if self._answers > _MAXIMUM_ENTRIES:
            self._request.cancel()
            return
        try:
            words = words_of_entry(response.identifier, self._syntax, self._accession)
        except UnreadableEntry:
            self._unreadable += 1
            return
        if words is not None:
            self._own.append(words)

    def _problem(self) -> str:
        """Return why there is no answer about this order; empty: there is one."""
        if self._answers > _MAXIMUM_ENTRIES:
            return "" if self._own else _ALL_OTHERS
        if self._request.end is RequestEnd.TIMED_OUT:
            return f"gave no whole answer within {self._settings.timeout_seconds:g} s"
        if self._status is None:
            return (
                "ended the association during a query; is our AE Title"
                f" {self._settings.calling_ae_title} registered there?"
            )
        if self._status != SUCCESS:
            return f"answered a query by {status_text(self._status)}"
        if self._unreadable and not self._own:
            return "sent an entry that cannot be read; ask its vendor"
        return ""
