"""Receivers of webhooks for tests: the reference library's, and answers that no real one gives."""

from __future__ import annotations

from pathlib import Path

from testing.webhook_receiver import WebhookReceiver, is_installed
from tests.support.peers.peers import missing


def webhook_receiver(folder: Path, status: int = 204) -> WebhookReceiver:
    """A receiver that verifies with the reference library. Skips the test where that is missing."""
    if not is_installed():
        missing("standardwebhooks is in .venv/peers: make test installs it")
    return WebhookReceiver(folder, status)
