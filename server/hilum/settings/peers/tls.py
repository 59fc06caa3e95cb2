"""Settings of TLS to a system that Hilum connects to."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from hilum.settings.fields import Section


class TlsClient(Section):
    """The part of a section that is about TLS to its peer."""

    tls: bool = Field(
        default=False,
        description="TLS 1.2 or later; the peer's certificate is verified.",
    )
    ca_file: Path | None = Field(
        None,
        description=(
            "tls: PEM file of the authority that signed the peer's certificate; none: the system's."
        ),
    )
    certificate_file: Path | None = Field(
        None, description="tls: PEM file of our certificate, for a peer that asks for one."
    )
    key_file: Path | None = Field(
        None, description="tls: PEM file of the key to it, not encrypted."
    )
    tls_server_name: str = Field(
        "", description="tls: name in the peer's certificate, where it is not its host."
    )

    @model_validator(mode="after")
    def _tls_is_whole(self) -> Self:
        named = (self.ca_file, self.certificate_file, self.key_file, self.tls_server_name)
        if not self.tls and any(named):
            raise ValueError(
                "ca_file, certificate_file, key_file and tls_server_name need tls = true"
            )
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file belong together; give both or none")
        return self
