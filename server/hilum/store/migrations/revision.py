"""The revision of a ledger.

Every process checks it at its start, so this loads nothing of Alembic (0.1 s of CPU each).
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import inspect, text
from sqlalchemy.exc import OperationalError

from hilum.errors import ConfigurationError, NotYet
from hilum.store.database.engines import open_engine

REVISION = "0020"  # of this version: the last of hilum/store/migrations
ADVICE_IF_NEWER = (
    "Start that version again, or restore the backup that was made before the upgrade"
    " (docs/operate/operations.md)."
)


class NotMigrated(NotYet):
    """The ledger has no tables, or those of an earlier version."""


def current_revision(url: str) -> str | None:
    """The revision of the ledger at `url`; None: an empty database.

    Raises ConfigurationError for one that does not open.
    """
    engine = open_engine(url, read_only=True)
    try:
        with engine.connect() as connection:
            if not inspect(connection).has_table("alembic_version"):
                return None
            found: str | None = connection.execute(
                text("SELECT version_num FROM alembic_version")
            ).scalar()
            return found
    except OperationalError as error:
        raise unusable(error, "Check ledger.url.") from error
    finally:
        engine.dispose()


def require_revision(url: str) -> None:
    """Raise ConfigurationError unless the ledger has the revision of this version.

    NotMigrated where a migration is due.
    """
    if is_absent(url):
        raise NotYet(
            [
                (
                    "ledger: there is none yet. Start `hilum serve`, or run `hilum migrate`; if it"
                    " ran before, check site.state_dir and --config."
                )
            ]
        )
    if (found := require_not_newer(url)) != REVISION:
        raise _to_be_migrated(found)


def is_absent(url: str) -> bool:
    """Return whether the URL is that of an SQLite file that is not there."""
    return url.startswith("sqlite") and not Path(url.partition("///")[2]).exists()


def require_readable(url: str) -> None:
    """Raise ConfigurationError unless the revision is of this version or an earlier one."""
    if require_not_newer(url) is None:
        raise _to_be_migrated(None)


def require_not_newer(url: str) -> str | None:
    """The ledger's revision, of this version or earlier; None: an empty database.

    Raises ConfigurationError.
    """
    if is_newer(found := current_revision(url)):
        raise ConfigurationError(
            [
                (
                    f"ledger: revision {found} is of a newer version of Hilum than this one."
                    f" {ADVICE_IF_NEWER}"
                )
            ]
        )
    return found


def is_newer(revision: str | None) -> bool:
    """Whether a later version has written it.

    Revisions are four digits, and only rise.
    """
    return revision is not None and revision > REVISION


def _to_be_migrated(found: str | None) -> NotMigrated:
    advice = "Run `hilum migrate`; `hilum serve` (role all) does it too."
    return NotMigrated(
        [f"ledger: revision {found or 'none'}, but this version needs {REVISION}. {advice}"]
    )


def unusable(error: OperationalError, advice: str) -> NotYet:
    """An error with the first line of the database's text, and advice."""
    return NotYet(
        [f"ledger: cannot open the database: {str(error.orig).strip().splitlines()[0]}. {advice}"]
    )
