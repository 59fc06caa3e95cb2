"""HAProxy before an HTTP server, as hospitals put TLS before an archive."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.support.peers.certificates import Identity
from tests.support.peers.peers import Peer, free_port, require_program

_SECONDS: Final = 60


class TlsProxy(Peer):
    """Ends TLS, and asks each client for a certificate of `trusted`."""

    def __init__(self, own: Identity, trusted: Path, http_port: int) -> None:
        self._program = require_program("haproxy", "haproxy")
        super().__init__()
        self._own = own
        self._trusted = trusted
        self._behind = http_port
        self.port = free_port()

    @property
    def url(self) -> str:
        """Its address."""
        return f"https://127.0.0.1:{self.port}"

    def _ports(self) -> list[int]:
        return [self.port]

    def _command(self) -> list[str]:
        whole = self.folder / "own.pem"
        whole.write_bytes(self._own.certificate.read_bytes() + self._own.key.read_bytes())
        file = self.folder / "haproxy.cfg"
        file.write_text(
            f"defaults\n mode http\n timeout connect {_SECONDS}s\n timeout client {_SECONDS}s\n"
            f" timeout server {_SECONDS}s\n"
            f"frontend tls\n bind 127.0.0.1:{self.port} ssl crt {whole} ca-file {self._trusted}"
            " verify required\n default_backend archive\n"
            f"backend archive\n server orthanc 127.0.0.1:{self._behind}\n",
            encoding="utf-8",
        )
        return [self._program, "-db", "-f", str(file)]
