"""The ledger's migrations.

Only the supervisor runs them; every other process checks the revision
(`hilum.store.migrations.revision`).
"""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, insert, select
from sqlalchemy.exc import OperationalError

from hilum.errors import ConfigurationError
from hilum.store.database.engines import open_engine
from hilum.store.installation import digest_seed, known_time
from hilum.store.migrations.revision import require_not_newer, unusable
from hilum.store.schema import changes
from hilum.store.schema.tables import installation

_LOCK = int.from_bytes(b"hilum")  # PostgreSQL's locks have numbers
_MIGRATIONS = Path(__file__).parent


def migrate(url: str, location: Path = _MIGRATIONS) -> str:
    """Bring the ledger at `url` to this version's revision, and return the revision.

    Mints the installation's identity. All or nothing: a step that fails leaves the ledger as it
    was. A ledger of this revision is not looked through. Raises ConfigurationError, also for a
    ledger of a newer version.
    """
    is_due = require_not_newer(url) != (expected := expected_revision(location))
    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            if not is_due:
                _restore_order_of_changes(connection)
                return expected
            _leave_references_unchecked(connection)
            with connection.begin():  # ours, or Alembic commits each step by itself
                _wait_for_others(connection)
                config = _config(location)
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
                _require_references(connection)
                _mint_identity(connection)
                digest_seed.mint(connection)
                known_time.mint(connection, time.time())
                changes.begin(connection)
    except OperationalError as error:
        raise unusable(error, "Check ledger.url and that the folder is writable.") from error
    finally:
        engine.dispose()
    return expected


def _restore_order_of_changes(connection: Connection) -> None:
    """Restore the order of changes after a dump was restored into another cluster (PostgreSQL).

    Its ledger is at our revision, too. Takes no lock where the cluster is the same.
    """
    if connection.dialect.name == "postgresql":
        with connection.begin():
            changes.begin(connection)


def _wait_for_others(connection: Connection) -> None:
    """Wait until no other host migrates; the next host finds it done.

    SQLite's transaction is the only one that writes anyhow.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))


def _leave_references_unchecked(connection: Connection) -> None:
    """Check references at the end of a migration (SQLite).

    SQLite changes a table by making it anew, and refuses to drop the old one while other rows refer
    to it.
    """
    if connection.dialect.name == "sqlite":
        # It has no effect inside a transaction; none has begun.
        connection.connection.cursor().execute("PRAGMA foreign_keys = OFF")


def _require_references(connection: Connection) -> None:
    if connection.dialect.name == "sqlite" and (
        broken := connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    ):
        raise ConfigurationError(
            [
                (
                    f"ledger: the migration would leave {len(broken)} rows without what they"
                    " refer to. Please report this."
                )
            ]
        )


def expected_revision(location: Path = _MIGRATIONS) -> str:
    """The revision that this version of Hilum works with."""
    head = ScriptDirectory.from_config(_config(location)).get_current_head()
    assert head is not None
    return head


def _config(location: Path = _MIGRATIONS) -> Config:
    config = Config()
    config.set_main_option("script_location", str(location))
    return config


def _mint_identity(connection: Connection) -> None:
    """Mint the namespace of all our UIDs.

    A second installation must never mint the same UIDs.
    """
    if (
        connection.execute(
            select(installation.c.value).where(installation.c.key == "namespace")
        ).first()
        is None
    ):
        rows = [
            {"key": "namespace", "value": str(uuid.uuid4())},
            {"key": "created_at", "value": str(time.time())},
        ]
        connection.execute(insert(installation), rows)
