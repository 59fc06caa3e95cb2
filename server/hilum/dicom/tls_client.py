"""TLS to a peer (PS3.15 Annex B): the context, the handshake, and failures in words."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hilum.dicom.own_certificate import CERTIFICATE_HAS_EXPIRED, load_own_certificate
from hilum.errors import Retry


@dataclass(frozen=True, slots=True)
class Tls:
    """The trusted authorities, our certificate, and the name in the peer's certificate."""

    ca_file: Path | None
    certificate_file: Path | None
    key_file: Path | None
    server_name: str

    def context(self) -> ssl.SSLContext:
        """Return a context from the files. Raises Retry (an outage).

        The files are read for each association, so that a renewed certificate needs no restart.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.certificate_file is not None:
                load_own_certificate(context, self.certificate_file, self.key_file)
        except ssl.SSLError as error:
            detail = (
                f"TLS: {self._files()}: not usable ({error.reason or 'no PEM'}); give PEM files"
                " that belong together"
            )
            raise Retry(detail, is_outage=True) from error
        except OSError as error:
            detail = f"TLS: {self._files()}: {error.strerror}; give files that this user may read"
            raise Retry(detail, is_outage=True) from error
        return context

    def _files(self) -> str:
        return ", ".join(
            str(file) for file in (self.ca_file, self.certificate_file, self.key_file) if file
        )


class TlsFields(Protocol):
    """The part of a peer's settings that is about TLS."""

    @property
    def tls(self) -> bool:
        """Whether the association is encrypted."""

    @property
    def ca_file(self) -> Path | None:
        """The authorities; None: the system's."""

    @property
    def certificate_file(self) -> Path | None:
        """Our certificate."""

    @property
    def key_file(self) -> Path | None:
        """The key to it."""

    @property
    def tls_server_name(self) -> str:
        """The name in the peer's certificate; empty: its host."""


def tls_of(peer: TlsFields, host: str) -> Tls | None:
    """Return the TLS settings of a peer at `host`; None: the association is not encrypted."""
    if not peer.tls:
        return None
    return Tls(peer.ca_file, peer.certificate_file, peer.key_file, peer.tls_server_name or host)


def secure(plain: socket.socket, tls: Tls, peer: str) -> ssl.SSLSocket:
    """Return the connection after the handshake, which has the connection's own time limit.

    Raises Retry (an outage) with the cause.
    """
    try:
        return tls.context().wrap_socket(plain, server_hostname=tls.server_name)
    except Retry:
        plain.close()
        raise
    except OSError as error:
        plain.close()
        raise Retry(f"{peer}: {handshake_problem(error)}", is_outage=True) from error


def handshake_problem(error: OSError) -> str:
    """Return why a handshake failed, with the remedy."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code == CERTIFICATE_HAS_EXPIRED:
            return (
                f"its certificate is not accepted ({error.verify_message}); it is to be renewed"
                " there"
            )
        return (
            f"its certificate is not accepted ({error.verify_message}); correct ca_file or"
            " tls_server_name"
        )
    if isinstance(error, ssl.SSLError) and is_of_our_end(error):
        return f"it says that our certificate has expired ({words(error)}); renew certificate_file"
    if isinstance(error, ssl.SSLError):
        return (
            f"TLS failed ({words(error)}); does this port speak TLS, and does it want our"
            " certificate?"
        )
    return "it ends or ignores the TLS handshake; does this port speak TLS?"


def is_of_our_end(error: ssl.SSLError) -> bool:
    """Whether the peer refuses our certificate as expired (RFC 8446 6.2, certificate_expired)."""
    return "CERTIFICATE_EXPIRED" in (error.reason or "")


def words(error: ssl.SSLError) -> str:
    """Return the reason given by the peer or the TLS library."""
    return (error.reason or "no reason given").lower().replace("_", " ")
