"""Receivers of webhooks for tests: the reference library's, and answers that no real one gives."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hilum.deliver.webhook import WebhookClient
from hilum.domain import NOTICE, Document
from hilum.settings import WebhookDestination
from testing.webhook_receiver import SECRET, WebhookReceiver, is_installed, section_of
from tests.support.peers.peers import missing

# Indented and not in ASCII, as no encoder would write it again.
SENT: Final = Document(
    NOTICE.key, NOTICE.media_type, '{"type":  "result.reported",\n "name": "Größe"}\n'.encode()
)


def webhook_receiver(folder: Path, status: int = 204, secret: str = SECRET) -> WebhookReceiver:
    """A receiver that verifies with the reference library. Skips the test where that is missing."""
    if not is_installed():
        missing("standardwebhooks is in .venv/peers: make test installs it")
    return WebhookReceiver(folder, status, secret)


@contextlib.contextmanager
def client_at(
    port: int, folder: Path, *secrets: str, clock: Any = None, **settings: Any
) -> Iterator[WebhookClient]:
    """The client of a receiver at a port; its secrets are files in a folder."""
    values = {**section_of(port, folder, *secrets), "timeout_seconds": 20.0, **settings}
    destination = WebhookDestination.model_validate(values)
    times = {} if clock is None else {"clock": clock}
    with contextlib.closing(WebhookClient("program", destination, **times)) as made:
        yield made
