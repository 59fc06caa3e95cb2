"""Whether deletion follows the settings, and whether they honour storage commitment."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Final

from hilum.errors import Retry
from hilum.settings import Retention, Settings
from hilum.store.installation.known_time import Believed
from hilum.store.queries.retention import Promised, RetentionState
from hilum.store.queries.views import LedgerViews
from hilum.supervisor.checks.check import Check
from hilum.supervisor.checks.retention_advice import CLOCK_AHEAD, CLOCK_BEHIND, HOUR_SPENT

_DAY_SECONDS: Final = 86400.0
_CHOOSE: Final = (
    "Agree with the senders how long: set retention.committed_days. Or promise nothing:"
    " receive.storage_commitment = false, and have modalities keep their images until the PACS has"
    " them."
)


def retention_checks(settings: Settings) -> Iterator[Check]:
    """Check deletion in a ledger of this version."""
    with contextlib.closing(LedgerViews(settings.ledger_url)) as views:
        try:
            found = views.retention_state()
            promised = views.promised()
        except Retry:  # a ledger without tables
            return
    yield _known_time(found.believed)
    if deletes(settings.retention):
        yield _hour(found)
    yield _promises(settings, promised)


def deletes(settings: Retention) -> bool:
    """Return whether pixels are ever deleted, by age or pressure."""
    return bool(settings.days or settings.reanalysis_days or settings.pressure_free_bytes)


def _known_time(believed: Believed | None) -> Check:
    name = "known time"
    if believed is None:
        return Check(name, ok=True, detail="nothing was deleted by age yet")
    days = abs(believed.ahead_seconds) / _DAY_SECONDS
    if believed.is_ahead:
        return Check(
            name, ok=False, detail=f"the clock is {days:.1f} days ahead of it", advice=CLOCK_AHEAD
        )
    if believed.is_behind:
        return Check(
            name, ok=False, detail=f"the clock is {days:.1f} days behind it", advice=CLOCK_BEHIND
        )
    ago = time.time() - believed.clock
    return Check(
        name, ok=True, detail=f"agrees with the clock; looked at {max(0.0, ago) / 60:.0f} min ago"
    )


def _hour(found: RetentionState) -> Check:
    hour = found.hour
    if hour.is_spent:
        said = (
            f"{hour.images} images have left by age in this hour, and no more than"
            f" {hour.may_leave} may"
        )
        return Check("retention", ok=False, detail=said, advice=HOUR_SPENT)
    return Check("retention", ok=True, detail=f"{hour.images} images have left by age in this hour")


def _promised_words(promised: Promised) -> str:
    images = f"{promised.images} image{'s'[: promised.images != 1]}"
    return f"{images} ({promised.size_bytes / 1e9:.1f} GB) promised"


def _promises(settings: Settings, promised: Promised) -> Check:
    """Check for commitments without an end while deletion is to remove all images.

    One of the two settings is probably a mistake.
    """
    name = "storage commitment"
    days = settings.retention.committed_days
    kept = _promised_words(promised)
    if not settings.receive.storage_commitment:
        return Check(name, ok=True, detail=f"not offered; {kept}")
    if not deletes(settings.retention):
        return Check(name, ok=True, detail=f"offered, and nothing is deleted; {kept}")
    if days:
        longer = ", longer than retention.days" if days > settings.retention.days > 0 else ""
        stays = f"promised images stay for {days:g} days at least{longer}"
        return Check(name, ok=True, detail=f"offered; {stays}; {kept}")
    detail = (
        f"offered without an end (retention.committed_days = 0), while other images leave; {kept},"
        " and never leave"
    )
    return Check(name, ok=not promised.images, detail=detail, advice=_CHOOSE)
