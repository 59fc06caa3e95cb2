"""The front door alone: real listener processes on one socket, started as the supervisor starts them, and killed at will."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from hilum.receive.association.counter import SharedAssociationCounter
from hilum.services.launch_spec import LaunchSpec
from hilum.settings import Settings
from hilum.store.archive.archive import Archive
from hilum.store.migrations.migrate import migrate
from load_tests.proof.street.street import NotQuiet
from testing.serving import REPOSITORY

_FAILURE = re.compile(
    r"Traceback|association_failed|connection_failed|thread_failed|quarantined|not_indexed"
)
_LISTENING = '"listening"'
_BACKLOG = 512
_PATIENCE_SECONDS = 120.0
_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Child:
    """One life of a listener process."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def listens(self) -> bool:
        """Whether it has said so."""
        return _LISTENING in self.log.read_text(encoding="utf-8", errors="replace")


class Listeners:
    """So many listener processes with one ledger and one archive in `folder`.

    Alive inside a `with` block.

    The socket is held here, as the supervisor holds it: a connection that is not accepted yet
    outlives every kill. For the main thread:
    its children end with it.
    """

    def __init__(self, folder: Path, processes: int, **receive: object) -> None:
        given = {"host": "127.0.0.1", "processes": processes, "reserve_bytes": 0, **receive}
        self.settings = Settings.model_validate(
            {"site": {"state_dir": folder / "state"}, "receive": given, "log": {"format": "json"}}
        )
        self.archive = Archive(self.settings.archive_dir)
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self.port = int(self._socket.getsockname()[1])
        self.indices = range(processes)
        self._folder = folder
        self._census = SharedAssociationCounter(processes)
        self._living: dict[int, Child] = {}
        self._logs: list[Path] = []

    def __enter__(self) -> Self:
        """Migrate the ledger and start all of them."""
        self.settings.site.state_dir.mkdir(parents=True, exist_ok=True)
        migrate(self.settings.ledger_url)
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """By kill -9."""
        self.kill(list(self._living))
        self._socket.close()

    def start(self) -> None:
        """Those that do not live."""
        for index in self.indices:
            if index not in self._living:
                self._living[index] = self._spawn(index)

    def halt(self) -> None:
        """By SIGSTOP; returns when all stand still, but for what the kernel does for them.

        Raises NotQuiet.
        """
        for child in self._living.values():
            child.process.send_signal(signal.SIGSTOP)
        wait_until(
            lambda: all(stand_still(child.process.pid) for child in self._living.values()),
            "the listeners to stand still",
        )

    def kill(self, indices: Iterable[int]) -> None:
        """By SIGKILL; returns when they are dead."""
        dying = [self._living.pop(index) for index in indices]
        for child in dying:
            child.process.kill()
        for child in dying:
            child.process.wait()

    def wait_until_listening(self) -> None:
        """All that have been started. Raises NotQuiet."""
        wait_until(lambda: all(child.listens for child in self._living.values()), "all to listen")

    def wait_until_indexed(self) -> None:
        """No file waits for its row or its place, and none is half-received. Raises NotQuiet."""
        wait_until(
            lambda: not any(file.is_file() for file in self._unindexed.glob("*/*")),
            "the files in their places",
        )

    def inbox(self, index: int) -> list[Path]:
        """What one of them has received, or half received, and not put in its place."""
        return list(self._unindexed.glob(f"*-listener-{index}/*"))

    def failures(self) -> list[str]:
        """Lines of the logs that no peer and no kill may cause."""
        lines = (
            line
            for log in self._logs
            for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        )
        return [line for line in lines if _FAILURE.search(line)]

    @property
    def _unindexed(self) -> Path:
        return self.archive.root / "unindexed"

    def _spawn(self, index: int) -> Child:
        charge = LaunchSpec(
            "listener",
            os.getpid(),
            self.settings.dump(),
            index,
            self._socket.fileno(),
            counter_fd=self._census.descriptor,
        )
        inherited = (self._socket.fileno(), self._census.descriptor)
        file = self._folder / f"listener-{index}-{len(self._logs)}.log"
        self._logs.append(file)
        with file.open("wb") as log:
            command = [sys.executable, "-m", "hilum.processes", f"listener-{index}"]
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=REPOSITORY,
                pass_fds=inherited,
            )
        assert process.stdin is not None
        process.stdin.write(charge.dump())
        process.stdin.close()
        return Child(process, file)


def stand_still(pid: int) -> bool:
    """Whether all threads of a process are stopped, have ended, or are in a call that does not return into our code (proc_pid_stat(5))."""
    return _states(pid) <= {"T", "D", "Z", "X"}


def has_ended(pid: int) -> bool:
    """Whether a process holds no file any more; somebody may still have to ask for it."""
    return _states(pid) <= {"Z", "X"}


def _states(pid: int) -> set[str]:
    """Of all threads."""
    return {_state(file) for file in Path(f"/proc/{pid}/task").glob("*/stat")}


def _state(file: Path) -> str:
    """One letter; the name before it, in parentheses, may hold anything."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Look often. Raises NotQuiet after two minutes."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise NotQuiet(f"not within {_PATIENCE_SECONDS:.0f} s: {what}")
        time.sleep(_LOOK_SECONDS)
