"""What a lane is, and how a delivery can end."""

from __future__ import annotations

from typing import Protocol

from hilum.domain import Document, SrClass
from hilum.errors import Refused, Retry


class Unknown(Retry):
    """Sent, and no answer came: the receiver may have the document. It gets the same bytes again, which it can recognise."""


class Busy(Retry):
    """The receiver is there and says that it cannot store the document now: its disk may be full, or it is the document's own matter."""


class ClassRefused(Refused):
    """The receiver refuses the document's SOP Class, but takes the same report in `accepted`, a class further down the ladder."""

    def __init__(self, detail: str, accepted: SrClass) -> None:
        super().__init__("sop_class_refused", detail)
        self.accepted = accepted


class Lane(Protocol):
    """The way to one destination. One owner at a time; not for several threads at once."""

    def deliver(self, document: Document) -> None:
        """Return when the destination has the document.

        Idempotent: the same document again is the same bytes under the same UID. Raises Retry (later; `is_outage` when nothing can be
        said against the document), Unknown and Busy (both a Retry), ClassRefused, or another Refused (never by
        itself; `detail` says what a person can do).
        """

    def close(self) -> None:
        """Give back what is held open; may be called twice."""
