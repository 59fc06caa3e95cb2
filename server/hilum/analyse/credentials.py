"""TLS to a Triton that Hilum does not run: its authority, our certificate, a bearer token."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hilum.dicom.own_certificate import load_own_certificate
from hilum.errors import ConfigurationError
from hilum.settings import Triton, printable_token

_TARGET_NAME: Final = "grpc.ssl_target_name_override"


@dataclass(frozen=True, slots=True)
class Credentials:
    """PEM texts and a token for a Triton.

    `authorities` None: the system's. `certificate` None: we present no certificate. `server_name`:
    the name in Triton's certificate; empty: the host of the address.
    """

    authorities: bytes | None
    certificate: bytes | None = field(repr=False)
    key: bytes | None = field(repr=False)
    server_name: str
    token: str = field(repr=False)

    def channel(self) -> Any:  # noqa: ANN401 - grpc has no types
        """Return credentials for gRPC. The token goes with each call, and over TLS only."""
        import grpc  # noqa: PLC0415 - the supervisor reads credentials, too, and does without gRPC

        made = grpc.ssl_channel_credentials(self.authorities, self.key, self.certificate)
        return (
            grpc.composite_channel_credentials(made, grpc.access_token_call_credentials(self.token))
            if self.token
            else made
        )

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """Options of the channel."""
        return ((_TARGET_NAME, self.server_name),) if self.server_name else ()


def read(settings: Triton) -> Credentials | None:
    """Return the credentials; None: calls are not encrypted.

    Raises ConfigurationError where a file cannot be used.
    """
    if not settings.tls:
        return None
    try:
        _require_usable(settings)
        files = settings.ca_file, settings.certificate_file, settings.key_file
        authorities, certificate, key = (
            None if file is None else file.read_bytes() for file in files
        )
        return Credentials(
            authorities, certificate, key, settings.tls_server_name, _token(settings)
        )
    except (OSError, ValueError) as error:
        named = getattr(error, "filename", None) or ", ".join(
            str(file) for file in _files(settings)
        )
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(
            [f"triton: TLS to it cannot begin with {named}: {reason}"]
        ) from error


def _files(settings: Triton) -> list[Path]:
    return [
        file for file in (settings.ca_file, settings.certificate_file, settings.key_file) if file
    ]


def _require_usable(settings: Triton) -> None:
    """Raise OpenSSL's error for unusable files.

    gRPC would only fail at each connection, without a reason.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if settings.ca_file is not None:
        context.load_verify_locations(settings.ca_file)
    if settings.certificate_file is not None:
        load_own_certificate(context, settings.certificate_file, settings.key_file)


def _token(settings: Triton) -> str:
    """Return the token, without the line end of its file. Raises OSError, ValueError."""
    if settings.token_file is None:
        return settings.token
    token = printable_token(settings.token_file.read_text(encoding="utf-8").rstrip("\r\n"))
    if not token:
        raise ValueError(f"{settings.token_file} is empty")
    return token
