"""The ways to read the same studies: a full queue, a folder, a PACS, and a home-made worker."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from load_tests.campaign.archives import AE_TITLE as ARCHIVE_TITLE
from load_tests.campaign.archives import MOVE_TITLE, Archive, move
from load_tests.peer.material import Material
from load_tests.peer.orthanc import AE_TITLE as PEER_TITLE
from load_tests.peer.peer_system import PeerSystem, peer_role
from testing.accounting import Accountant, RoleOf, hilum_role, spent
from testing.network.receiver import AE_TITLE, Receiver
from testing.serving import Hilum, free_ports

_START_SECONDS = 180
_STALL_SECONDS = 180.0
_WARM = 0.2  # of the images, at the beginning, that no rate counts
_LOOK_SECONDS = 0.1
_DATES = "2026-01-01..2026-01-10"  # the phantoms are of one of these days


class NotFinished(Exception):
    """A system read nothing for a long time; holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Images a second behind a warm beginning, and CPU seconds of each role for an image."""

    images: int
    images_per_second: float
    cpu_seconds_per_image: Mapping[str, float]

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all roles for an image."""
        return sum(self.cpu_seconds_per_image.values())


@dataclass(frozen=True, slots=True)
class Task:
    """The studies to read, and the release that reads them."""

    folder: Path
    files: Sequence[Path]
    studies: Path
    material: Material


