"""The generator's processes, seen from who started them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import IO, Self

from load_tests.load.arrivals import Schedule
from testing.network.peer_address import Peer
from testing.network.sender_process import Task
from testing.network.sending import Manners, Sent
from testing.serving import REPOSITORY

_START_SECONDS = 60.0


class SendersEnded(Exception):
    """A process of the generator ended before its time: there is no measurement."""


class Senders:
    """`processes` senders for one schedule, or for permits.

    A context manager; the processes end with the block.

    `sent` grows while they work.
    """

    def __init__(
        self,
        peer: Peer,
        mix_folder: Path,
        manners: Manners,
        processes: int = 1,
        schedule: Schedule | None = None,
    ) -> None:
        self.sent: list[Sent] = []
        self.cpu_seconds = 0.0
        tasks = (
            Task(str(peer), str(mix_folder), asdict(manners), schedule, share, processes)
            for share in range(processes)
        )
        self._commands = [
            [sys.executable, "-m", "testing.network.sender_process", json.dumps(asdict(task))]
            for task in tasks
        ]
        self._processes: list[subprocess.Popen[str]] = []
        self._listeners: list[threading.Thread] = []
        self._ready: SimpleQueue[bool] = SimpleQueue()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        """Start the processes; they wait for `go`. Raises SendersEnded."""
        for command in self._commands:
            process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
                start_new_session=True,
            )
            listener = threading.Thread(target=self._listen, args=(process.stdout,), daemon=True)
            listener.start()
            self._processes.append(process)
            self._listeners.append(listener)
        for _ in self._processes:
            self._await_one()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop sending, and wait for what is on its way."""
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
            process.wait()
        for listener in self._listeners:
            listener.join()

    def go(self, begin: float) -> None:
        """The schedule's second 0 is at `begin` (`time.monotonic`, which is one clock for all processes of a machine)."""
        self._order(f"go {begin!r}")

    def permit(self, studies: int) -> None:
        """So many more studies, where there is no schedule."""
        if studies > 0:
            self._order(f"permit {studies}", self._processes[:1])

    def stop(self) -> None:
        """Begin no more studies."""
        self._order("stop")

    @property
    def is_done(self) -> bool:
        """Whether every study of the schedule is answered or given up."""
        return not any(listener.is_alive() for listener in self._listeners)

    def _order(self, line: str, processes: list[subprocess.Popen[str]] | None = None) -> None:
        for process in processes or self._processes:
            if process.stdin is not None and process.poll() is None:
                process.stdin.write(line + "\n")

    def _await_one(self) -> None:
        try:
            is_ready = self._ready.get(timeout=_START_SECONDS)
        except Empty:
            is_ready = False
        if not is_ready:
            raise SendersEnded("a process of the generator did not start")

    def _listen(self, lines: IO[str] | None) -> None:
        for line in lines or ():
            word, _, value = line.strip().partition(" ")
            with self._lock:
                if word == "sent":
                    self.sent.append(Sent(*json.loads(value)))
                elif word == "cpu":
                    self.cpu_seconds += float(value)
                else:
                    self._ready.put(word == "ready")
        self._ready.put(False)  # noqa: FBT003 - it has ended
