"""A real PgBouncer in transaction mode, before a real PostgreSQL."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from hilum.store.database.engines import libpq_arguments
from testing.postgres import as_postgres, own
from tests.support.machine.waiting import wait_for

_PORT = 6432  # of the socket's name alone
# Two sessions for all clients: transactions of one client are soon on the session of another.
_SETTINGS = """
[databases]
* = host={folder} user=postgres
[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {here}
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_client_conn = 100
logfile = {here}/pgbouncer.log
pidfile = {here}/pgbouncer.pid
"""


@contextmanager
def pgbouncer(url: str) -> Iterator[str]:
    """URL of the database of `url` through a PgBouncer that runs as long as the context.

    Every database of that server is reached through it: see `through`.

    Skips the test when PgBouncer is not installed; fails it when CI=true.
    """
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        missing = "PgBouncer is not installed (apt-get install pgbouncer)"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    here = Path(tempfile.mkdtemp(prefix="hilum-pgb-"))
    own(here)
    settings = here / "pgbouncer.ini"
    host = libpq_arguments(url)["host"]
    settings.write_text(_SETTINGS.format(folder=host, here=here, port=_PORT))
    server = subprocess.Popen(
        [*as_postgres(), program, "-q", str(settings)], stderr=subprocess.DEVNULL
    )
    try:
        pooled = make_url(url).set(query={"host": str(here), "port": str(_PORT)})
        said = pooled.render_as_string(hide_password=False)
        wait_for(lambda: _answers(said), seconds=30)
        yield said
    finally:
        server.terminate()
        server.wait(30)
        shutil.rmtree(here, ignore_errors=True)


def through(pooled: str, url: str) -> str:
    """URL of the database of `url` through the PgBouncer of `pooled`."""
    return (
        make_url(pooled).set(database=make_url(url).database).render_as_string(hide_password=False)
    )


def _answers(url: str) -> bool:
    try:
        psycopg.connect(**libpq_arguments(url)).close()
    except psycopg.OperationalError:
        return False
    return True
