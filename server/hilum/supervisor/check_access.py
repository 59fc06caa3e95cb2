"""Who may use what is kept: the server's user all of it, and nobody else on this machine, as it is patient data."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hilum.settings import Settings, secrets_in
from hilum.supervisor.check import AS_SERVER, Check
from hilum.wiring.same_user import ledger_files
from hilum.wiring.watching import LISTS_FOLDER

_LOOKED_AT: Final = 20_000  # of an archive of millions: the newest, within a second
_FOLDER: Final = os.R_OK | os.W_OK | os.X_OK
_OURS: Final = re.compile("locks|unindexed|quarantine|[0-9a-f]{2}")  # an archive may be a mount: lost+found is its file system's


def access(settings: Settings) -> Iterator[Check]:
    """Of the ledger's files, the archive and the lists of a watched folder. Other accounts need none of them."""
    kept = [*ledger_files(settings.ledger_url), settings.archive_dir, settings.site.state_dir / LISTS_FOLDER]
    open_to_others = [path for path in kept if path.exists() and _is_open(path.resolve())]
    if open_to_others:
        named = " ".join(shlex.quote(str(path)) for path in open_to_others)
        advice = f"They hold patient data: chmod o= {named}"
        yield Check("access", ok=False, detail=f"every account of this machine may read {named}", advice=advice)
    else:
        yield Check("access", ok=True, detail="ledger and archive are closed to other accounts")


def secrets(settings: Settings, file: Path | None) -> Iterator[Check]:
    """Of the settings file, where secrets stand in it, and of keys: the server reads them, and no other account."""
    kept = [Path(path) for path, name in settings.own_paths.items() if name.endswith(("key_file", "token_file"))]
    if file is not None and secrets_in(file):
        kept.insert(0, file)
    open_to_others = [path for path in kept if path.exists() and _is_readable(path.resolve())]
    if open_to_others:
        named = " ".join(shlex.quote(str(path)) for path in open_to_others)
        advice = f"They hold secrets: chmod go= {named}; or chown root:hilum and chmod 0640, where hilum is the group of the server alone"
        yield Check("secrets", ok=False, detail=f"other accounts of this machine may read {named}", advice=advice)
    else:
        yield Check("secrets", ok=True, detail=f"{len(kept)} files with keys or secrets, closed to other accounts")


def _is_readable(path: Path) -> bool:
    """By other accounts, or by a group that no administrator has chosen: of a file of root's the group is the one that shall read it."""
    status = path.stat()
    is_open_to_group = bool(status.st_mode & stat.S_IRWXG) and status.st_uid != 0
    enters_as_group = all(folder.stat().st_mode & (stat.S_IXOTH | stat.S_IXGRP) for folder in path.parents)
    return _is_open(path) or (is_open_to_group and enters_as_group)


def _is_open(path: Path) -> bool:
    """To those who are neither its owner nor of its group. A folder that they may enter is open: names in it can be guessed."""
    enters = all(folder.stat().st_mode & stat.S_IXOTH for folder in path.parents)
    return enters and bool(path.stat().st_mode & stat.S_IRWXO)


def usable(settings: Settings) -> Iterator[Check]:
    """Whether this user can work with the ledger's files and the archive, or another one, as root has, has left something there."""
    files, archive = [path for path in ledger_files(settings.ledger_url) if path.exists()], settings.archive_dir
    reference = _of_server(files, settings)
    owner = reference.stat().st_uid if reference.exists() else os.geteuid()
    looked_at = itertools.chain(((file, os.R_OK | os.W_OK) for file in files), _kept(archive))
    others = [path for path, wanted in itertools.islice(looked_at, _LOOKED_AT) if not _is_usable(path, wanted, owner)]
    if not others:
        yield Check("files", ok=True, detail="ledger and archive are this user's to read and write")
        return
    places = [path for path in (*files, archive) if path.exists()]
    mend = f"chown -R --reference={' '.join(shlex.quote(str(path.resolve())) for path in (reference, *places))}"
    if os.geteuid() == 0:
        whose, advice = "were left by root to a server that is another user", mend
    else:
        whose, advice = "are not this user's to read and write", f"{AS_SERVER}; if it says the same, then as root: {mend}"
    yield Check("files", ok=False, detail=f"{len(others)} files or folders {whose}, such as {others[0]}", advice=advice)


def _of_server(files: list[Path], settings: Settings) -> Path:
    """What surely belongs to the server: its ledger, unless root has begun it in a folder and beside an archive of one other user."""
    state, locks = settings.site.state_dir, settings.archive_dir / "locks"
    if not files:
        return state
    others = {path.stat().st_uid for path in (state, locks) if path.exists()}
    return state if files[0].stat().st_uid == 0 and len(others) == 1 and locks.exists() and 0 not in others else files[0]


def _is_usable(path: Path, wanted: int, owner: int) -> bool:
    """For this user; where that is root, who may everything, whether it has not been left by root to a server that is not."""
    try:
        return os.access(path, wanted) if os.geteuid() else path.stat().st_uid != 0 or owner == 0
    except FileNotFoundError:  # it was moved, as files are
        return True


def _kept(archive: Path) -> Iterator[tuple[Path, int]]:
    """Folders and files of the archive, and what a server has to be able to do there; first what is used by all, then the newest."""
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
    """What is in a folder; nothing of one that may not be looked into, which is said of the folder itself."""
    try:
        return [Path(entry.path) for entry in sorted(os.scandir(folder), key=_changed_at, reverse=True)]
    except OSError:
        return []


def _changed_at(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except OSError:  # it was moved, as files are
        return 0.0
