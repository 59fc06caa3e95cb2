"""A whole Hilum with a tiny release, and looks at its processes from outside."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from pydicom import Dataset

from hilum.deliver.send import SendReport, send
from testing.network.receiver import AE_TITLE, Receiver
from testing.phantoms import phantom
from testing.serving import Hilum, free_ports
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.machine.processes import descendants_of
from tests.support.machine.waiting import wait_for
from tests.support.models.releases import Tiny

START_SECONDS = 180.0


def receiver_section(port: int, *, accept_untrained: bool = False) -> dict[str, Any]:
    """Settings of a DICOM destination that is the test itself."""
    return {
        "kind": "dicom",
        "host": "127.0.0.1",
        "port": port,
        "ae_title": AE_TITLE,
        "accept_untrained": accept_untrained,
    }


def hilum_with(
    folder: Path,
    tiny: Tiny,
    destinations: dict[str, Any],
    quiet_seconds: float = 1.0,
    role: str = "all",
    **sections: Any,
) -> Hilum:
    """A server that reads with the tiny release; quick retries, so that a test sees recovery.

    One `role` costs a third of all: enough where a test asks nothing of the others. Its ledger is
    migrated.
    """
    usual: dict[str, Any] = {
        "models": {
            "manifests": str(tiny.manifests_dir),
            "built": str(tiny.built_dir),
            "releases": [tiny.release.id],
        },
        "studies": {"quiet_seconds": quiet_seconds},
        "pipeline": {"backoff_seconds": 0.5, "maximum_backoff_seconds": 2.0},
        "analyse": {"canary_seconds": 2.0, "decode_processes": 1},
    }
    server = Hilum(folder, destinations, **{**usual, **sections})
    server.write_settings()
    if role != "all":
        server.role = role
        (folder / "state").mkdir(exist_ok=True)
        migrated_sqlite(folder / "state")
    return server


def small_study(seed: int, views: Sequence[str] = ("PA", "AP")) -> list[Dataset]:
    """A quick study: 128 x 128 pixels an image."""
    return phantom.make_study(seed=seed, views=tuple(views), rows=128, columns=128)


def save_all(folder: Path, images: Sequence[Dataset]) -> list[Path]:
    """Files that `hilum send` takes."""
    folder.mkdir(parents=True, exist_ok=True)
    return [phantom.save(image, folder / f"{image.SOPInstanceUID}.dcm") for image in images]


def send_to(server: Hilum, paths: Sequence[Path]) -> SendReport:
    """By C-STORE, as a modality would."""
    return send(paths, "127.0.0.1", server.dicom_port, "HILUM", "MODALITY")


def processes(server: Hilum, role: str) -> list[int]:
    """Process ids of a role: listener, analyser, dispatcher, api or tritonserver, children of this server only."""
    assert server._process is not None
    found = [pid for pid in descendants_of(server._process.pid) if _is_role(pid, role)]
    # What was forked a moment ago looks like its parent until it runs a program of its own.
    forked = {child for pid in found for child in descendants_of(pid)}
    return [pid for pid in found if pid not in forked]


def workers_of(server: Hilum, role: str) -> list[int]:
    """The spawned processes below a role.

    Decode processes of the analyser, report processes of the dispatcher.
    """
    children = [pid for parent in processes(server, role) for pid in descendants_of(parent)]
    return [pid for pid in children if "spawn_main" in _read(Path(f"/proc/{pid}/cmdline"))]


def all_processes(server: Hilum) -> list[int]:
    """The supervisor and everything below it."""
    assert server._process is not None
    return [server._process.pid, *descendants_of(server._process.pid)]


def kill(pids: Sequence[int]) -> None:
    """kill -9.

    Some of several end by themselves as soon as their parent or their peer is gone, which may be
    before their turn.
    """
    gone = 0
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            gone += 1
    assert not pids or gone < len(pids), "none of them was there"


def loaded_libraries(pid: int) -> str:
    """What a process has mapped."""
    return Path(f"/proc/{pid}/maps").read_text()


def _is_role(pid: int, role: str) -> bool:
    words = _read(Path(f"/proc/{pid}/cmdline")).split("\0")
    if role == "tritonserver":
        return words[0].endswith("bin/tritonserver")
    return "hilum.processes" in words and any(word.startswith(f"{role}-") for word in words)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


__all__ = [
    "START_SECONDS",
    "Receiver",
    "all_processes",
    "free_ports",
    "hilum_with",
    "kill",
    "loaded_libraries",
    "processes",
    "receiver_section",
    "save_all",
    "send_to",
    "small_study",
    "wait_for",
    "workers_of",
]


def is_up(server: Hilum) -> bool:
    try:
        return server.get("/health/live").status_code == 200
    except httpx.TransportError:
        return False


def detail(server: Hilum, study_uid: str) -> dict[str, Any]:
    """A study as the API shows it; empty: it does not know it."""
    answer = server.get(f"/api/v1/studies/{study_uid}")
    return dict(answer.json()) if answer.status_code == 200 else {}
