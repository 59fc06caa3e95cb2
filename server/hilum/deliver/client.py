"""The interface of a client, and the ways in which a delivery can end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hilum.domain import Document, SrClass
from hilum.errors import Refused, Retry


class ReceiverBusy(Retry):
    """The receiver is reachable and cannot store the document now.

    Its disk may be full, or the cause is the document itself. If many documents in a row end so,
    no document is the cause.
    """


class UnknownOutcome(ReceiverBusy):
    """The document was sent, and no response came: the receiver may have it.

    The next attempt sends the same bytes, which the receiver can recognise. The receiver may hang,
    or a load balancer has nothing behind it.
    """


class SopClassRefused(Refused):
    """The receiver refuses the document's SOP Class, but takes the same report in another one.

    `accepted` is that class, further down the ladder.
    """

    def __init__(self, detail: str, accepted: SrClass) -> None:
        super().__init__("sop_class_refused", detail)
        self.accepted = accepted


@dataclass(frozen=True, slots=True)
class ProbeAccepted:
    """One SOP Class in one Transfer Syntax, and whether the destination takes it."""

    sop_class: str
    sop_class_uid: str
    transfer_syntax: str
    transfer_syntax_uid: str
    is_accepted: bool


@dataclass(frozen=True, slots=True)
class Probe:
    """The outcome of a test of a destination.

    `is_ok`: reports can go there. `sr_class`: the class in which they go. `detail`: the findings,
    and the remedy. `advice`: the consequence of a failure.
    """

    destination: str
    address: str
    is_ok: bool
    detail: str
    echo: str | None = None
    sr_class: str | None = None
    contexts: tuple[ProbeAccepted, ...] = ()
    advice: str = "Reports wait until then."


class DestinationClient(Protocol):
    """The way to one destination, with one owner and one thread at a time."""

    def deliver(self, document: Document) -> None:
        """Return when the destination has the document.

        Idempotent: the same document again is the same bytes under the same UID. Raises Retry
        (later; `is_outage` when the document is not the cause), ReceiverBusy or UnknownOutcome
        (both a Retry), SopClassRefused, or another Refused (never again by itself; `detail`
        contains the remedy).
        """

    def probe(self, limit_seconds: float | None = None) -> Probe:
        """Test the destination without sending a document. Never raises.

        `limit_seconds`: for each message, where it is less than the settings allow.
        """

    def close(self) -> None:
        """Close open connections and files; may be called twice."""
