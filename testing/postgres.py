"""A real PostgreSQL from Debian's package, as long as it is needed.

A cluster in a folder of its own, reachable by its UNIX socket only.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import create_engine, make_url, text

_SECONDS = 120
_INITDB = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")


class PostgresMissing(Exception):
    """PostgreSQL is not installed."""


def programs() -> Path:
    """Folder of initdb and pg_ctl. Debian keeps them off PATH, one folder a version.

    Raises PostgresMissing.
    """
    on_path = shutil.which("initdb")
    found = (
        [Path(on_path).resolve().parent]  # a link to one program is no folder of all
        if on_path
        else sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name))
    )
    if not found:
        raise PostgresMissing("PostgreSQL is not installed (apt-get install postgresql)")
    return found[-1]


def is_installed() -> bool:
    """Whether its programs are there."""
    try:
        programs()
    except PostgresMissing:
        return False
    return True


@contextmanager
def postgres_cluster(folder: Path, options: Mapping[str, str]) -> Iterator[str]:
    """URL (postgresql+psycopg) of an empty database on a server that stops at the end.

    `folder`: an empty one, or that of an earlier cluster, which is started again; the socket is there, so its path is short (107 bytes). `options`:
    settings of the server. Raises PostgresMissing.
    """
    found = programs()
    own(folder)
    data = str(folder.resolve() / "data")
    pg_ctl = str(found / "pg_ctl")
    if not Path(data).exists():
        run_as_postgres(folder, [str(found / "initdb"), "-D", data, *_INITDB])
    settings = {
        "listen_addresses": "''",
        "unix_socket_directories": str(folder.resolve()),
        "timezone": "UTC",
        **options,
    }
    said = " ".join(f"-c {name}={value}" for name, value in settings.items())
    log = str(folder.resolve() / "server.log")
    run_as_postgres(folder, [pg_ctl, "-D", data, "-w", "-l", log, "-o", said, "start"])
    try:
        yield fresh_database(f"postgresql+psycopg://postgres@/postgres?host={folder.resolve()}")
    finally:
        run_as_postgres(folder, [pg_ctl, "-D", data, "-w", "-m", "immediate", "stop"])


def own(folder: Path) -> None:
    """Give a folder to the user of PostgreSQL's programs, where this user is root."""
    if os.geteuid() == 0:
        owner = pwd.getpwnam("postgres")
        os.chown(folder, owner.pw_uid, owner.pw_gid)


def run_as_postgres(folder: Path, command: Sequence[str]) -> None:
    """Run one of PostgreSQL's programs; it refuses to be root, so root becomes `postgres`."""
    log = folder / "commands.log"
    # A file, not a pipe: the server inherits it and would keep a pipe open.
    with log.open("ab") as output:
        done = subprocess.run(
            [*as_postgres(), *command],
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
            check=False,
        )
    if done.returncode:
        said = log.read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {said}")


def as_postgres() -> list[str]:
    """Words before a command that make root the user `postgres`."""
    return ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []


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
