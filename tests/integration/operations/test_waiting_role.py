"""A role that starts before the migration waits for it, and then serves."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from hilum.store.migrations.revision import REVISION
from testing.serving import free_ports, hilum_program
from tests.support.ledger.ledgers import older_sqlite
from tests.support.machine.waiting import wait_for
from tests.support.server.commands import hilum

_CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@contextmanager
def waiting(folder: Path, port: int, *container: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a role before the migration; yield its process once it waits."""
    older_sqlite(folder, "0014")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HILUM_")}
    said = folder / "serve.log"
    with (
        said.open("wb") as log,
        subprocess.Popen(
            [*container, hilum_program(), "serve", "--role", "api"],
            env={**kept, **settings(folder, port)},
            stderr=log,
            cwd="/",
        ) as running,
    ):
        try:
            wait_for(lambda: "waits_for_migration" in said.read_text(), what="the wait")
            yield running
        finally:
            running.terminate()


def settings(folder: Path, port: int) -> dict[str, str]:
    """Return the settings of the role."""
    return {"HILUM_SITE__STATE_DIR": str(folder), "HILUM_API__PORT": str(port)}


def test_a_role_waits_for_the_migration_of_its_own_host(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with waiting(tmp_path, port):
        done = hilum("migrate", folder=tmp_path, environment=settings(tmp_path, port))
        assert done.returncode == 0, done.stderr
        assert f"ledger at revision {REVISION}" in done.stdout
        wait_for(lambda: _lives(port), what="the server after the migration")


@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of process ids needs root")
def test_a_role_that_waits_in_a_container_ends_when_it_is_stopped(tmp_path: Path) -> None:
    """It is process 1 there, for which the kernel has no default action."""
    (port,) = free_ports(1)
    with waiting(tmp_path, port, *_CONTAINER) as running:
        (first,) = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        assert running.wait(60) == 128 + signal.SIGTERM


def _lives(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health/live").status_code == 200
    except httpx.TransportError:
        return False
