"""Settings of a DICOM peer that Hilum queries."""

from __future__ import annotations

from pydantic import Field

from hilum.settings.fields import AeTitle, Host, Port
from hilum.settings.peers.tls import TlsClient


class DimsePeer(TlsClient):
    """The part of a section that is about the association to its peer."""

    host: Host = Field(description="Its host.")
    port: Port = Field(description="Its port for C-FIND.")
    ae_title: AeTitle = Field(description="Its AE Title.")
    calling_ae_title: AeTitle = Field(
        "HILUM", description="Our AE Title as it is registered there."
    )
    timeout_seconds: float = Field(30.0, gt=0, description="Limit for each message.")

    @property
    def address(self) -> str:
        """AE_TITLE@HOST:PORT."""
        return f"{self.ae_title}@{self.host}:{self.port}"
