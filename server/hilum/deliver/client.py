"""The interface of a client, and the ways in which a delivery can end."""

from __future__ import annotations

from typing import Protocol

from hilum.domain import Document, SrClass
from hilum.errors import Refused, Retry


class UnknownOutcome(Retry):
    """The document was sent, and no response came: the receiver may have it.

    The next attempt sends the same bytes, which the receiver can recognise.
    """


class ReceiverBusy(Retry):
    """The receiver is reachable and cannot store the document now.

    Its disk may be full, or the cause is the document itself.
    """


class SopClassRefused(Refused):
    """The receiver refuses the document's SOP Class, but takes the same report in another one.

    `accepted` is that class, further down the ladder.
    """

    def __init__(self, detail: str, accepted: SrClass) -> None:
        super().__init__("sop_class_refused", detail)
        self.accepted = accepted


class DestinationClient(Protocol):
    """The way to one destination, with one owner and one thread at a time."""

    def deliver(self, document: Document) -> None:
        """Return when the destination has the document.

        Idempotent: the same document again is the same bytes under the same UID. Raises Retry
        (later; `is_outage` when the document is not the cause), Unknown and Busy (both a Retry),
        ClassRefused, or another Refused (never again by itself; `detail` contains the remedy).
        """

    def close(self) -> None:
        """Close open connections and files; may be called twice."""
