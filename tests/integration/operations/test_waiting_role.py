"""A role that starts before the migration waits for it, and then serves."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import httpx

from hilum.store.migrations.revision import REVISION
from testing.serving import free_ports, hilum_program
from tests.support.ledger.ledgers import older_sqlite
from tests.support.machine.waiting import wait_for
from tests.support.server.commands import hilum


def test_a_role_waits_for_the_migration_of_its_own_host(tmp_path: Path) -> None:
    older_sqlite(tmp_path, "0014")
    (port,) = free_ports(1)
    own = {"HILUM_SITE__STATE_DIR": str(tmp_path), "HILUM_API__PORT": str(port)}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HILUM_")}
    said = tmp_path / "serve.log"
    with (
        said.open("wb") as log,
        subprocess.Popen(
            [hilum_program(), "serve", "--role", "api"], env={**kept, **own}, stderr=log, cwd="/"
        ) as running,
    ):
        try:
            wait_for(lambda: "waits_for_migration" in said.read_text(), what="the wait")
            done = hilum("migrate", folder=tmp_path, environment=own)
            assert done.returncode == 0, done.stderr
            assert f"ledger at revision {REVISION}" in done.stdout
            wait_for(lambda: _lives(port), what="the server after the migration")
        finally:
            running.terminate()


def _lives(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health/live").status_code == 200
    except httpx.TransportError:
        return False
