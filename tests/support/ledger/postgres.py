"""A real PostgreSQL for tests, from Debian's package.

A cluster in a temporary folder, reachable by its UNIX socket only.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

# A crash of the test machine may lose this cluster; a test's kill -9 of a client may not, and does
# not need fsync for that.
_OPTIONS = (
    "-c listen_addresses='' -c fsync=off -c full_page_writes=off -c shared_buffers=16MB -c"
    " max_connections=60 -c timezone=UTC"
)


def _programs() -> Path:
    """Folder of initdb and pg_ctl. Debian keeps them off PATH, one folder a version."""
    on_path = shutil.which("initdb")
    found = (
        [Path(on_path).parent]
        if on_path
        else sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name))
    )
    if found:
        return found[-1]
    missing = "PostgreSQL is not installed (apt-get install postgresql)"
    if os.environ.get("CI") == "true":
        pytest.fail(missing)
    pytest.skip(missing)


def _run(folder: Path, command: Sequence[str]) -> None:
    """Run one of PostgreSQL's programs; it refuses to be root, so root becomes `postgres`."""
    prefix = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    log = folder / "commands.log"
    with log.open(
        "ab"
    ) as output:  # a file, not a pipe: the server inherits it and would keep a pipe open
        done = subprocess.run(
            [*prefix, *command],
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(
            f"{command[0]} ended with {done.returncode}: {log.read_text(errors='replace')[-2000:]}"
        )


def _folder() -> Path:
    folder = Path(
        tempfile.mkdtemp(prefix="hilum-pg-")
    )  # short: a socket's path may have 107 characters
    if os.geteuid() == 0:
        owner = pwd.getpwnam("postgres")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    return folder


@contextmanager
def postgres_server() -> Iterator[str]:
    """SQLAlchemy URL (postgresql+psycopg) of an empty database on a server that runs as long as the context.

    Skips the test when PostgreSQL is not installed; fails it when CI=true.
    """
    programs, folder = _programs(), _folder()
    data, pg_ctl = folder / "data", str(programs / "pg_ctl")
    try:
        _run(
            folder,
            [
                str(programs / "initdb"),
                "-D",
                str(data),
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C",
                "--no-sync",
            ],
        )
        _run(
            folder,
            [
                pg_ctl,
                "-D",
                str(data),
                "-w",
                "-l",
                str(folder / "server.log"),
                "-o",
                f"{_OPTIONS} -c unix_socket_directories={folder}",
                "start",
            ],
        )
        try:
            yield fresh_database(f"postgresql+psycopg://postgres@/postgres?host={folder}")
        finally:
            _run(folder, [pg_ctl, "-D", str(data), "-w", "-m", "immediate", "stop"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fresh_database(url: str, template: str = "template1") -> str:
    """URL of a new database on the server of `url`, a copy of the database `template`.

    Costs some tens of milliseconds.
    """
    name = f"hilum_{uuid.uuid4().hex[:12]}"
    engine = create_engine(make_url(url).set(database="postgres"), isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template}"))
    finally:
        engine.dispose()
    return make_url(url).set(database=name).render_as_string(hide_password=False)
