"""File permissions: the server's user may use all files, and no other account may read them.

The files are patient data.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from hilum.processes.watcher import LISTS_FOLDER
from hilum.services.same_user import ledger_files
from hilum.settings import Settings, secrets_in
from hilum.supervisor.checks.check import AS_SERVER, Check

_LOOKED_AT: Final = 20_000  # of an archive of millions: the newest, within a second
_FOLDER: Final = os.R_OK | os.W_OK | os.X_OK
# an archive may be a mount: lost+found is its file system's
_OURS: Final = re.compile("locks|unindexed|quarantine|[0-9a-f]{2}")


def access(settings: Settings) -> Iterator[Check]:
    """Check that other accounts cannot read the ledger's files, the archive and watch lists."""
    kept = [
        *ledger_files(settings.ledger_url),
        settings.archive_dir,
        settings.site.state_dir / LISTS_FOLDER,
    ]
    open_to_others = [path for path in kept if path.exists() and _is_open(path.resolve())]
    if open_to_others:
        named = " ".join(shlex.quote(str(path)) for path in open_to_others)
        advice = f"They hold patient data: chmod o= {named}"
        yield Check(
            "access",
            ok=False,
            detail=f"every account of this machine may read {named}",
            advice=advice,
        )
    else:
        yield Check("access", ok=True, detail="ledger and archive are closed to other accounts")


def secrets(settings: Settings, file: Path | None) -> Iterator[Check]:
    """Check that no other account can read the keys, and the settings file if it holds secrets."""
    kept = [
        Path(path)
        for path, name in settings.own_paths.items()
        if name.endswith(("key_file", "token_file", "credentials_file"))
    ]
    if file is not None and secrets_in(file):
        kept.insert(0, file)
    open_to_others = [path for path in kept if path.exists() and _is_readable(path.resolve())]
    if open_to_others:
        named = " ".join(shlex.quote(str(path)) for path in open_to_others)
        advice = (
            f"They hold secrets: chmod go= {named}; or chown root:hilum and chmod 0640, where hilum"
            " is the group of the server alone"
        )
        yield Check(
            "secrets",
            ok=False,
            detail=f"other accounts of this machine may read {named}",
            advice=advice,
        )
    else:
        yield Check(
            "secrets",
            ok=True,
            detail=f"{len(kept)} files with keys or secrets, closed to other accounts",
        )


def _is_readable(path: Path) -> bool:
    """Return whether other accounts, or a group that no administrator has chosen, may read it.

    The group of a file of root's counts as chosen by an administrator.
    """
    status = path.stat()
    is_open_to_group = bool(status.st_mode & stat.S_IRWXG) and status.st_uid != 0
    enters_as_group = all(
        folder.stat().st_mode & (stat.S_IXOTH | stat.S_IXGRP) for folder in path.parents
    )
    return _is_open(path) or (is_open_to_group and enters_as_group)


def _is_open(path: Path) -> bool:
    """Return whether accounts that are neither its owner nor in its group may use it.

    A folder that they may enter is open: names in it can be guessed.
    """
    enters = all(folder.stat().st_mode & stat.S_IXOTH for folder in path.parents)
    return enters and bool(path.stat().st_mode & stat.S_IRWXO)


def usable(settings: Settings) -> Iterator[Check]:
    """Check that this user can use the ledger's files and the archive.

    A command of another user, such as root, may have left files there.
    """
    files = [path for path in ledger_files(settings.ledger_url) if path.exists()]
    archive = settings.archive_dir
    reference = _of_server(files, settings)
    owner = reference.stat().st_uid if reference.exists() else os.geteuid()
    looked_at = itertools.chain(((file, os.R_OK | os.W_OK) for file in files), _kept(archive))
    others = [
        path
        for path, wanted in itertools.islice(looked_at, _LOOKED_AT)
        if not _is_usable(path, wanted, owner)
    ]
    if not others:
        yield Check("files", ok=True, detail="ledger and archive are this user's to read and write")
        return
    remedy = _chown(reference, [path for path in (*files, archive) if path.exists()])
    if os.geteuid() == 0:
        whose = "were left by root to a server that is another user"
    else:
        whose = "are not this user's to read and write"
        remedy = f"{AS_SERVER}; if it says the same, then as root: {remedy}"
    detail = f"{len(others)} files or folders {whose}, such as {others[0]}"
    yield Check("files", ok=False, detail=detail, advice=remedy)


def _chown(reference: Path, places: Iterable[Path]) -> str:
    quoted = [shlex.quote(str(path.resolve())) for path in (reference, *places)]
    return f"chown -R --reference={' '.join(quoted)}"


def _of_server(files: list[Path], settings: Settings) -> Path:
    """Return a path that surely belongs to the server: its ledger, except where root began it.

    Root began it if the state folder and the archive's locks belong to one other user.
    """
    state = settings.site.state_dir
    locks = settings.archive_dir / "locks"
    if not files:
        return state
    others = {path.stat().st_uid for path in (state, locks) if path.exists()}
    return (
        state
        if files[0].stat().st_uid == 0 and len(others) == 1 and locks.exists() and 0 not in others
        else files[0]
    )


def _is_usable(path: Path, wanted: int, owner: int) -> bool:
    """Return whether this user may use the path.

    As root, return instead whether the server's user can: a file of root's is unusable for a server
    of another user.
    """
    try:
        return os.access(path, wanted) if os.geteuid() else path.stat().st_uid != 0 or owner == 0
    except FileNotFoundError:  # it was moved, as files are
        return True


def _kept(archive: Path) -> Iterator[tuple[Path, int]]:
    """Return folders and files of the archive, with the access that a server needs.

    Folders that are always used come first, then the newest.
    """
    if not archive.exists():
        return
    yield archive, _FOLDER
    below = [path for path in _newest_first(archive) if _OURS.fullmatch(path.name)]
    for folder in sorted(below, key=lambda path: path.name not in {"locks", "unindexed"}):
        yield from _with_contents(folder)


def _with_contents(folder: Path) -> Iterator[tuple[Path, int]]:
    yield folder, _FOLDER
    for path in _newest_first(folder):
        if path.is_dir():
            yield from _with_contents(path)
        else:
            yield path, os.R_OK | (os.W_OK if path.suffix == ".lock" else 0)


def _newest_first(folder: Path) -> list[Path]:
    """Return the contents of a folder, or nothing if it cannot be read.

    A folder that cannot be read is reported by its own check.
    """
    try:
        return [
            Path(entry.path) for entry in sorted(os.scandir(folder), key=_changed_at, reverse=True)
        ]
    except OSError:
        return []


def _changed_at(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except OSError:  # it was moved, as files are
        return 0.0
