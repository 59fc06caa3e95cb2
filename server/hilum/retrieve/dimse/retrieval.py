"""C-MOVE and C-GET: requests for the images of one series, and how they ended, in words."""

from __future__ import annotations

import contextlib
import io
import threading
import time
from dataclasses import dataclass
from typing import Any, Final

from pydicom.dataset import Dataset
from pynetdicom.dimse_primitives import C_GET, C_MOVE

from hilum.retrieve.dimse.answers import encoded
from hilum.retrieve.dimse.association import PacsAssociation
from hilum.retrieve.dimse.contexts import STUDY_ROOT_GET, STUDY_ROOT_MOVE
from hilum.retrieve.dimse.identifiers import retrieve_identifiers
from hilum.retrieve.dimse.request import DimseResponse, RequestEnd, RequestLimits, StoreHandler
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
    response: DimseResponse | None

    @property
    def is_unanswered(self) -> bool:
        """Whether it had no final response for a reason at the source."""
        return self.end in (RequestEnd.LOST, RequestEnd.TIMED_OUT, RequestEnd.SILENT)

    @property
    def is_success(self) -> bool:
        """Whether the source claims success."""
        return self.response is not None and self.response.status == SUCCESS

    @property
    def ends_all(self) -> bool:
        """Whether a further request for images of the series would fare alike."""
        is_final = self.response is not None and meaning_of(self.response.status).is_final
        return self.end is not RequestEnd.ANSWERED or is_final or self.is_trouble

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
        """Ask for the images, one request after the other; return the first that is no success.

        Raises SourceError without an association, or where a UID is not a full one.
        """
        deadline = time.monotonic() + wanted.limit_seconds
        found: list[RetrieveEnd] = []
        for identifier in retrieve_identifiers(wanted, by_lists=self.by_lists):
            limits = RequestLimits(max(0.0, deadline - time.monotonic()), stop=stop)
            found.append(self._ask(identifier, limits))
            if found[-1].ends_all:
                return found[-1]
        return next((end for end in found if not end.is_success), found[-1])

    def _ask(self, identifier: Dataset, limits: RequestLimits) -> RetrieveEnd:
        model = STUDY_ROOT_MOVE if self.destination else STUDY_ROOT_GET
        syntax = self.association.transfer_syntax(model)
        message = self._message()
        message.Identifier = io.BytesIO(encoded(identifier, syntax))
        request = self.association.request(model, message, limits, self.store)
        last: DimseResponse | None = None
        with contextlib.closing(request.responses()) as responses:
            for response in responses:
                last = response
        return RetrieveEnd(request.end, last)

    def _message(self) -> Any:  # noqa: ANN401 - pynetdicom ships no types
        message = C_MOVE() if self.destination else C_GET()
        message.Priority = _MEDIUM_PRIORITY
        if self.destination:
            message.MoveDestination = self.destination
        return message


def _answered(response: DimseResponse) -> FetchReport:
    status = hexadecimal(response.status)
    if response.status == SUCCESS and not response.failed:
        return FetchReport(status)
    return FetchReport(
        status,
        f"{status_text(response.status)}{_counted(response)}",
        is_final=meaning_of(response.status).is_final,
    )


def _counted(response: DimseResponse | None) -> str:
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
