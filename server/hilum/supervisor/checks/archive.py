"""Whether archive and ledger belong together: an unmounted archive and a new one look alike."""

from __future__ import annotations

from collections.abc import Iterator

from hilum.settings import Settings
from hilum.store.archive.archive import Archive
from hilum.store.archive.archives import open_archive
from hilum.store.archive.consistency import (
    NOT_MOUNTED,
    is_begun,
    newest_missing,
    require_archive,
    require_ledger,
)
from hilum.store.archive.store_errors import StoreAway
from hilum.store.migrations.revision import REVISION, current_revision
from hilum.supervisor.checks.check import Check
from hilum.supervisor.checks.peers import authority

_RESTORE = "Set archive.url, or restore the bucket (docs/operate/object_store.md)."


def archive_checks(settings: Settings) -> Iterator[Check]:
    """Check that ledger and archive each have the other, and that an object store can be used.

    Raises ConfigurationError, which names the missing one, and OSError.
    """
    if settings.archive.ca_file is not None:
        yield authority("archive CA", settings.archive.ca_file, "archive.ca_file")
    archive = open_archive(settings)
    try:
        yield from _found(settings.ledger_url, archive)
    except StoreAway as away:
        detail = f"{archive.address}: {away.said}"
        yield Check("archive", ok=False, detail=detail, advice=away.advice)


def _found(url: str, archive: Archive) -> Iterator[Check]:
    archive.probe()
    require_ledger(url, archive)
    is_there = archive.is_there
    if is_begun(url) and current_revision(url) == REVISION:
        require_archive(url, archive)
        if is_there and (count := newest_missing(url, archive)):
            detail = (
                f"{archive.address} has none of the newest images of the ledger ({count} looked"
                " for)"
            )
            advice = _RESTORE if archive.is_remote else NOT_MOUNTED
            yield Check("archive", ok=False, detail=detail, advice=advice)
            return
    yield Check(
        "archive", ok=True, detail=f"{archive.address}{'' if is_there else ' (will be made)'}"
    )
