"""The listener's process: no torch, no Triton."""

from __future__ import annotations

import socket
import threading

from hilum.receive.listener import serve_listener
from hilum.settings import Settings
from hilum.store.archive import Archive
from hilum.store.ledger import Ledger
from hilum.wiring.charge import Charge
from hilum.wiring.heartbeat import Heartbeat


def run(charge: Charge, settings: Settings, ledger: Ledger, stop: threading.Event) -> None:
    """C-STORE and C-ECHO on the inherited socket."""
    listening = socket.socket(fileno=charge.listening_fd)
    archive = Archive(settings.archive_dir, f"listener-{charge.index}")
    with Heartbeat(ledger, "listener"):
        serve_listener(settings, listening, ledger, archive, stop)
