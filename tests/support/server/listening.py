"""A listener in a forked process, on a socket that the test has bound as the supervisor does.

The socket listens before the process starts, so no client has to wait, and it outlives a kill -9.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import socket
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Self

from hilum.receive.headers.file_meta import decode
from hilum.receive.listener import serve_listener
from hilum.receive.storage import transfer_library
from hilum.receive.storage.session import open_inbox
from hilum.settings import Settings, restore
from hilum.store.archive.archive import Archive
from hilum.store.ledger import Ledger
from hilum.store.migrations.migrate import migrate
from tests.support.machine.forks import FORKS, become_program
from tests.support.machine.waiting import wait_for

PROCESS = "listener-1"
NOT_COMPILED = Path("/nowhere/transfer.so")


def make_settings(state: Path, senders: dict[str, Any] | None = None, **receive: Any) -> Settings:
    """Settings of an installation in `state`, with a migrated ledger and an archive, both empty.

    No disk reserve, unless asked for.
    """
    state.mkdir(parents=True, exist_ok=True)
    shutil.copy(_migrated_ledger(), state / "ledger.sqlite")
    Archive(state / "archive").make()
    receive = {"host": "127.0.0.1", "reserve_bytes": 0, **receive}
    return Settings(site={"state_dir": state}, receive=receive, senders=senders or {})


@functools.cache
def _migrated_ledger() -> Path:
    """An empty ledger, migrated once a test run."""
    folder = Path(tempfile.mkdtemp(prefix="hilum-ledger-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / "ledger.sqlite"
    migrate(f"sqlite:///{file}")
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return file


class ListenerProcess:
    """`serve_listener` in a child process, alive inside a `with` block."""

    def __init__(
        self, settings: Settings, *, library: Path | None = None, is_oracle: bool = False
    ) -> None:
        """`library`: instead of transfer.so; NOT_COMPILED: as where nobody could compile it.

        `is_oracle`: pynetdicom instead of ours.
        """
        self.settings = settings
        self._library = library
        self._is_oracle = is_oracle
        self.archive = Archive(settings.archive_dir)
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self.socket.getsockname()[1])
        self.tls_socket = (
            socket.create_server(("127.0.0.1", 0), backlog=128)
            if settings.receive.tls_port
            else None
        )
        self.log = settings.site.state_dir / "listener.log"
        self.child: ForkServerProcess | None = None

    def start(self) -> None:
        """Start the child; connections made from now on are answered as soon as it is up."""
        self.child = self.start_another(PROCESS)

    def start_another(self, process: str) -> ForkServerProcess:
        """One more child of this name on the same socket; the caller ends it."""
        work = (process, self.settings.dump(), self.log, self.socket, self.tls_socket)
        child = FORKS.Process(
            target=_listen, args=(*work, self._library, self._is_oracle), daemon=True
        )
        child.start()
        return child

    @property
    def tls_port(self) -> int:
        """Of the socket for TLS, where the settings have one."""
        assert self.tls_socket is not None
        return int(self.tls_socket.getsockname()[1])

    def kill(self) -> None:
        """kill -9."""
        assert self.child is not None
        self.child.kill()
        self.child.join()

    def stop(self) -> int | None:
        """SIGTERM; the exit status."""
        assert self.child is not None
        self.child.terminate()
        self.child.join(30)
        return self.child.exitcode

    def ledger(self) -> Ledger:
        """The test's own view of the ledger."""
        return Ledger(self.settings.ledger_url)

    def rows(self, query: str) -> list[sqlite3.Row]:
        """Rows of the ledger's database file."""
        with sqlite3.connect(self.settings.site.state_dir / "ledger.sqlite") as connection:
            connection.row_factory = sqlite3.Row
            return connection.execute(query).fetchall()

    def association_of(self, calling: str) -> dict[str, Any]:
        """The row of an association of this AE Title, once it is there."""
        query = f"SELECT * FROM association WHERE calling_ae_title = '{calling}'"
        return dict(wait_for(lambda: self.rows(query), what="the row")[0])

    def data_sets(self) -> dict[str, bytes]:
        """SOP Instance UID to the encoded data set, of every recorded instance."""
        return {
            row["sop_instance_uid"]: data_set_of(self.archive.locate(row["path"]))
            for row in self.rows("SELECT * FROM instance")
        }

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.child is not None and self.child.exitcode is None:
            self.kill()
        self.socket.close()
        if self.tls_socket is not None:
            self.tls_socket.close()


def data_set_of(file: Path) -> bytes:
    """What follows the file meta information, as it stands."""
    content = file.read_bytes()
    return content[decode(content)[1] :]


def unindexed(archive: Archive) -> Iterator[Path]:
    """Everything below `unindexed`, half-received files included."""
    return (file for file in (archive.root / "unindexed").rglob("*") if file.is_file())


def _listen(
    process: str,
    settings_text: str,
    log: Path,
    plain: socket.socket,
    tls: socket.socket | None,
    library: Path | None,
    is_oracle: bool,
) -> None:
    """The child."""
    become_program((Path(os.devnull), log, log))
    if library is not None:
        transfer_library.PATH = library  # type: ignore[misc] # a constant but for this
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    settings = restore(settings_text)
    ledger = Ledger(settings.ledger_url)
    archive = open_inbox(settings, process)
    if is_oracle:
        from testing.pynetdicom_listener import serve_oracle

        serve_oracle(settings, plain, ledger, archive, stop)
    else:
        serve_listener(settings, plain, ledger, archive, stop, tls)
