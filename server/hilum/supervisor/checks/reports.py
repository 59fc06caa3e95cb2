"""Reports that will not arrive: refused by these settings, or withheld already."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from hilum.errors import ConfigurationError, Retry
from hilum.services.releases.releases import load_releases
from hilum.settings import Destination, Settings
from hilum.store.queries.views import LedgerViews
from hilum.supervisor.checks.check import Check
from hilum.withheld_reports import WithholdingCause, in_place, refusals


def reports(settings: Settings, *, has_ledger: bool) -> Iterator[Check]:
    """Return one check for each destination.

    A destination that gets no report at all is a problem. One that lacks some may be intended.
    """
    try:
        releases = load_releases(settings)
    except ConfigurationError:
        return  # reported by the check of the releases
    found = refusals(
        settings, in_place(settings, releases, _rollouts(settings) if has_ledger else [])
    )
    for name, destination in settings.destinations.items():
        yield _reports_to(name, destination, [item for item in found if item.destination == name])


def _reports_to(name: str, destination: Destination, of: Sequence[WithholdingCause]) -> Check:
    title = f"reports to {name}"
    if problem := next((refusal for refusal in of if refusal.is_all), None):
        advice = _sentence(problem.advice)
        return Check(title, ok=False, detail=f"{name} {problem.words}", advice=advice)
    lacks = "; ".join(f"{refusal.words}: {refusal.advice}" for refusal in of)
    said = f"{name} {lacks}" if lacks else "it gets those of every release that reads for it"
    if destination.accept_untrained:
        said += ", of untrained weights too: ONLY for a test PACS (accept_untrained)"
    return Check(title, ok=True, detail=said)


def withheld(settings: Settings) -> Iterator[Check]:
    """Check for withheld reports.

    Reports that could go out now and wait for a person are a problem. Reports that the settings
    keep back are only counted.
    """
    with contextlib.closing(LedgerViews(settings.ledger_url)) as views:
        try:
            found = views.withheld(settings.destinations)
        except Retry:  # a ledger without tables
            return
    for item in found:
        name = item["destination"]
        reason = item["reason"]
        withheld_here = f"withheld from {name}"
        if item["releasable"]:
            command = f"hilum requeue deliver --destination {name} --reason {reason}"
            detail = f"{item['releasable']} {withheld_here} ({reason}) can be released now"
            advice = f"Restart the server, then run `{command}`."
            yield Check(withheld_here, ok=False, detail=detail, advice=advice)
        elif name in settings.destinations:
            remedy = f"{item['advice']}; then restart the server and requeue them"
            detail = f"{item['items']} {withheld_here} ({reason}): {remedy}"
            yield Check(withheld_here, ok=True, detail=detail)


def _rollouts(settings: Settings) -> list[dict[str, object]]:
    with contextlib.closing(LedgerViews(settings.ledger_url)) as views:
        try:
            return views.rollouts()
        except Retry:  # a ledger without tables
            return []


def _sentence(advice: str) -> str:
    return f"{advice[0].upper()}{advice[1:]}."
