"""A receiver of HL7 v2 messages over MLLP: one connection, kept for the next message."""

from __future__ import annotations

import re
import socket
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hilum.deliver.client import Probe, ReceiverBusy, UnknownOutcome
from hilum.deliver.connection import ConnectionLost, PeerSilent, TlsEnded
from hilum.deliver.mllp import MllpConnection
from hilum.dicom.tls_client import secure, tls_of
from hilum.domain import HL7, Document
from hilum.errors import Refused, Retry
from hilum.observability import telemetry
from hilum.settings import Hl7Destination

log = telemetry.logger("deliver")

# MSA-1, table 0008: application and accept acknowledgements.
_STORED: Final = frozenset({"AA", "CA"})
_ERROR: Final = frozenset({"AE", "CE"})
_REJECT: Final = frozenset({"AR", "CR"})
# ERR-3, table 0357. Other texts of an acknowledgement may name the patient, and are left out.
_ERRORS: Final[Mapping[str, str]] = {
    "100": "segment sequence error",
    "101": "required field missing",
    "102": "data type error",
    "103": "table value not found",
    "200": "unsupported message type",
    "201": "unsupported event code",
    "202": "unsupported processing id (processing_id)",
    "203": "unsupported version id",
    "204": "unknown key identifier: it does not know this patient or order",
    "205": "duplicate key identifier",
    "206": "application record locked",
    "207": "application internal error",
}
# AR for these is no matter of time.
_UNSUPPORTED: Final = frozenset({"200", "201", "202", "203"})
_REMEMBERED: Final = 100  # stored messages, about which an error may come later
_FIRST_SECONDS: Final = 0.5  # of a probe, until a receiver has closed an unwanted connection
_CODE: Final = re.compile(r"[A-Z]{2}")
_CONTROL_ID: Final = 10
_CHARACTER_SET: Final = 18


