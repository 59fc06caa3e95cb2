"""Notifications: a stage wakes at once when there is work, and polls only now and then.

A notification says no more than "look". The rows are the truth, so a lost notification costs one
poll period and never an item. SQLite: datagram sockets in a folder beside the database. PostgreSQL:
LISTEN / NOTIFY (`hilum.store.notify.postgres`).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import uuid
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection
from sqlalchemy.engine import make_url

from hilum.store.database.engines import libpq_arguments


class Subscription(Protocol):
    """One stage's subscription in one process.

    `descriptor`: an event loop can watch it, and then `wait(0)`; None: only a thread can wait.
    """

    @property
    def descriptor(self) -> int | None:
        """Readable when the stage was notified."""

    def wait(self, seconds: float) -> bool:
        """True: the stage was notified; False: it was not for so long."""

    def close(self) -> None:
        """Stop listening; a `wait` in progress returns."""


class Notifier(Protocol):
    """Notifies and listens to all stages of one ledger."""

    def notify_in(self, connection: Connection, stages: Iterable[str]) -> None:
        """Notify as part of a transaction, where the database can."""

    def notify(self, stages: Iterable[str]) -> None:
        """Notify now, after the commit."""

    def listen(self, stage: str) -> Subscription:
        """A subscription to one stage; several processes may have one, and all are notified."""

    def close(self) -> None:
        """Notify no more. Open subscriptions stay open."""


def notifier_for(url: str, direct_url: str = "") -> Notifier:
    """The notifier that fits the ledger's database.

    `direct_url`: the same database without a pooler; empty: `url`.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _SocketNotifier(Path(f"{parsed.database}.bells"))
    # A server with its ledger in SQLite does not load psycopg.
    from hilum.store.notify.postgres import PostgresNotifier  # noqa: PLC0415

    return PostgresNotifier(libpq_arguments(direct_url or url))


class _Folder:
    """Open as long as the notifier or one of its subscriptions has it."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        # Paths of UNIX sockets end at 107 bytes, state folders may be deeper: address them through
        # the open folder.
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        weakref.finalize(self, os.close, self.fd).atexit = False

    def address(self, name: str) -> str:
        return f"/proc/self/fd/{self.fd}/{name}"


class _SocketNotifier:
    def __init__(self, folder: Path) -> None:
        self._opened: tuple[_Folder, socket.socket] | None
        self._opened = (
            _Folder(folder),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK),
        )

    def notify_in(self, connection: Connection, stages: Iterable[str]) -> None:
        """Nothing: sockets are notified after the commit, or a listener would look too early."""

    def notify(self, stages: Iterable[str]) -> None:
        if (opened := self._opened) is None:
            return
        wanted = set(stages)
        for name in os.listdir(opened[0].fd):  # noqa: PTH208 - through the open descriptor, see _Folder
            if name.partition(".")[0] in wanted:
                _send(*opened, name)

    def listen(self, stage: str) -> Subscription:
        assert self._opened is not None, "it is not closed"
        return _SocketBell(self._opened[0], f"{stage}.{os.getpid()}.{uuid.uuid4().hex[:8]}")

    def close(self) -> None:
        self._opened = None


def _send(folder: _Folder, sender: socket.socket, name: str) -> None:
    try:
        sender.sendto(b"", folder.address(name))
    except (ConnectionRefusedError, FileNotFoundError):
        with contextlib.suppress(FileNotFoundError):  # its process died without cleaning up
            os.unlink(name, dir_fd=folder.fd)
    except BlockingIOError:
        pass  # its buffer is full of notifications that it has not read yet: one more adds nothing


class _SocketBell:
    def __init__(self, folder: _Folder, name: str) -> None:
        self._folder = folder
        self._name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(folder.address(name))

    @property
    def descriptor(self) -> int | None:
        return self._socket.fileno()

    def wait(self, seconds: float) -> bool:
        readable, _, _ = select.select([self._socket], [], [], seconds)
        if not readable:
            return False
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(16)
        return True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendto(b"", self._folder.address(self._name))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._name, dir_fd=self._folder.fd)
