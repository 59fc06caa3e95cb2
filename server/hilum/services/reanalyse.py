"""`hilum reanalyse`: checked against settings and rollouts first."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

from hilum.services.releases.release_plan import plan_of
from hilum.settings import Settings
from hilum.store.admin.reanalyse import Count, Reanalysis, ReanalysisRequest
from hilum.store.rollouts.rollouts import Rollouts

Note = Callable[[float, Count], None]


class CannotReanalyse(ValueError):
    """No analyser would read by this release; the text contains the remedy."""


def reanalyse(
    settings: Settings, order: ReanalysisRequest, note: Note, *, is_dry_run: bool = False
) -> Count:
    """Have a release read closed studies that it has not read; return their counts.

    `note` is called with the share searched, and the counts so far. Raises CannotReanalyse.
    Idempotent.
    """
    with contextlib.closing(Rollouts(settings.ledger_url)) as rollouts:
        wanted = replace(order, peers=_peers(settings, rollouts, order.release))
    with contextlib.closing(Reanalysis(settings.ledger_url)) as reanalysis:
        total = Count()
        last_row = reanalysis.last_row()
        for looked in reanalysis.look(wanted, last_row):
            total += looked.count if is_dry_run else replace(looked.count, studies=0, images=0)
            for done in () if is_dry_run else reanalysis.begin(wanted, looked.ids):
                total += done
                note(looked.until / last_row, total)
            note(looked.until / last_row, total)
        return total


def _peers(settings: Settings, rollouts: Rollouts, release: str) -> frozenset[str]:
    """Return the releases that are rolled out with this one.

    Raises CannotReanalyse for one that no analyser would load, or that is not verified.
    """
    known = rollouts.all()
    plan = plan_of(settings.active_releases, known)
    if release in plan.proving:
        raise CannotReanalyse(
            f"{release} is not proved yet: `hilum rollout show {plan.proving[release]}` says when"
            " it is; then do it again"
        )
    if release not in plan.all:
        loaded = ", ".join(sorted(plan.all)) or "none"
        advice = (
            f"name it in models.releases, or `hilum rollout start ALIAS {release} --shadow`; until"
            " it has read all"
        )
        raise CannotReanalyse(f"no analyser reads by {release}, only by {loaded}: {advice}")
    return frozenset(name for item in known if release in item.releases for name in item.releases)
