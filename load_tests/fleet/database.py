"""PostgreSQL on two hosts: a primary, and a standby that follows it."""

from __future__ import annotations

import shutil
from pathlib import Path

import psycopg

from load_tests.fleet.host import FleetHost
from load_tests.fleet.topology import DATABASES, LEDGER_PORT, NETWORK, STATE
from load_tests.proof.street.street import wait_for
from testing.postgres import programs
from testing.serving import environment_without_settings

_START_SECONDS = 60.0
_DATA = "postgresql"
_USER = ("runuser", "-u", "postgres", "--")
_OPTIONS = (
    "shared_buffers=16MB",
    "max_connections=150",
    "timezone=UTC",
    "wal_level=replica",
    "max_wal_size=128MB",
    "wal_receiver_status_interval=1s",
    # A host that lost its power holds a session and its locks until the server notices.
    "tcp_keepalives_idle=5",
    "tcp_keepalives_interval=2",
    "tcp_keepalives_count=3",
    "tcp_user_timeout=10000",
)


def ledger_url() -> str:
    """What every Hilum has in `ledger.url`: both servers, and the one that takes writes is used."""
    hosts = "&".join(f"host={spec.address}:{LEDGER_PORT}" for spec in DATABASES)
    return f"postgresql+psycopg://hilum@/hilum?{hosts}&target_session_attrs=read-write"


class Databases:
    """`primary` and `standby` are hosts that are on; `fail_over` changes who is who."""

    def __init__(self, primary: FleetHost, standby: FleetHost) -> None:
        self.primary = primary
        self.standby = standby
        self.is_synchronous = True

    def start(self) -> None:
        """An empty ledger on the primary, and a copy that follows it. Raises HostDown."""
        data = _data(self.primary)
        self.primary.run(
            *_USER, _program("initdb"), "-D", str(data), "-U", "postgres", "-A", "trust",
            "--locale=C", "-E", "UTF8", "--no-sync",
        )  # fmt: skip
        rules = self.primary.folder / _DATA / "data/pg_hba.conf"
        with rules.open("a", encoding="utf-8") as file:
            file.write(f"host all all {NETWORK.network} trust\n")
            file.write(f"host replication all {NETWORK.network} trust\n")
        _serve(self.primary)
        with _session(self.primary, "postgres") as session:
            session.execute("CREATE ROLE hilum LOGIN")
            session.execute("CREATE DATABASE hilum OWNER hilum")
        self.follow()

    def follow(self) -> None:
        """Copy the primary to the other host, which is on and empty, and follow from there."""
        data = _data(self.standby)
        self.standby.run(
            *_USER, _program("pg_basebackup"), "-h", self.primary.spec.address, "-U", "postgres",
            "-D", str(data), "-R", "-c", "fast", "--no-sync",
        )  # fmt: skip
        _serve(self.standby)
        wait_for(self.is_streaming, _START_SECONDS, "the standby follows")
        self.wait_for_standby(is_asked=self.is_synchronous)

    def wait_for_standby(self, *, is_asked: bool) -> None:
        """Whether each commit is on the standby before it returns."""
        value = "*" if is_asked else ""
        with _session(self.primary, "postgres") as session:
            session.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{value}'")
            session.execute("SELECT pg_reload_conf()")

    def is_streaming(self) -> bool:
        """Whether the standby receives what the primary writes."""
        with _session(self.primary, "postgres") as session:
            found = session.execute("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'")
            return found.fetchone() is not None

    def promote(self) -> None:
        """The standby takes writes, alone: it waits for no other. The old primary must be off."""
        self.primary, self.standby = self.standby, self.primary
        with _session(self.primary, "postgres") as session:
            session.execute("SELECT pg_promote()")
            session.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
            session.execute("SELECT pg_reload_conf()")

    def replace_standby(self) -> None:
        """The host that failed comes back empty, and follows the new primary."""
        shutil.rmtree(self.standby.folder / _DATA)
        self.standby.boot()
        self.follow()


def _serve(host: FleetHost) -> None:
    words = [word for option in _OPTIONS for word in ("-c", option)]
    host.spawn(
        *_USER, _program("postgres"), "-D", str(_data(host)),
        "-c", f"listen_addresses={host.spec.address}", "-c", f"port={LEDGER_PORT}",
        "-c", f"unix_socket_directories={STATE}", *words,
        environment=environment_without_settings(),
    )  # fmt: skip
    wait_for(lambda: _answers(host), _START_SECONDS, f"PostgreSQL on {host.spec.name}")


def _answers(host: FleetHost) -> bool:
    try:
        with _session(host, "postgres"):
            return True
    except psycopg.OperationalError:
        return False


def _session(host: FleetHost, database: str) -> psycopg.Connection:
    return psycopg.connect(
        host=host.spec.address,
        port=LEDGER_PORT,
        user="postgres",
        dbname=database,
        autocommit=True,
        connect_timeout=3,
    )


def data_mounts(folder: Path) -> dict[Path, Path]:
    """The mounts of a host with PostgreSQL, whose user may not pass through a private folder."""
    return {folder / _DATA: STATE}


def _data(host: FleetHost) -> Path:
    shutil.chown(host.folder / _DATA, "postgres", "postgres")
    return STATE / "data"


def _program(name: str) -> str:
    return str(programs() / name)
