"""C-MOVE and C-GET: requests for the images of one series, and how they ended, in words."""

from __future__ import annotations

import contextlib
import io
import threading
import time
from dataclasses import dataclass
from typing import Any, Final

from pynetdicom.dimse_primitives import C_GET, C_MOVE

from hilum.retrieve.dimse.answers import encoded
from hilum.retrieve.dimse.association import PacsAssociation
from hilum.retrieve.dimse.contexts import STUDY_ROOT_GET, STUDY_ROOT_MOVE
from hilum.retrieve.dimse.identifiers import retrieve_identifiers
from hilum.retrieve.dimse.request import RequestEnd, RequestLimits, Response, StoreHandler
from hilum.retrieve.dimse.statuses import (
    CANNOT_PERFORM,
    SUCCESS,
    hexadecimal,
    meaning_of,
    status_text,
)
from hilum.retrieve.source import FetchReport, FetchRequest

_MEDIUM_PRIORITY: Final = 0


@dataclass(frozen=True, slots=True)
class RetrieveEnd:
    """How one C-MOVE or C-GET ended; `response`: its last one, also a pending one."""

    end: RequestEnd
    response: Response | None

    @property
    def is_unanswered(self) -> bool:
        """Whether it had no final response for a reason at the source."""
        return self.end in (RequestEnd.LOST, RequestEnd.TIMED_OUT, RequestEnd.SILENT)

    @property
    def is_trouble(self) -> bool:
        """Whether the reason may be an outage: it did not answer, or could send nothing."""
        response = self.response
        sent_nothing = (
            response is not None
            and response.status == CANNOT_PERFORM
            and not (response.completed or response.warned)
        )
        return self.is_unanswered or sent_nothing

    def report(self, limit_seconds: float) -> FetchReport:
        """Return it as a report, without a word on outages."""
        if self.end is RequestEnd.ANSWERED and self.response is not None:
            return _answered(self.response)
        texts = {
            RequestEnd.TIMED_OUT: f"it was ended at its limit of {limit_seconds:.0f} s",
            RequestEnd.STOPPED: "it was ended because the campaign stops",
            RequestEnd.LOST: "the source ended the association; see its log",
        }
        text = texts.get(self.end, "it got no final response")
        return FetchReport(self.end.value, f"{text}{_counted(self.response)}")


@dataclass(frozen=True, slots=True)
class Retrieval:
    """C-MOVE to `destination`, or C-GET to `store`, on one association."""

    association: PacsAssociation
    by_lists: bool
    destination: str = ""
    store: StoreHandler | None = None

    def run(self, wanted: FetchRequest, stop: threading.Event) -> RetrieveEnd:
        """Ask for the images, one request after the other; return the worst end.

        Raises SourceError without an association, or where a UID is not a full one.
        """
        deadline = time.monotonic() + wanted.limit_seconds
        worst = RetrieveEnd(RequestEnd.STOPPED, None)
        identifiers = retrieve_identifiers(wanted, by_lists=self.by_lists)
        for number, identifier in enumerate(identifiers):
            if number and stop.is_set():
                return RetrieveEnd(RequestEnd.STOPPED, worst.response)
            limits = RequestLimits(max(0.0, deadline - time.monotonic()), stop=stop)
            found = self._ask(identifier, limits)
            if number == 0 or _is_worse(found, worst):
                worst = found
            if found.end is not RequestEnd.ANSWERED or _is_final(found) or found.is_trouble:
                return found
        return worst

    def _ask(self, identifier: Any, limits: RequestLimits) -> RetrieveEnd:  # noqa: ANN401
        model = STUDY_ROOT_MOVE if self.destination else STUDY_ROOT_GET
        message = C_MOVE() if self.destination else C_GET()
        if self.destination:
            message.MoveDestination = self.destination
        message.Priority = _MEDIUM_PRIORITY
        syntax = self.association.transfer_syntax(model)
        message.Identifier = io.BytesIO(encoded(identifier, syntax))
        request = self.association.request(model, message, limits, self.store)
        last: Response | None = None
        with contextlib.closing(request.responses()) as responses:
            for response in responses:
                last = response
        return RetrieveEnd(request.end, last)


def _is_final(found: RetrieveEnd) -> bool:
    return found.response is not None and meaning_of(found.response.status).is_final


def _is_worse(found: RetrieveEnd, than: RetrieveEnd) -> bool:
    """Of several ends the first that is no success counts."""
    is_good = than.response is not None and than.response.status == SUCCESS
    return is_good and found.response is not None and found.response.status != SUCCESS


def _answered(response: Response) -> FetchReport:
    status = hexadecimal(response.status)
    if response.status == SUCCESS and not response.failed:
        return FetchReport(status)
    return FetchReport(
        status,
        f"{status_text(response.status)}{_counted(response)}",
        is_final=meaning_of(response.status).is_final,
    )


def _counted(response: Response | None) -> str:
    """Return the counts of sub-operations, where the source gives any."""
    if response is None:
        return ""
    counts: list[tuple[int | None, str]] = [
        (response.completed, "sent"),
        (response.warned or None, "sent with a warning"),
        (response.failed, "failed"),
    ]
    texts = [f"{count} {word}" for count, word in counts if count is not None]
    return f" (the source counts {', '.join(texts)})" if texts else ""
