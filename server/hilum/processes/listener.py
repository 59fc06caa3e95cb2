"""The listener's process: no torch, no Triton."""

from __future__ import annotations

import os
import socket
import threading

from hilum.errors import ConfigurationError
from hilum.processes.heartbeat import Heartbeat
from hilum.receive.association.counter import CounterSlot, SharedAssociationCounter
from hilum.receive.listener import serve_listener
from hilum.receive.storage.session import open_inbox
from hilum.services.launch_spec import LaunchSpec, process_name
from hilum.services.worklist.priority_lookup import priority_lookup
from hilum.settings import Settings
from hilum.store.archive.consistency import begin_archive
from hilum.store.ledger import Ledger


def run(spec: LaunchSpec, settings: Settings, ledger: Ledger, stop: threading.Event) -> None:
    """Serve C-STORE and C-ECHO on the inherited sockets."""
    plain, tls = (
        None if number < 0 else socket.socket(fileno=number)
        for number in (spec.listening_fd, spec.tls_fd)
    )
    # The host is in the name: listeners of several hosts may share one archive.
    archive = open_inbox(settings, f"{socket.gethostname()}-listener-{spec.index}")
    begin_archive(ledger.url, archive)
    with (
        archive.held(archive.process) as is_ours,
        Heartbeat(ledger, "listener", lambda: (True, archive.problem)),
        priority_lookup(settings, ledger) as seen,
    ):
        if not is_ours:
            raise ConfigurationError(
                [
                    (
                        f"archive: another listener named {archive.process} uses"
                        f" {settings.archive_dir}; give each host its own name."
                    )
                ]
            )
        serve_listener(
            settings,
            plain,
            ledger,
            archive,
            stop,
            tls,
            _counter_slot(spec, settings),
            process_name("listener", os.getpid()),
            seen,
        )


def _counter_slot(spec: LaunchSpec, settings: Settings) -> CounterSlot:
    if spec.counter_fd < 0:
        return CounterSlot()
    return CounterSlot(
        SharedAssociationCounter(
            settings.receive.processes, settings.limited_senders, spec.counter_fd
        ),
        spec.index,
    )
