"""TLS to a receiver (PS3.15 Annex B): the context, and in words why a handshake failed, which pynetdicom keeps to itself."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hilum.errors import Retry
from hilum.settings import Destination

# In TLS 1.3 a receiver that wants our certificate says so after our side has finished (RFC 8446 4.4.2.4).
_ALERT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Tls:
    """Whom we trust, who we are, and the name that must stand in the receiver's certificate."""

    ca_file: Path | None
    certificate_file: Path | None
    key_file: Path | None
    server_name: str

    def context(self) -> ssl.SSLContext:
        """Read from the files for each association, so that a renewed certificate needs no restart. Raises Retry (an outage)."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.key_file)
        except ssl.SSLError as error:
            detail = f"TLS: {self._files()}: not usable ({error.reason or 'no PEM'}); give PEM files that belong together"
            raise Retry(detail, is_outage=True) from error
        except OSError as error:
            detail = f"TLS: {self._files()}: {error.strerror}; give files that this user may read"
            raise Retry(detail, is_outage=True) from error
        return context

    def _files(self) -> str:
        return ", ".join(str(file) for file in (self.ca_file, self.certificate_file, self.key_file) if file)


def tls_of(destination: Destination) -> Tls | None:
    """None: the association is not encrypted."""
    if not destination.tls:
        return None
    name = destination.tls_server_name or destination.host
    return Tls(destination.ca_file, destination.certificate_file, destination.key_file, name)


def why_no_handshake(tls: Tls, host: str, port: int, timeout_seconds: float) -> str | None:
    """What TLS itself says of a receiver that gave no DICOM answer; None when it is not TLS that fails."""
    try:
        plain = socket.create_connection((host, port), timeout_seconds)
    except OSError:
        return None
    with plain:
        return _handshake(plain, tls)


def _handshake(plain: socket.socket, tls: Tls) -> str | None:
    try:
        with tls.context().wrap_socket(plain, server_hostname=tls.server_name) as secured:
            return _alert(secured)
    except ssl.SSLCertVerificationError as error:
        return f"its certificate is not accepted ({error.verify_message}); correct ca_file or tls_server_name"
    except ssl.SSLError as error:
        return f"TLS failed ({_words(error)}); does this port speak TLS, and does it want our certificate?"
    except OSError:
        return "it ends or ignores the TLS handshake; does this port speak TLS?"


def _alert(secured: ssl.SSLSocket) -> str | None:
    secured.settimeout(_ALERT_SECONDS)
    try:
        secured.recv(1)
    except TimeoutError:
        return None
    except ssl.SSLError as error:
        return f"it ended TLS ({_words(error)}); give certificate_file and key_file, and have our certificate trusted there"
    return None


def _words(error: ssl.SSLError) -> str:
    return (error.reason or "no reason given").lower().replace("_", " ")
