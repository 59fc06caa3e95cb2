"""Receivers that `make bench-ingest` measures against each other: our two listeners, and DCMTK's storescp with and without a sync."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from hilum.receive.listener import serve_listener
from hilum.settings import Settings, restore
from hilum.store.archive import Archive
from hilum.store.ledger import Ledger
from hilum.store.migrate import migrate
from load_tests.serving import REPOSITORY, free_ports

# storescp knows no sync. This one makes its file durable, but not its name: it does less than we promise.
_SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int fclose(FILE *stream) {
    static int (*real)(FILE *);
    if (!real) real = dlsym(RTLD_NEXT, "fclose");
    if (stream) { fflush(stream); fdatasync(fileno(stream)); }
    return real(stream);
}
"""
_TICKS = os.sysconf("SC_CLK_TCK")


class Receiver:
    """A running program. `stored` counts what it has finished with."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, stored: Callable[[], int]) -> None:
        self.port, self.stored = port, stored
        self._process = process

    def cpu_seconds(self) -> float:
        """Of the process and all that it has started, ended ones too."""
        return sum(map(_ticks, _family(self._process.pid))) / _TICKS

    def peak_mib(self) -> float:
        """Largest resident memory of the process itself."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        return int(status.split("VmHWM:")[1].split()[0]) / 1024

    def stop(self) -> None:
        """End it."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout=30)


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [pid, *map(int, children)]


def _ticks(pid: int) -> int:
    """User, system, and those of children that were waited for (proc(5), fields 14 to 17)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return 0
    return sum(map(int, fields[11:15]))


def start_storescp(folder: Path, preload: Path | None = None) -> Receiver:
    """Forking, bit preserving, PDUs of 128 KiB, without Nagle's algorithm."""
    (port,) = free_ports(1)
    received = folder / "received"
    received.mkdir()
    command = ["storescp", "--fork", "+B", "--max-pdu", "131072", "--output-directory", str(received), str(port)]
    environment = {**os.environ, "TCP_NODELAY": "1", **({"LD_PRELOAD": str(preload)} if preload else {})}
    return _started(command, environment, port, lambda: sum(1 for _ in received.iterdir()))


def start_hilum(folder: Path, listener: str) -> Receiver:
    """`serve_listener` in a process of its own, its rows included."""
    (port,) = free_ports(1)
    receive = {"host": "127.0.0.1", "port": port, "listener": listener, "reserve_bytes": 0}
    settings = Settings.model_validate({"site": {"state_dir": folder}, "receive": receive})
    migrate(settings.ledger_url)
    (folder / "settings.json").write_text(settings.dump(), encoding="utf-8")
    archive = Archive(settings.archive_dir)
    command = [sys.executable, "-m", "load_tests.ingest_receivers", str(folder / "settings.json")]
    return _started(command, dict(os.environ), port, lambda: _settled(archive))


def _settled(archive: Archive) -> int:
    """Objects that have their row and place."""
    return 0 if any(archive.unindexed()) else sum(1 for _ in archive.root.glob("??/??/*.dcm"))


def _started(command: list[str], environment: Mapping[str, str], port: int, stored: Callable[[], int]) -> Receiver:
    process = subprocess.Popen(command, cwd=REPOSITORY, env=dict(environment), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not _listens(port):
        if time.monotonic() > deadline or process.poll() is not None:
            raise RuntimeError(f"{command[0]} does not listen")
        time.sleep(0.05)
    return Receiver(process, port, stored)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def sync_shim() -> Path | None:
    """A library that makes storescp's files durable; None without a C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    folder = Path(tempfile.mkdtemp(prefix="hilum-shim-"))
    (folder / "shim.c").write_text(_SHIM, encoding="ascii")
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", folder / "shim.so", folder / "shim.c", "-ldl"], check=True)
    return folder / "shim.so"


def main(settings_file: str) -> None:
    """Our listener, until SIGTERM."""
    settings = restore(Path(settings_file).read_text(encoding="utf-8"))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    listening = socket.create_server(("127.0.0.1", settings.receive.port), backlog=512)
    archive = Archive(settings.archive_dir, "bench", settings.receive.write_out_bytes)
    serve_listener(settings, listening, Ledger(settings.ledger_url), archive, stop)


if __name__ == "__main__":
    main(sys.argv[1])
