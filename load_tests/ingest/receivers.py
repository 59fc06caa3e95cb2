"""Our own receivers of `make bench-ingest`, and what all receivers have in common.

The others are in `ingest_peers`.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import make_url

from hilum.observability import telemetry
from hilum.receive.listener import serve_listener
from hilum.receive.storage import transfer_library
from hilum.receive.storage.session import open_inbox
from hilum.settings import Settings, restore
from hilum.store.archive.archive import Archive
from hilum.store.archive.durable_rename import Durability
from hilum.store.ledger import Ledger
from hilum.store.migrations.migrate import migrate
from load_tests.load.scrapes import parse
from testing.serving import REPOSITORY, free_ports

_TICKS = os.sysconf("SC_CLK_TCK")
_NOT_COMPILED = "not-compiled"
_CPU = "hilum_cpu_seconds_total"
_STAGES = {"sync": "sync", "index": "index", "rows": "index_ledger"}


@dataclass(frozen=True, slots=True)
class Certificates:
    """One self-signed certificate for both ends, PEM."""

    certificate: Path
    key: Path


class Receiver:
    """A running program.

    `stored` counts what it has finished with, `objects` is where it keeps them; `metrics`: where
    ours counts.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        port: int,
        stored: Callable[[], int],
        objects: Path,
        tls: Certificates | None = None,
        metrics: Path | None = None,
    ) -> None:
        self.port = port
        self.stored = stored
        self.tls = tls
        self._process = process
        self._objects = objects
        self._metrics = metrics

    def cpu_seconds(self) -> float:
        """Of the process and all that it has started, ended ones too."""
        return sum(map(sum, _ticks_of_all(self._process.pid))) / _TICKS

    def stages(self) -> dict[str, float]:
        """CPU seconds of ours by where they went, and once more those that the kernel used of them.

        Of others nothing is known.
        """
        if self._metrics is None:
            return {}
        samples = parse(telemetry.scrape(str(self._metrics)).decode())
        charged = {
            name: samples.get((_CPU, (("stage", stage),)), 0.0) for name, stage in _STAGES.items()
        }
        ticks = _ticks_of_all(self._process.pid)
        receive = sum(map(sum, ticks)) / _TICKS - sum(charged.values())
        return {
            "receive": receive,
            **charged,
            "in the kernel": sum(system for _, system in ticks) / _TICKS,
        }

    def empty(self) -> None:
        """Free the space and keep the files.

        For minutes ext4 steps over the inodes of deleted ones, at every creation.
        """
        for file in self._objects.rglob("*"):
            if file.is_file() and file.stat().st_size:
                os.truncate(file, 0)

    def peak_mib(self) -> float:
        """Largest resident memory of the process itself."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        return int(status.split("VmHWM:")[1].split()[0]) / 1024

    @property
    def pid(self) -> int:
        """Of the process that was started."""
        return self._process.pid

    def close(self) -> None:
        """End it."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout=30)


def _ticks_of_all(pid: int) -> list[tuple[int, int]]:
    """Of a process and its children.

    One that is waited for between two looks is in neither of them, or in both: then look again.
    """
    while True:
        family = _family(pid)
        try:
            found = [_ticks(each) for each in family]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if _family(pid) == family:
            return found


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [pid, *map(int, children)]


def _ticks(pid: int) -> tuple[int, int]:
    """User and system, each with those of children that were waited for (proc(5), fields 14 to 17)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    user, system, user_of_children, system_of_children = map(int, fields[11:15])
    return user + user_of_children, system + system_of_children


def start_hilum(
    folder: Path,
    tls: Certificates | None = None,
    processes: int = 1,
    *,
    is_compiled: bool = True,
    durability: Durability = "auto",
) -> Receiver:
    """`serve_listener` in processes of their own, its rows included.

    With certificates the one port is that of TLS.

    `is_compiled` False, for one process: as where nobody could compile transfer.c.
    """
    (port,) = free_ports(1)
    receive: dict[str, object] = {"host": "127.0.0.1", "reserve_bytes": 0}
    receive |= {"processes": processes, "durability": durability}
    if tls is None:
        receive |= {"port": port}
    else:
        files = {
            "tls_certificate_file": tls.certificate,
            "tls_key_file": tls.key,
            "tls_client_ca_file": tls.certificate,
        }
        receive |= {"plain": False, "tls_port": port, **files}
    settings = Settings.model_validate({"site": {"state_dir": folder}, "receive": receive})
    migrate(settings.ledger_url)
    (folder / "settings.json").write_text(settings.dump(), encoding="utf-8")
    archive = Archive(settings.archive_dir)
    metrics = folder / "metrics"
    metrics.mkdir()
    command = [
        sys.executable,
        "-m",
        "load_tests.ingest.receivers",
        str(folder / "settings.json"),
        *([] if is_compiled else [_NOT_COMPILED]),
    ]
    process = start(command, {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(metrics)}, port)
    return Receiver(
        process, port, lambda: _settled(archive, settings.ledger_url), archive.root, tls, metrics
    )


def _settled(archive: Archive, ledger_url: str) -> int:
    """Objects that have their row and place."""
    if any(archive.unindexed()):
        return 0
    with contextlib.closing(sqlite3.connect(make_url(ledger_url).database or "")) as connection:
        (count,) = connection.execute("SELECT count(*) FROM instance").fetchone()
        return int(count)


def start(command: list[str], environment: Mapping[str, str], port: int) -> subprocess.Popen[bytes]:
    """A program, when it listens. Raises RuntimeError."""
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=dict(environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not listens(port):
        if time.monotonic() > deadline or process.poll() is not None:
            raise RuntimeError(f"{command[0]} does not listen")
        time.sleep(0.05)
    return process


def listens(port: int) -> bool:
    """Whether connections are taken."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def main(settings_file: str, how: str = "") -> None:
    """Our listener, until SIGTERM.

    This process, and as many more on its socket as the settings say.
    """
    if how == _NOT_COMPILED:
        transfer_library.PATH = Path("/nowhere")  # type: ignore[misc] # a constant but for this
    settings = restore(Path(settings_file).read_text(encoding="utf-8"))
    listening = socket.create_server(
        ("127.0.0.1", settings.receive.tls_port or settings.receive.port), backlog=512
    )
    others = [
        multiprocessing.get_context("spawn").Process(
            target=_serve, args=(settings, listening, f"bench-{number}"), daemon=True
        )
        for number in range(1, settings.receive.processes)
    ]
    for other in others:
        other.start()
    _serve(settings, listening, "bench-0")
    for other in others:
        other.terminate()
        other.join()


def _serve(settings: Settings, listening: socket.socket, process: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    archive = open_inbox(settings, process)
    # as every process of the server; else a collection every 64 associations goes through all
    # imports, 1.2 ms of each
    gc.freeze()
    plain, tls = (None, listening) if settings.receive.tls_port else (listening, None)
    serve_listener(settings, plain, Ledger(settings.ledger_url), archive, stop, tls)


if __name__ == "__main__":
    main(*sys.argv[1:])
