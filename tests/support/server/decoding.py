"""The decode processes of a whole server, from outside.

Which they are, and a stored file that holds one of them up.

The kernel's file leases do it (fcntl(2), F_SETLEASE): a process that opens a leased file waits until the
lease is given back, and dies there if it is killed. The server itself is not touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from pydicom import Dataset
from sqlalchemy import create_engine, select

from hilum.store.schema.tables import instance
from testing.serving import Hilum
from tests.support.machine.processes import children_of
from tests.support.server.installation import processes, save_all, send_to, wait_for


def decode_processes(server: Hilum) -> list[int]:
    """Children of the analyser that were spawned to decode."""
    (analyser,) = processes(server, "analyser")
    return [
        pid for pid in children_of(analyser) if "spawn_main" in _read(Path(f"/proc/{pid}/cmdline"))
    ]


def stored_file(server: Hilum, sop_instance_uid: str) -> Path:
    """Where the archive keeps an object."""
    engine = create_engine(f"sqlite:///{server.folder / 'state/ledger.sqlite'}")
    with engine.connect() as connection:
        path = connection.execute(
            select(instance.c.path).where(instance.c.sop_instance_uid == sop_instance_uid)
        ).scalar_one()
    engine.dispose()
    return server.folder / "state/archive" / path


class HeldFile:
    """A file that no other process can open until `release`."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR)
        self._take()

    def _take(self) -> None:
        fcntl.fcntl(self._descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)

    @property
    def is_wanted(self) -> bool:
        """Whether somebody is waiting in open(2)."""
        return fcntl.fcntl(self._descriptor, fcntl.F_GETLEASE) != fcntl.F_WRLCK

    def hold_again(self) -> None:
        """After the one who waited is dead: the next one waits as long."""
        fcntl.fcntl(self._descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        self._take()

    def release(self) -> None:
        """Let it be read. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@contextlib.contextmanager
def held_up(server: Hilum, folder: Path, images: list[Dataset]) -> Iterator[HeldFile]:
    """Send a study; a decode process waits for the file of its first image."""
    previous = signal.signal(
        signal.SIGIO, signal.SIG_IGN
    )  # how the kernel says that somebody waits
    frozen = decode_processes(server)
    held: HeldFile | None = None
    try:
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        assert send_to(server, save_all(folder, images)).is_ok
        wait_for(lambda: reading_of(server, images[0]).get("state") == "leased", what="the lease")
        held = HeldFile(stored_file(server, images[0].SOPInstanceUID))
        for pid in frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        wait_for(
            lambda: held is not None and held.is_wanted, what="a decode process that opens the file"
        )
        yield held
    finally:
        if held is not None:
            held.release()
        signal.signal(signal.SIGIO, previous)


def crash_while_held(server: Hilum, held: HeldFile) -> None:
    """SIGSEGV to the decode process that waits."""
    wait_for(lambda: held.is_wanted, what="a decode process that opens the file")
    # The kernel names the file as wanted a moment before the process waits.
    wait_for(lambda: len(_opening(server)) == 1, what="the process that waits")
    (pid,) = _opening(server)
    os.kill(pid, signal.SIGSEGV)
    wait_for(lambda: pid not in decode_processes(server), what="its end")
    held.hold_again()


def _opening(server: Hilum) -> list[int]:
    return [pid for pid in decode_processes(server) if _is_opening(pid)]


def _is_opening(pid: int) -> bool:
    """Whether the process is in openat(2), on x86-64 or ARM.

    An image that broke another process is tried in one apart.
    """
    return _read(Path(f"/proc/{pid}/syscall")).split(" ")[0] in ("257", "56")


def reading_of(server: Hilum, image: Dataset) -> dict[str, object]:
    """The one reading of an image as REST shows it, {} before there is one."""
    answer = server.get(f"/api/v1/studies/{image.StudyInstanceUID}")
    images = answer.json()["images"] if answer.is_success else []
    found = [
        item["readings"] for item in images if item["sop_instance_uid"] == image.SOPInstanceUID
    ]
    return dict(found[0][0]) if found and found[0] else {}


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
