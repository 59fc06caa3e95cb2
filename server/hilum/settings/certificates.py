"""Certificates that the settings name: ours, and those of authorities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

from hilum.settings.root import Settings
from hilum.settings.sources import DimseSource


class ClientFiles(Protocol):
    """The files of a section that connects by TLS."""

    @property
    def ca_file(self) -> Path | None:
        """The authorities; None: the system's."""

    @property
    def certificate_file(self) -> Path | None:
        """Our certificate."""

    @property
    def key_file(self) -> Path | None:
        """The key to it."""


def tls_clients(settings: Settings) -> Iterator[tuple[str, ClientFiles]]:
    """Yield each section that connects by TLS, with its name."""
    for name, destination in settings.destinations.items():
        if destination.tls_client is not None:
            yield f"destinations.{name}", destination.tls_client
    for title, peer in settings.commitment.items():
        yield f"commitment.{title}", peer
    for name, source in settings.sources.items():
        if isinstance(source, DimseSource):
            yield f"sources.{name}", source
    yield "triton", settings.triton
    yield "audit.syslog", settings.audit.syslog


def own_certificates(settings: Settings) -> Mapping[str, Path]:
    """Return our certificates by section."""
    found = {
        "receive": settings.receive.tls_certificate_file,
        "api": settings.api.tls_certificate_file,
        "ledger": ledger_files(settings).get("sslcert"),
    }
    found |= {section: files.certificate_file for section, files in tls_clients(settings)}
    return {section: file for section, file in found.items() if file is not None}


def authorities(settings: Settings) -> Mapping[str, Path]:
    """Return the files of authorities by section."""
    found = {
        "receive": settings.receive.tls_client_ca_file,
        "ledger": ledger_files(settings).get("sslrootcert"),
    }
    found |= {section: files.ca_file for section, files in tls_clients(settings)}
    return {section: file for section, file in found.items() if file is not None}


def ledger_files(settings: Settings) -> Mapping[str, Path]:
    """Return the files of TLS that `ledger.url` names, by libpq's words.

    `sslrootcert=system` means the authorities of this machine, and is no file.
    """
    named = ledger_words(settings)
    return {
        word: Path(named[word])
        for word in ("sslrootcert", "sslcert", "sslkey")
        if named.get(word, "system") != "system"
    }


def ledger_words(settings: Settings) -> Mapping[str, str]:
    """Return the words of libpq behind the question mark of `ledger.url`."""
    return {
        name: values[-1] for name, values in parse_qs(urlsplit(settings.ledger.url).query).items()
    }
