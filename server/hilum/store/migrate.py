"""The ledger's revisions. Only the supervisor migrates; every other process checks and refuses a wrong revision."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import OperationalError

from hilum.errors import ConfigurationError
from hilum.store.database import open_engine
from hilum.store.schema import installation


def migrate(url: str) -> str:
    """Bring the ledger at `url` to this version's revision, mint the installation's identity, return the revision."""
    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()
        with engine.begin() as connection:
            _mint_identity(connection)
    except OperationalError as error:
        raise ConfigurationError(
            [f"ledger: cannot open the database: {_short(error)}. Check ledger.url and that the folder is writable."]
        ) from error
    finally:
        engine.dispose()
    return expected_revision()


def expected_revision() -> str:
    """The revision that this version of Hilum works with."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def current_revision(url: str) -> str | None:
    """The revision of the ledger at `url`; None: an empty database."""
    engine = open_engine(url, read_only=True)
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    except OperationalError as error:
        raise ConfigurationError([f"ledger: cannot open the database: {_short(error)}. Check ledger.url."]) from error
    finally:
        engine.dispose()


def require_revision(url: str) -> None:
    """Raise ConfigurationError unless the ledger has the revision of this version."""
    found, expected = current_revision(url), expected_revision()
    if found != expected:
        raise ConfigurationError(
            [f"ledger: revision {found or 'none'}, but this version needs {expected}. Start `hilum serve` (role all) once; it migrates."]
        )


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def _mint_identity(connection: Connection) -> None:
    """The namespace of all our UIDs: a second installation must never mint the same ones."""
    if connection.execute(select(installation.c.value).where(installation.c.key == "namespace")).first() is None:
        rows = [{"key": "namespace", "value": str(uuid.uuid4())}, {"key": "created_at", "value": str(time.time())}]
        connection.execute(insert(installation), rows)


def _short(error: OperationalError) -> str:
    return str(error.orig).strip().splitlines()[0]
