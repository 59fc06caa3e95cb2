"""The user of a command that writes into an installation: it has to be the server's.

The server cannot use files of another user.
"""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

from sqlalchemy.engine import make_url

from hilum.errors import ConfigurationError
from hilum.settings import Settings


def require_same_user(settings: Settings) -> None:
    """Raise ConfigurationError where files of this process would get a wrong owner.

    The right owner is that of the ledger or the archive. Where neither exists yet, it is that of
    the state folder, and only root is refused: others were let in on purpose. Raises OSError.
    """
    archive = settings.archive_dir
    ledger = ledger_files(settings.ledger_url)[:1]
    # The folder in which to test each. It is not the archive itself, which may be a mount and
    # another user's.
    asked = {
        archive / "locks": archive / "locks",
        archive / "unindexed": archive,
        **{file: file.parent for file in ledger},
    }
    made = {path: folder for path, folder in asked.items() if path.exists()}
    for path, folder in made.items():
        _require_owner(path, folder)
    state = settings.site.state_dir
    if not made and state.exists() and os.geteuid() == 0:
        _require_owner(state, state)


def ledger_files(url: str) -> list[Path]:
    """Return the database and its logs; empty where a database server keeps them."""
    parsed = make_url(url)
    return (
        [Path(f"{parsed.database}{end}") for end in ("", "-wal", "-shm")]
        if parsed.get_backend_name() == "sqlite"
        else []
    )


def _require_owner(path: Path, folder: Path) -> None:
    owner = path.stat().st_uid
    if owner == os.geteuid() or owner == (writer := _owner_of_new(folder)):
        return
    problem = (
        f"{path} belongs to {_name(owner)}, who could not use what {_name(writer)} writes there."
    )
    raise ConfigurationError(
        [f"{problem} Do this as the user of the server, as in `sudo -u {_name(owner)} hilum ...`."]
    )


def _owner_of_new(folder: Path) -> int:
    """Return the owner of new files there: a mounted file system may set another owner."""
    try:
        with tempfile.TemporaryFile(dir=folder) as ours:
            return os.fstat(ours.fileno()).st_uid
    except PermissionError as error:
        raise PermissionError(error.errno, error.strerror, str(folder)) from error


def _name(user: int) -> str:
    """Return the name of an account, or its number, as sudo takes it, where it has no name here."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"'#{user}'"
