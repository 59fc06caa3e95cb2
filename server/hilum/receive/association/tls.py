"""TLS of the listener (PS3.15 B.9 and B.10, after BCP 195): the context and the handshake.

Failures are explained in words.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hilum.dicom.own_certificate import (
    CERTIFICATE_HAS_EXPIRED,
    crls_expire_at,
    expires_at,
    load_own_certificate,
)
from hilum.errors import ConfigurationError
from hilum.observability import telemetry
from hilum.settings import FINGERPRINT, Receive, certificate_name
from hilum.timestamps import iso

_log = telemetry.logger("receive")

# PS3.15 B.9: TLS 1.2 or newer; of TLS 1.2 the suites with forward secrecy and authenticated
# encryption (RFC 9325 4.2).
_SUITES = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:!aNULL"


_NO_TLS = (
    "It sent something that is no TLS ({}). Set the sender to TLS, or send to the port without TLS."
)
_ADVICE = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": (
        "It showed no certificate, and receive.tls_client_ca_file asks for one: "
        "give the sender one that this authority has signed."
    ),
    "CERTIFICATE_EXPIRED": (
        "It says that our certificate has expired ({}): renew receive.tls_certificate_file, which"
        " takes no restart; or correct the sender's clock."
    ),
    "HTTP_REQUEST": _NO_TLS,
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "UNKNOWN_PROTOCOL": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "ALERT": (
        "It refused our certificate or our terms ({}): let the sender trust the authority of our"
        " certificate."
    ),
}
_ELSE = "The TLS handshake failed ({}): TLS 1.2 or newer, with forward secrecy, is needed."


# X509_V_ERR_... of OpenSSL, `ssl.SSLCertVerificationError.verify_code`, and the remedy.
_NO_CRL = 3
_CRL_NOT_YET_VALID = 11
_CRL_HAS_EXPIRED = 12
_REVOKED = 23
_VERIFY_ADVICE = {
    CERTIFICATE_HAS_EXPIRED: "renew it at the sender, or that of who signed it",
    _REVOKED: "its authority has revoked it: give the sender a new one",
    _NO_CRL: "receive.tls_crl_file has no list of the authority that signed it: add that list",
    _CRL_NOT_YET_VALID: (
        "the list in receive.tls_crl_file is of the future: correct this host's clock"
    ),
    _CRL_HAS_EXPIRED: (
        "the list in receive.tls_crl_file has expired, so nobody gets in: put the authority's new"
        " list there"
    ),
}


class HandshakeFailed(Exception):
    """A failed handshake. `advice` for the sender's administrator.

    None: the peer was silent, as health checks are.
    """

    def __init__(self, advice: str | None) -> None:
        super().__init__(advice)
        self.advice = advice


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A context, and the state of the files that it was made of."""

    context: ssl.SSLContext
    stamps: tuple[tuple[int, int], ...]


class ServerTls:
    """The server's certificates, safe from any thread.

    They are read again when their files have changed, so a renewal needs no restart.
    """

    def __init__(self, settings: Receive) -> None:
        """Load the certificates. Raises ConfigurationError."""
        assert settings.tls_certificate_file is not None
        assert settings.tls_key_file is not None
        self._certificate = settings.tls_certificate_file
        self._key = settings.tls_key_file
        self._authority = settings.tls_client_ca_file
        self._crl = settings.tls_crl_file
        self._lock = threading.Lock()
        try:
            self._loaded = self._load()
        except OSError as error:
            problem = (
                "receive.tls_certificate_file, tls_key_file, tls_client_ca_file, tls_crl_file:"
                f" {_why_unusable(error)}"
            )
            raise ConfigurationError(
                [f"{problem}; give PEM files that belong together and that this user may read."]
            ) from error

    def context(self) -> ssl.SSLContext:
        """Return the context for one handshake.

        Files that are no longer usable are reported, and the last good ones stay.
        """
        with self._lock:
            try:
                if self._stamps() != self._loaded.stamps:
                    self._loaded = self._load()
                    _log.info("certificates_reloaded")
                    self.warn_if_expired()
            except OSError as error:
                _log.error(
                    "certificates_not_usable",
                    problem=_why_unusable(error),
                    advice="the former ones stay in use until they are",
                )
            return self._loaded.context

    def warn_if_expired(self) -> None:
        """Log an expired certificate.

        It is still used: senders that do not check it can still send.
        """
        with contextlib.suppress(OSError):  # OpenSSL has read it, and its reading counts
            if (moment := expires_at(self._certificate)) <= time.time():
                advice = (
                    "senders refuse it: renew receive.tls_certificate_file, which takes no restart"
                )
                _log.warning(
                    "certificate_expired", expired_at=iso(moment, "seconds"), advice=advice
                )

    def _load(self) -> _Loaded:
        stamps = self._stamps()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(_SUITES)
        load_own_certificate(context, self._certificate, self._key)
        if self._authority is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self._authority)
        if self._crl is not None:
            # OpenSSL takes a file without one, and then refuses every certificate
            crls_expire_at(self._crl)
            context.load_verify_locations(self._crl)
            context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
        return _Loaded(context, stamps)

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        return tuple(
            _stamp(file)
            for file in (self._certificate, self._key, self._authority, self._crl)
            if file is not None
        )


