"""Our certificate and its key, for either side of TLS, and the expiry dates of certificates."""

from __future__ import annotations

import base64
import contextlib
import errno
import math
import re
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

CERTIFICATE_HAS_EXPIRED: Final = 10
"""X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL, as in `ssl.SSLCertVerificationError.verify_code`.

It concerns the certificate or one that signed it.
"""
# X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL.
_OTHER_NAME: Final = (62, 64)
_TURNS: Final = 4
# The labels that OpenSSL takes (PEM_read_bio_X509_AUX). Data that it may add after a trusted one is
# ignored.
_PEM_CRL: Final = re.compile("-----BEGIN X509 CRL-----([^-]*)-----END ")
_PEM: Final = re.compile("-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----([^-]*)-----END ")
_NO_PEM: Final = "holds no certificate in PEM"
_NO_PEM_CRL: Final = "holds no certificate revocation list in PEM"
# DER tags
_VERSION = 0xA0
_INTEGER = 0x02
_UTC_TIME = 0x17
_GENERALIZED_TIME = 0x18


def load_own_certificate(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    """Load our certificate and its key. Raises OSError, also for an encrypted key.

    OpenSSL would otherwise wait for its password on the terminal.
    """

    def refuse() -> str:
        raise OSError(errno.EINVAL, "the key must not be encrypted", str(key))

    context.load_cert_chain(certificate, key, refuse)


def key_problem(certificate: Path, key: Path | None) -> str:
    """Return why certificate and key cannot be used together; empty: they belong together."""
    try:
        load_own_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate, key)
    except ssl.SSLError as error:
        reason = (error.reason or "no PEM").lower().replace("_", " ")
        return f"certificate and key are not usable together ({reason})"
    except OSError as error:
        return f"{error.filename or certificate}: {error.strerror or type(error).__name__}"
    return ""


def is_named(certificate: Path, key: Path, name: str) -> bool:
    """Return whether a client that connects by this name accepts the name in our certificate.

    A handshake within this process decides, by OpenSSL's rules (RFC 6125). Neither its authority
    nor its end matters here. Raises OSError for files that cannot be used.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_own_certificate(server, certificate, key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cafile=certificate)
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    to_server = ssl.MemoryBIO()
    to_client = ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    try:
        _shake(ends)
    except ssl.SSLCertVerificationError as error:
        return error.verify_code not in _OTHER_NAME
    return True


def _shake(ends: tuple[ssl.SSLObject, ssl.SSLObject]) -> None:
    """Let both ends take turns until the client has seen the certificate."""
    for _ in range(_TURNS):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()


def expires_at(certificate: Path) -> float:
    """Return the end of the first certificate of a PEM file, ours, in seconds since the epoch.

    Raises OSError, also where no certificate can be read.
    """
    return next(_ends(certificate))


def all_expire_at(authorities: Path) -> list[float]:
    """Return the end of each certificate of a PEM file, at least one, in seconds since the epoch.

    Raises OSError, also where one is unreadable.
    """
    return list(_ends(authorities))


def crls_expire_at(file: Path) -> list[float]:
    """Return nextUpdate of each revocation list of a PEM file, in seconds since the epoch.

    There is at least one. It is infinite where a list has no nextUpdate. Raises OSError, also where
    one is unreadable.
    """
    return list(_read(file, _PEM_CRL, _next_update, _NO_PEM_CRL))


def _ends(file: Path) -> Iterator[float]:
    return _read(file, _PEM, _not_after, _NO_PEM)


def _read(
    file: Path, pem: re.Pattern[str], moment_of: Callable[[bytes], float], problem: str
) -> Iterator[float]:
    found = pem.finditer(file.read_text(encoding="ascii", errors="replace"))
    first = next(found, None)
    if first is None:
        raise OSError(errno.EINVAL, problem, str(file))
    for each in (first, *found):
        try:
            yield moment_of(base64.b64decode(each[1]))
        except (ValueError, IndexError) as error:
            raise OSError(errno.EINVAL, problem, str(file)) from error


def _next_update(der: bytes) -> float:
    """Return nextUpdate (RFC 5280 5.1), which is optional, or infinity.

    An INTEGER comes first where the list has a version.
    """
    _, at, _ = _element(der, _element(der, 0)[1])  # into CertificateList, into TBSCertList
    if der[at] == _INTEGER:
        at = _element(der, at)[2]
    for _ in ("signature", "issuer", "thisUpdate"):
        at = _element(der, at)[2]
    return _moment(der, at) if der[at] in (_UTC_TIME, _GENERALIZED_TIME) else math.inf


def _not_after(der: bytes) -> float:
    """Return notAfter (RFC 5280 4.1).

    Python decodes a certificate only after a peer has presented it, so it is read here.
    """
    _, at, _ = _element(der, _element(der, 0)[1])  # into Certificate, into TBSCertificate
    if der[at] == _VERSION:
        at = _element(der, at)[2]
    for _ in ("serialNumber", "signature", "issuer"):
        at = _element(der, at)[2]
    _, not_before, _ = _element(der, at)
    return _moment(der, _element(der, not_before)[2])


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Return the tag of the element, the start of its content, and its end (X.690 8.1)."""
    tag = der[at]
    size = der[at + 1]
    start = at + 2
    if size & 0x80:
        count = size & 0x7F
        size = int.from_bytes(der[start : start + count], "big")
        start = start + count
    return tag, start, start + size


def _moment(der: bytes, at: int) -> float:
    """Return a UTCTime or GeneralizedTime of RFC 5280 4.1.2.5 (whole seconds, Z).

    Two digits of a year mean 1950 to 2049.
    """
    tag, start, end = _element(der, at)
    digits = der[start:end].decode("ascii")
    if tag == _UTC_TIME:
        digits = ("19" if digits >= "50" else "20") + digits
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
