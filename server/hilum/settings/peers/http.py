"""Settings of an HTTP server that Hilum connects to."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from hilum.settings.fields import Section


class HttpPeer(Section):
    """The part of a section that is about HTTP to its peer: address, credentials, TLS."""

    url: str = Field(pattern=r"^https?://[^\s@?#]+$", description="Its address.")
    user: str = Field("", description="User of basic authentication.")
    password_file: Path | None = Field(None, description="File with the password of `user`.")
    token_file: Path | None = Field(None, description="File with a bearer token.")
    oauth_url: str = Field(
        "",
        pattern=r"^(https?://[^\s@?#]+)?$",
        description="Token endpoint of OAuth 2 client credentials (RFC 6749 4.4).",
    )
    oauth_client_id: str = Field("", description="The client's name there.")
    oauth_secret_file: Path | None = Field(None, description="File with the client's secret.")
    oauth_scope: str = Field("", description="Scope to ask for; empty: none.")
    ca_file: Path | None = Field(
        None, description="PEM file of the authority of its certificate; none: the system's."
    )
    certificate_file: Path | None = Field(
        None, description="PEM file of our certificate, for a server that asks for one."
    )
    key_file: Path | None = Field(None, description="PEM file of the key to it, not encrypted.")
    timeout_seconds: float = Field(30.0, gt=0, description="Limit for each message.")
    allow_unencrypted: bool = Field(
        default=False,
        description="Secrets may go to an http:// address that is not this machine.",
    )

    @property
    def has_credentials(self) -> bool:
        """Whether requests have an Authorization header."""
        return bool(self.user or self.token_file or self.oauth_url)

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        ways = [bool(self.user), self.token_file is not None, bool(self.oauth_url)]
        if sum(ways) > 1:
            raise ValueError("give one of user, token_file and oauth_url")
        if bool(self.user) != (self.password_file is not None):
            raise ValueError("user and password_file belong together; give both or none")
        if bool(self.oauth_url) != (
            bool(self.oauth_client_id) and self.oauth_secret_file is not None
        ):
            raise ValueError("oauth_url, oauth_client_id and oauth_secret_file belong together")
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file belong together; give both or none")
        return self