def _stamp(file: Path) -> tuple[int, int]:
    """Return inode and time: a replaced file has another inode, a rewritten one another time."""
    status = file.stat()
    return status.st_ino, status.st_mtime_ns


def begin_tls(plain: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
    """Return the connection before its handshake; `plain` is unusable then.

    Raises HandshakeFailed.
    """
    try:
        return context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
    except OSError as error:
        plain.close()
        raise HandshakeFailed(_advice(error)) from error


def shake_hands(connection: ssl.SSLSocket, seconds: float) -> None:
    """Shake hands; each step takes so many seconds at most. Raises HandshakeFailed."""
    connection.settimeout(seconds)
    try:
        connection.do_handshake()
    except OSError as error:
        raise HandshakeFailed(_advice(error)) from error


def certificate_names(sock: socket.socket | None) -> frozenset[str]:
    """Return the names of a peer's certificate, as in `Sender.certificate_names`.

    Empty: the peer has presented none. The names are Common Names of the subject, SAN dNSName and
    uniformResourceIdentifier (RFC 5280 4.2.1.6), and `sha256:` with the fingerprint.
    """
    shown = sock.getpeercert(binary_form=True) if isinstance(sock, ssl.SSLSocket) else None
    if not shown:
        return frozenset()
    assert isinstance(sock, ssl.SSLSocket)
    read: dict[str, Any] = sock.getpeercert() or {}
    names = [value for kind, value in read.get("subjectAltName", ()) if kind in ("DNS", "URI")]
    names += [
        value for part in read.get("subject", ()) for kind, value in part if kind == "commonName"
    ]
    said = (certificate_name(name) for name in names)
    # A name signed by an authority must not pass for the fingerprint of another certificate.
    return frozenset(name for name in said if not name.startswith(FINGERPRINT)) | {
        FINGERPRINT + hashlib.sha256(shown).hexdigest()
    }


def shut_down(sock: socket.socket, how: int) -> None:
    """End the reading or the writing of a socket that another thread uses.

    SSLSocket's own method would end TLS during that thread's call.
    """
    socket.socket.shutdown(sock, how)


def _why_unusable(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "no PEM").lower().replace("_", " ")
    return f"{error.filename or 'a file'}: {error.strerror}"


def _advice(error: OSError) -> str | None:
    # A connection that ends without a message raises one or the other, depending on Python's patch
    # release.
    if (
        isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionResetError)
        or error.errno == errno.ENOTCONN
    ):
        return None
    if isinstance(error, TimeoutError):
        return (
            "It did not finish the TLS handshake in time. Does the sender speak TLS to this port?"
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = _VERIFY_ADVICE.get(
            error.verify_code, "have it signed by the authority of receive.tls_client_ca_file"
        )
        return f"Its certificate is not accepted ({error.verify_message}): {advice}."
    reason = getattr(error, "reason", None) or ""
    advice = next((advice for sign, advice in _ADVICE.items() if sign in reason), _ELSE)
    return advice.format(reason.lower().replace("_", " ") or "no reason given")
