"""Rules about studies that an earlier one shadows, or that have matched none for long."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Final

from hilum.errors import Retry
from hilum.rules.shadows import shadowed
from hilum.settings import Settings
from hilum.settings.rules.former import advice
from hilum.store.queries.views import LedgerViews
from hilum.supervisor.checks.check import Check

_DAYS: Final = 30
_DAY_SECONDS: Final = 86400.0


def rules(settings: Settings, *, has_ledger: bool) -> Iterator[Check]:
    """Check the rules: one that is never reached is a problem, a rare one may be intended."""
    in_use = settings.rules_in_use
    if not in_use:
        return
    if not settings.rules:
        yield Check("rules", ok=True, detail=advice(in_use))
    for name, earlier in shadowed([(rule.name, rule.when) for rule in settings.rules]).items():
        detail = f"{name} is never reached: {earlier} before it matches all that it matches"
        remedy = f"Put {name} before {earlier}, or take it out."
        yield Check(f"rule {name}", ok=False, detail=detail, advice=remedy)
    idle = _idle(settings) if has_ledger else []
    detail = f"{len(in_use)}, the first that matches decides"
    if idle:
        detail += f"; in {_DAYS} days no study matched {', '.join(idle)}"
    yield Check("rules", ok=True, detail=detail)


def _idle(settings: Settings) -> list[str]:
    """Return the rules without a match in 30 days; none where rules are younger than that."""
    since = time.time() - _DAYS * _DAY_SECONDS
    names = [rule.name for rule in settings.rules_in_use]
    with contextlib.closing(LedgerViews(settings.ledger_url)) as views:
        try:
            first, last = views.rule_matches(names)
        except Retry:  # a ledger without tables
            return []
    if first is None or first > since:
        return []
    return [name for name in names if last.get(name, 0.0) < since]
