"""`hilum recover`: files in the archive without a row get their row.

They are put back among the acknowledged files first.
"""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from pathlib import Path

from hilum.errors import ConfigurationError
from hilum.receive.indexing.indexer import BATCH, index
from hilum.settings import Settings
from hilum.store.admin.unreferenced_files import orphans
from hilum.store.archive.archives import open_archive
from hilum.store.ledger import Ledger, RecordOutcome


def orphans_of(settings: Settings) -> list[Path]:
    """Return objects without a row. Raises ConfigurationError where there is no archive."""
    archive = open_archive(settings)
    if not archive.is_there:
        raise ConfigurationError(
            [f"archive: there is none in {archive.address}; run this where the archive is mounted."]
        )
    return orphans(settings.ledger_url, archive)


def recover_orphans(settings: Settings, files: list[Path]) -> Counter[RecordOutcome]:
    """Give the files rows, each with the priority of its route, and return their outcomes.

    It runs beside a running server. If it is killed, the next start of a server or the next call
    continues. Raises ConfigurationError, SQLAlchemyError, OSError.
    """
    archive = open_archive(settings, f"{socket.gethostname()}-recover")
    outcomes = Counter[RecordOutcome]()
    archive.make_spool()
    with (
        archive.held(archive.process) as is_ours,
        contextlib.closing(Ledger(settings.ledger_url)) as ledger,
    ):
        if not is_ours:
            raise ConfigurationError(
                [f"archive: another `hilum recover` is at work in {archive.root}; wait for it."]
            )
        for begin in range(0, len(files), BATCH) or (0,):
            for file in files[begin : begin + BATCH]:
                archive.take_back(file)
            batch = archive.left_behind([archive.process])
            outcomes += index(batch, settings, ledger, archive, left_behind=set(batch))
    return outcomes
