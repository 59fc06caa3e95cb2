"""Audit messages to a syslog collector (RFC 5424): UDP (RFC 5426), TCP (RFC 6587), TLS (RFC 5425).

Written here because no library for it is maintained: rfc5424-logging-handler has had no release
since 2019, and the standard library implements RFC 3164. Syslog has no responses, so by TCP and TLS
each batch is a connection of its own. A batch has arrived when the collector has read to its end
and closes, too, or when its kernel has acknowledged every byte.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import ssl
import struct
import termios
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hilum.audit.message import AuditSource, message
from hilum.errors import ConfigurationError
from hilum.settings import Syslog
from hilum.timestamps import iso
from hilum.verbs import VerbOutcome

Row = Mapping[str, Any]
_AUTHPRIV: Final = 10  # RFC 5424 6.2.1, security messages; PS3.15 A.6.2 leaves it to the site
_SEVERITIES: Final[Mapping[str, int]] = {
    VerbOutcome.BEGUN: 5,
    VerbOutcome.DONE: 5,
    VerbOutcome.REFUSED: 4,
    VerbOutcome.FAILED: 3,
}
_MESSAGE_ID: Final = "DICOM+RFC3881"  # PS3.15 A.6
_BOM: Final = b"\xef\xbb\xbf"
_TIMEOUT_SECONDS: Final = 10.0
_HOSTNAME_CHARACTERS: Final = 255


class NotDelivered(Exception):
    """The collector has not taken the batch, or its state is unknown; it is sent again."""


def line(row: Row, source: AuditSource) -> bytes:
    """One SYSLOG-MSG (RFC 5424 6)."""
    priority = _AUTHPRIV * 8 + _SEVERITIES[row["outcome"]]
    host = (
        "".join(letter for letter in row["host"] if "!" <= letter <= "~")[:_HOSTNAME_CHARACTERS]
        or "-"
    )
    header = (
        f"<{priority}>1 {iso(row['at'])} {host} {source.application} {os.getpid()} {_MESSAGE_ID} - "
    )
    return header.encode() + _BOM + message(row, source)


class Collector:
    """Sends batches of rows. Raises ConfigurationError for files that are not usable."""

    def __init__(self, settings: Syslog, source: AuditSource) -> None:
        self._settings = settings
        self._source = source
        self._context = _context(settings) if settings.protocol == "tls" else None

    def send(self, rows: Sequence[Row]) -> None:
        """All of them, in order. Raises NotDelivered."""
        lines = [line(row, self._source) for row in rows]
        try:
            if self._settings.protocol == "udp":
                self._send_datagrams(lines)
            else:
                self._send_stream(b"".join(b"%d %b" % (len(item), item) for item in lines))
        except OSError as error:
            raise NotDelivered(_words(error)) from error

    def _send_datagrams(self, lines: Sequence[bytes]) -> None:
        family, kind, protocol, _, address = socket.getaddrinfo(
            self._settings.host, self._settings.port, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as sending:
            sending.connect(address)
            for item in lines:
                sending.send(item)
            # A host without a collector says so; of one that is not there nothing comes back.
            sending.settimeout(0.1)
            with contextlib.suppress(TimeoutError):
                sending.recv(1)

    def _send_stream(self, content: bytes) -> None:
        with socket.create_connection(
            (self._settings.host, self._settings.port), timeout=_TIMEOUT_SECONDS
        ) as plain:
            if self._context is None:
                plain.sendall(content)
                plain.shutdown(socket.SHUT_WR)
                _await_end(plain, plain)
                return
            with self._context.wrap_socket(plain, server_hostname=self._settings.host) as secured:
                secured.sendall(content)
                _end_tls(secured)


def _context(settings: Syslog) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.certificate_file:
            context.load_cert_chain(settings.certificate_file, settings.key_file)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigurationError(
            [f"audit.syslog: {_words(error)}. Give PEM files that this user may read."]
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _end_tls(secured: ssl.SSLSocket) -> None:
    """Say that there is no more, and wait: the other side may then close without a word."""
    try:
        secured.unwrap()
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        return
    except TimeoutError:
        _require_acknowledged(secured)


def _await_end(reading: socket.socket, plain: socket.socket) -> None:
    try:
        while reading.recv(4096):
            pass
    except TimeoutError:
        _require_acknowledged(plain)


def _require_acknowledged(plain: socket.socket) -> None:
    """Raise NotDelivered while bytes wait for the other kernel (SIOCOUTQ)."""
    waiting = struct.unpack("i", fcntl.ioctl(plain.fileno(), termios.TIOCOUTQ, b"\0" * 4))[0]
    if waiting:
        raise NotDelivered(f"{waiting} bytes were not acknowledged within {_TIMEOUT_SECONDS:g} s")


def _words(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
