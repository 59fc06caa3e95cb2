"""The only way into the archive, for every process that takes objects.

Those are listeners, the web process, and commands that take files.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator

from hilum.receive.indexing.indexer import Indexer, Seen, unseen
from hilum.receive.policy.association_policy import Policy
from hilum.receive.storage.dispatcher import EquipmentIdentity, ObjectDispatcher
from hilum.receive.storage.image_store import ImageStore
from hilum.settings import Settings
from hilum.store.archive.archive import Archive
from hilum.store.archive.archives import open_archive
from hilum.store.ledger import Ledger, RecordOutcome


def open_inbox(settings: Settings, process: str) -> Archive:
    """Return the archive for a process that takes objects."""
    receive = settings.receive
    return open_archive(
        settings,
        process,
        receive.write_out_bytes,
        durability=receive.durability,
    )


@contextlib.contextmanager
def indexing(
    settings: Settings,
    ledger: Ledger,
    archive: Archive,
    stop: threading.Event,
    flush_seconds: float,
    outcomes: Counter[RecordOutcome] | None = None,
    seen: Seen = unseen,
) -> Iterator[ObjectDispatcher]:
    """Yield the reception for an archive that this process holds.

    Files left there by a killed process are swept, or indexed, first. At the end rows are written,
    for `flush_seconds` at most. A bug that ends the indexing sets `stop` and is raised at the end.
    `outcomes` counts the outcomes of the objects, and `seen` takes the images that are new.
    """
    archive.sweep(archive.process)
    indexer = Indexer(settings, ledger, archive, when_failed=stop.set, outcomes=outcomes, seen=seen)
    for file in archive.left_behind([archive.process]):
        indexer.put_left_behind(file)
    indexer.start()
    try:
        policy = Policy(settings.receive, settings.senders)
        intake = ImageStore(settings.receive, archive, indexer, ledger.digest_seed)
        yield ObjectDispatcher(
            intake, ledger, EquipmentIdentity(settings.report.manufacturer, ledger.serial), policy
        )
    finally:
        indexer.stop(flush_seconds)
        if indexer.failure is not None:
            raise indexer.failure
