"""A command that writes into an installation has to be the server's user: what another one makes, the server cannot use."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

from sqlalchemy.engine import make_url

from hilum.errors import ConfigurationError
from hilum.settings import Settings


def require_same_user(settings: Settings) -> None:
    """Raise ConfigurationError where files of this process would not belong to whom the ledger or the archive belongs. Raises OSError.

    Where nothing is yet, the state folder stands for both, and only root is told: others were let in on purpose.
    """
    archive, ledger = settings.archive_dir, ledger_files(settings.ledger_url)[:1]
    # Where to ask for each. Not the archive itself: it may be a mount, and somebody else's.
    asked = {archive / "locks": archive / "locks", archive / "unindexed": archive, **{file: file.parent for file in ledger}}
    made = {path: folder for path, folder in asked.items() if path.exists()}
    for path, folder in made.items():
        _require_owner(path, folder)
    state = settings.site.state_dir
    if not made and state.exists() and os.geteuid() == 0:
        _require_owner(state, state)


def ledger_files(url: str) -> list[Path]:
    """The database and its logs; none where a server keeps them."""
    parsed = make_url(url)
    return [Path(f"{parsed.database}{end}") for end in ("", "-wal", "-shm")] if parsed.get_backend_name() == "sqlite" else []


def _require_owner(path: Path, folder: Path) -> None:
    owner = path.stat().st_uid
    if owner == os.geteuid() or owner == (writer := _owner_of_new(folder)):
        return
    problem = f"{path} belongs to {_name(owner)}, who could not use what {_name(writer)} writes there."
    raise ConfigurationError([f"{problem} Do this as the user of the server, as in `sudo -u {_name(owner)} hilum ...`."])


def _owner_of_new(folder: Path) -> int:
    """Of what we write there: a file system that is mounted may give it to somebody else."""
    try:
        with tempfile.TemporaryFile(dir=folder) as ours:
            return os.fstat(ours.fileno()).st_uid
    except PermissionError as error:
        raise PermissionError(error.errno, error.strerror, str(folder)) from error


def _name(user: int) -> str:
    """Of an account; its number, as sudo takes it, where it has no name here."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"'#{user}'"
