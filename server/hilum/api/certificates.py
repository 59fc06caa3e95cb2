"""Certificates that the settings name: ours, and those of authorities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from hilum.settings import DicomwebSource, HttpPeer, Settings, TlsClient
from hilum.settings.service import Syslog
from hilum.settings.sources import DimseSource


def tls_clients(settings: Settings) -> Iterator[tuple[str, TlsClient | HttpPeer | Syslog]]:
    """Yield each section that connects by TLS, with its name."""
    for name, destination in settings.destinations.items():
        if destination.tls_client is not None:
            yield f"destinations.{name}", destination.tls_client
    for title, peer in settings.commitment.items():
        yield f"commitment.{title}", peer
    for name, source in settings.sources.items():
        if isinstance(source, DimseSource | DicomwebSource):
            yield f"sources.{name}", source
    yield "worklist", settings.worklist
    yield "triton", settings.triton
    yield "audit.syslog", settings.audit.syslog


def own_certificates(settings: Settings) -> Mapping[str, Path]:
    """Return our certificates by section."""
    found = {
        "receive": settings.receive.tls_certificate_file,
        "api": settings.api.tls_certificate_file,
        "ledger": settings.ledger.tls_files.get("sslcert"),
    }
    found |= {section: files.certificate_file for section, files in tls_clients(settings)}
    return {section: file for section, file in found.items() if file is not None}


def authorities(settings: Settings) -> Mapping[str, Path]:
    """Return the files of authorities by section."""
    found = {
        "receive": settings.receive.tls_client_ca_file,
        "ledger": settings.ledger.tls_files.get("sslrootcert"),
        "archive": settings.archive.ca_file,
    }
    found |= {section: files.ca_file for section, files in tls_clients(settings)}
    return {section: file for section, file in found.items() if file is not None}