class Hl7Client:
    """The client of a receiver: one message at a time, each with its acknowledgement.

    The connection is opened with the first message. It is replaced when it was closed or unused.
    """

    def __init__(self, name: str, destination: Hl7Destination) -> None:
        self._name = name
        self._destination = destination
        self._connection: MllpConnection | None = None
        self._used_at = 0.0
        self._stored_ids: deque[str] = deque(maxlen=_REMEMBERED)

    def deliver(self, document: Document) -> None:
        """Return when the receiver has acknowledged the message.

        See `DestinationClient.deliver`.
        """
        control_id = self._checked(document)
        acknowledgement = self._exchanged(document.content, control_id)
        self._used_at = time.monotonic()
        self._judge(acknowledgement)
        self._stored_ids.append(control_id)

    def probe(self, limit_seconds: float | None = None) -> Probe:
        """Connect, with TLS where it is set, and send nothing."""
        allowed = self._destination.timeout_seconds
        seconds = allowed if limit_seconds is None else min(allowed, limit_seconds)
        address = self._destination.address
        try:
            self._stays_open(seconds)
        except Retry as error:
            return Probe(self._name, address, is_ok=False, detail=error.detail)
        detail = "it accepts connections; MLLP has no test, so the first message shows the rest"
        return Probe(self._name, address, is_ok=True, detail=detail)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _checked(self, document: Document) -> str:
        """Return MSH-10. Raises Refused for a message that may not go there."""
        if document.kind != HL7.key:
            raise Refused(
                "not_a_message",
                f"{document.kind} is no HL7 message; send it to a folder",
            )
        fields = ["", *document.content.partition(b"\r")[0].decode("latin-1").split("|")]
        character_set = fields[_CHARACTER_SET]
        wanted = self._destination.character_set
        if character_set != wanted and not document.content.isascii():
            raise Refused(
                "character_set",
                f"the message is in {character_set}, because of its letters, and {self._name} takes"
                f" {wanted}; set character_set to {character_set} here and at the receiver, then"
                " requeue; or correct the text in the images and have the study read again",
            )
        return fields[_CONTROL_ID]

    def _exchanged(self, content: bytes, control_id: str) -> _Acknowledgement:
        """Send, and wait for the acknowledgement. A connection that was kept may have ended.

        Then the message goes once more over a new one: it is the same message, by its MSH-10.
        """
        if (kept := self._kept()) is not None:
            try:
                return self._asked(kept, content, control_id)
            except ConnectionLost as lost:
                self.close()
                if isinstance(lost, PeerSilent):
                    raise self._unknown(lost) from lost
        self._connection = self._opened(self._destination.timeout_seconds)
        try:
            return self._asked(self._connection, content, control_id)
        except TlsEnded as lost:  # a certificate; no message was read
            self.close()
            raise Retry(f"{self._destination.address}: {lost}", is_outage=True) from lost
        except ConnectionLost as lost:
            self.close()
            raise self._unknown(lost, self._hint(lost)) from lost

    def _asked(
        self, connection: MllpConnection, content: bytes, control_id: str
    ) -> _Acknowledgement:
        """Return the acknowledgement of this message; skip those of others.

        Raises ConnectionLost.
        """
        seconds = self._destination.timeout_seconds
        connection.send_message(content)
        deadline = time.monotonic() + seconds
        others = 0
        try:
            while True:
                found = _Acknowledgement.of(connection.receive_message(deadline, seconds))
                if found.control_id == control_id:
                    return found
                others += 1
                self._note_late(found)
        except ConnectionLost as lost:
            beside = f"; {others} came for other messages (MSA-2)" if others else ""
            raise type(lost)(f"{lost}{beside}") from lost

    def _kept(self) -> MllpConnection | None:
        """Return the open connection, if it can be used again; else close it."""
        kept = self._connection
        if kept is None:
            return None
        is_old = time.monotonic() - self._used_at > self._destination.idle_seconds
        if is_old or kept.has_ended:
            self.close()
        return self._connection

    def _opened(self, seconds: float) -> MllpConnection:
        """Return a new connection. Raises Retry (an outage)."""
        peer = self._destination
        try:
            plain = socket.create_connection((peer.host, peer.port), seconds)
        except OSError as error:
            what = error.strerror or "no answer in time"
            raise Retry(
                f"{peer.address}: no connection ({what}); is it running, are host and port right,"
                " is a firewall between?",
                is_outage=True,
            ) from error
        # The end of a message must not wait for the acknowledgement of its beginning.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = tls_of(peer, peer.host)
        connected = plain if tls is None else secure(plain, tls, peer.address)
        return MllpConnection(connected, peer.timeout_seconds)

    def _stays_open(self, seconds: float) -> None:
        """Open a connection and close it. Raises Retry where the receiver closes it at once.

        In TLS 1.3 the alert about our certificate comes after the handshake (RFC 8446 4.4.2.4).
        """
        connection = self._opened(seconds)
        limit = min(seconds, _FIRST_SECONDS)
        try:
            connection.receive_message(time.monotonic() + limit, limit)
        except PeerSilent:
            return
        except ConnectionLost as lost:
            raise Retry(
                f"{self._destination.address}: {lost}, before any message{self._hint(lost)}; does"
                " it know our address?",
                is_outage=True,
            ) from lost
        finally:
            connection.close()

    def _hint(self, lost: ConnectionLost) -> str:
        """Return another cause for a new connection that ends.

        Some servers end TLS without an alert.
        """
        if isinstance(lost, PeerSilent | TlsEnded):
            return ""
        if not self._destination.tls:
            return "; does it want TLS? Then set tls"
        if self._destination.certificate_file is None:
            return "; does it want our certificate? Then give certificate_file and key_file"
        return ""

    def _unknown(self, lost: ConnectionLost, hint: str = "") -> UnknownOutcome:
        return UnknownOutcome(
            f"{self._destination.address} did not acknowledge the message ({lost}{hint}); the same"
            " message is sent again, under the same MSH-10"
        )

    def _judge(self, acknowledgement: _Acknowledgement) -> None:
        """Raise the exception of an acknowledgement that is not positive."""
        code = acknowledgement.code
        if code in _STORED:
            return
        said = f"{self._destination.address} answers {code}{acknowledgement.error_words}"
        if code in _REJECT and acknowledgement.error not in _UNSUPPORTED:
            raise ReceiverBusy(f"{said}: it cannot take the message now; its log says why")
        if code in _ERROR | _REJECT:
            raise Refused(
                "message_refused",
                f"{said}: its log says which field it does not accept; correct the settings of this"
                " destination or the receiver, then requeue",
            )
        raise UnknownOutcome(
            f"{self._destination.address} answers with a code that table 0008 does not have; ask"
            " its vendor"
        )

    def _note_late(self, found: _Acknowledgement) -> None:
        """Log an error that comes after the message was acknowledged: its receiver has changed."""
        if found.control_id in self._stored_ids and found.code in _ERROR | _REJECT:
            log.warning(
                "hl7_error_after_acknowledgement",
                destination=self._name,
                control_id=found.control_id,
                code=found.code,
                advice="the receiver stored this message and refused it later; see its log",
            )


@dataclass(frozen=True, slots=True)
class _Acknowledgement:
    """MSA-1, MSA-2 and ERR-3.1 of a message; empty where it has none."""

    code: str = ""
    control_id: str = ""
    error: str = ""

    @classmethod
    def of(cls, message: bytes) -> _Acknowledgement:
        """Read a message in any single-byte view: codes and numbers are ASCII."""
        segments = message.decode("latin-1").replace("\n", "\r").split("\r")
        header = segments[0].lstrip()
        if not header.startswith("MSH") or len(header) < len("MSH|^"):
            return cls()
        field = header[3]
        component = header[4]
        by_name = {item[:3]: item.split(field) for item in reversed(segments[1:]) if item}
        msa = [*by_name.get("MSA", []), "", "", ""]
        err = [*by_name.get("ERR", []), *[""] * 4]
        code = msa[1].strip()
        return cls(
            code if _CODE.fullmatch(code) else "",
            msa[2].strip(),
            err[3].partition(component)[0].strip(),
        )

    @property
    def error_words(self) -> str:
        """ERR-3 in words, if it is a code of the standard."""
        return f" ({self.error} {_ERRORS[self.error]})" if self.error in _ERRORS else ""