@contextmanager
def hilum(
    task: Task,
    *,
    sections: Mapping[str, Mapping[str, Any]] | None = None,
    destinations: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[Hilum]:
    """Yield a running Hilum, with these sections beside the usual ones."""
    server = installed(task, sections or {}, destinations or {})
    with server:
        server.wait_until_ready(_START_SECONDS)
        yield server


def installed(
    task: Task,
    sections: Mapping[str, Mapping[str, Any]],
    destinations: Mapping[str, Mapping[str, Any]],
) -> Hilum:
    """Return a Hilum with its settings, not started."""
    built = task.material.built
    usual: dict[str, Any] = {
        "models": {
            "manifests": str(built.manifests_dir),
            "built": str(built.built_dir),
            "releases": [built.release.id],
        },
        "studies": {"quiet_seconds": 1},
        "receive": {"ae_titles": ["HILUM", MOVE_TITLE]},
    }
    server = Hilum(task.folder / "hilum", destinations, **{**usual, **sections})
    server.write_settings()
    return server


def bare(task: Task) -> Rate:
    """The engine with a full queue: all images are in the archive when the analyser starts."""
    server = installed(task, {}, {})
    command(server, "migrate")
    command(server, "ingest", str(task.studies), "--jobs", "8")
    with server:
        return measured(
            server.pid, len(task.files), lambda: read_at(server), server.log_end, hilum_role
        )


def files(task: Task) -> Rate:
    """A campaign over a folder."""
    with hilum(task) as server:
        command(server, "campaign", "plan", "old", "--folder", str(task.studies))
        return _campaign(server, task)


def c_move(task: Task) -> Rate:
    """A campaign over an Orthanc, by C-MOVE."""
    (port,) = free_ports(1)
    source = {
        "kind": "c-move",
        "host": "127.0.0.1",
        "port": port,
        "ae_title": ARCHIVE_TITLE,
        "move_ae_title": MOVE_TITLE,
    }
    with (
        hilum(task, sections={"sources.pacs": source}) as server,
        archive(task, {MOVE_TITLE: server.dicom_port}, port),
    ):
        command(server, "campaign", "plan", "old", "--source", "pacs", "--dates", _DATES)
        return _campaign(server, task)


def _campaign(server: Hilum, task: Task) -> Rate:
    release = task.material.built.release.id
    command(server, "campaign", "run", "old", "--release", release)
    return measured(
        server.pid, len(task.files), lambda: read_at(server), server.log_end, hilum_role
    )


def peer(task: Task) -> Rate:
    """DCMTK's movescu, study by study, to an Orthanc whose Python workers read and report."""
    program = shutil.which("movescu", path="/usr/bin")
    if program is None:
        raise FileNotFoundError("movescu is not installed (Debian package dcmtk)")
    port = free_ports(1)[0]
    with ExitStack() as stack:
        receiver = stack.enter_context(Receiver(port))
        system = stack.enter_context(
            PeerSystem(
                task.folder / "peer",
                "informed",
                task.material.files,
                task.material.precision,
                (port, AE_TITLE),
            )
        )
        (archive_port,) = free_ports(1)
        held = stack.enter_context(archive(task, {PEER_TITLE: system.dicom_port}, archive_port))
        arrivals = receiver.arrivals

        def moments() -> list[float]:
            first = [found[0] for found in list(arrivals.by_study.values())]
            return sorted(at for at in first for _ in range(2))  # two images a study

        with ThreadPoolExecutor(1, "movescu") as threads:
            moved = threads.submit(_move_all, program, held)
            found = measured(system.pid, len(task.files), moments, system.log_end, peer_role)
            moved.result()
        return found


def _move_all(program: str, held: Archive) -> None:
    for study in held.studies():
        move(program, held, study, PEER_TITLE)


@contextmanager
def archive(task: Task, targets: Mapping[str, int], dicom_port: int) -> Iterator[Archive]:
    """Yield a filled Orthanc. `targets`: ports of the Move Destinations by AE Title."""
    (http_port,) = free_ports(1)
    with Archive(task.folder / "archive", dicom_port, http_port, targets) as held:
        held.fill(task.files)
        yield held


def measured(
    pid: int,
    images: int,
    moments: Callable[[], list[float]],
    log_end: Callable[[], str],
    role_of: RoleOf,
) -> Rate:
    """The rate from moments at which an image was read, until all are. Raises NotFinished."""
    with Accountant(pid, role_of) as accountant:
        first = _await(int(images * _WARM), moments, log_end)
        before = accountant.snapshot()
        last = _await(images, moments, log_end)
        used = spent(before, accountant.snapshot())
    return rate(moments(), {role: use.cpu_seconds for role, use in used.items()}, last - first)


def _await(images: int, moments: Callable[[], list[float]], log_end: Callable[[], str]) -> int:
    """Wait until so many images are read; return how many are."""
    seen = -1
    deadline = time.monotonic() + _STALL_SECONDS
    while (count := len(moments())) < images:
        if count != seen:
            seen = count
            deadline = time.monotonic() + _STALL_SECONDS
        if time.monotonic() > deadline:
            raise NotFinished(f"{count} of {images} images were read.\n{log_end()}")
        time.sleep(_LOOK_SECONDS)
    return count


def rate(moments: Sequence[float], cpu_seconds: Mapping[str, float], images: int) -> Rate:
    """The figures of sorted moments, and of CPU that was used while so many images were read."""
    first = int(len(moments) * _WARM)
    seconds = moments[-1] - moments[first]
    if seconds <= 0 or images <= 0:
        raise NotFinished("all images were read at one moment: take more studies")
    counted = len(moments) - 1 - first
    used = {role: seconds / images for role, seconds in sorted(cpu_seconds.items())}
    return Rate(len(moments), counted / seconds, used)


def read_at(server: Hilum) -> list[float]:
    """When each image was read, sorted."""
    file = server.folder / "state" / "ledger.sqlite"
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as ledger:
        rows = ledger.execute(
            "SELECT finished_at FROM reading WHERE finished_at IS NOT NULL ORDER BY finished_at"
        )
        return [float(row[0]) for row in rows]


def command(server: Hilum, *words: str) -> str:
    """The output of a command of this installation. Raises NotFinished."""
    done = subprocess.run(
        server.command(*words), check=False, capture_output=True, text=True, timeout=600
    )
    if done.returncode != 0:
        raise NotFinished(f"hilum {' '.join(words)}: {done.stderr}")
    return done.stdout


SYSTEMS: dict[str, Callable[[Task], Rate]] = {
    "bare": bare,
    "files": files,
    "c-move": c_move,
    "peer": peer,
}
