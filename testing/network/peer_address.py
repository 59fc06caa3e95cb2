"""An application entity on the network."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """Where the studies go."""

    ae_title: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Peer:
        """`AET@host:port`. Raises ValueError."""
        ae_title, at, rest = text.partition("@")
        host, colon, port = rest.rpartition(":")
        if not (at and colon and ae_title and host and port.isdigit()):
            raise ValueError(f"{text!r}: give AET@host:port, for example HILUM@127.0.0.1:11112")
        return cls(ae_title, host, int(port))

    def __str__(self) -> str:
        """As it is parsed."""
        return f"{self.ae_title}@{self.host}:{self.port}"
