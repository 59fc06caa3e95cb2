"""A receiver of webhooks on this machine, as a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self

from testing.peers import Program
from testing.serving import Section, free_ports

_ROOT: Final = Path(__file__).resolve().parents[1]
_PEERS: Final = _ROOT / ".venv/peers"
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - of tests, from the standard
PATH: Final = "/hooks/hilum"


class WebhookReceiver(Program):
    """Keeps each body that the reference library verifies; answers with `status`."""

    _port = 0

    def __init__(self, folder: Path, status: int = 204, secret: str = SECRET) -> None:
        super().__init__(folder)
        self._status = status
        self._secret = secret

    @property
    def port(self) -> int:
        """Its port."""
        return self._port

    @property
    def settings(self) -> Section:
        """Our destination."""
        return section_of(self._port, self.folder)

    def held(self) -> list[str]:
        """The webhook-ids of what it holds."""
        return sorted(path.name for path in (self.folder / "received").iterdir())

    def body(self, identity: str) -> bytes:
        """The body under a webhook-id."""
        return (self.folder / "received" / identity).read_bytes()

    def __enter__(self) -> Self:
        """Start it on a free port."""
        (self._port,) = free_ports(1)
        received = self.folder / "received"
        received.mkdir()
        words = [self._port, received, self._status, self._secret]
        script = Path(__file__).with_name("webhook_verifier.py")
        self._start([str(_PEERS / "bin/python"), str(script), *map(str, words)], self._port)
        return self


def section_of(port: int, folder: Path, *secrets: str) -> Section:
    """The settings of a destination at a port, with a file for each secret in a folder."""
    files = []
    for number, secret in enumerate(secrets or (SECRET,), 1):
        file = folder / f"secret-{number}"
        file.write_text(f"{secret}\n", encoding="ascii")
        files.append(str(file))
    return {
        "kind": "webhook",
        "url": f"http://127.0.0.1:{port}{PATH}",
        "secret_files": files,
        "timeout_seconds": 5.0,
    }


def is_installed() -> bool:
    """Whether the reference library is there: `make test` installs it."""
    return any(_PEERS.glob("lib/python3*/site-packages/standardwebhooks"))
