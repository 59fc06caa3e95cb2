"""Who else on this machine may read what is kept: headers, pixels and reports are patient data."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sqlalchemy.engine import make_url

from hilum.settings import Settings
from hilum.supervisor.check import Check
from hilum.wiring.watching import LISTS_FOLDER

_LOGS: Final = ("", "-wal", "-shm")


def access(settings: Settings) -> Iterator[Check]:
    """Of the ledger's files, the archive and the lists of a watched folder. Other accounts need none of them."""
    kept = [*_ledger_files(settings.ledger_url), settings.archive_dir, settings.site.state_dir / LISTS_FOLDER]
    open_to_others = [path for path in kept if path.exists() and _is_open(path.resolve())]
    if open_to_others:
        named = " ".join(shlex.quote(str(path)) for path in open_to_others)
        advice = f"They hold patient data: chmod o= {named}"
        yield Check("access", ok=False, detail=f"every account of this machine may read {named}", advice=advice)
    else:
        yield Check("access", ok=True, detail="ledger and archive are closed to other accounts")


def _ledger_files(url: str) -> list[Path]:
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return []
    return [Path(f"{parsed.database}{end}") for end in _LOGS]


def _is_open(path: Path) -> bool:
    """To those who are neither its owner nor of its group. A folder that they may enter is open: names in it can be guessed."""
    enters = all(folder.stat().st_mode & stat.S_IXOTH for folder in path.parents)
    return enters and bool(path.stat().st_mode & stat.S_IRWXO)
