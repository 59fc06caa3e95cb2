"""Whether archive and ledger belong together: an unmounted archive and a new one look alike."""

from __future__ import annotations

from collections.abc import Iterator

from hilum.settings import Settings
from hilum.store.archive.archive import Archive
from hilum.store.archive.consistency import (
    NOT_MOUNTED,
    is_begun,
    newest_missing,
    require_archive,
    require_ledger,
)
from hilum.store.migrations.revision import REVISION, current_revision
from hilum.supervisor.checks.check import Check


def archive_checks(settings: Settings) -> Iterator[Check]:
    """Check that ledger and archive each have the other.

    Raises ConfigurationError, which names the missing one, and OSError.
    """
    url = settings.ledger_url
    archive = Archive(settings.archive_dir)
    require_ledger(url, archive)
    if is_begun(url) and current_revision(url) == REVISION:
        require_archive(url, archive)
        if archive.is_there and (count := newest_missing(url, archive)):
            detail = (
                f"{archive.root} has none of the newest images of the ledger ({count} looked for)"
            )
            yield Check("archive", ok=False, detail=detail, advice=NOT_MOUNTED)
            return
    yield Check(
        "archive", ok=True, detail=f"{archive.root}{'' if archive.is_there else ' (will be made)'}"
    )
