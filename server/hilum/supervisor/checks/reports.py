"""Reports that will not arrive: refused by these settings, or withheld already."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hilum.errors import ConfigurationError, Retry
from hilum.services.releases.releases import load_releases
from hilum.settings import Settings
from hilum.store.queries.views import LedgerViews
from hilum.supervisor.checks.check import Check
from hilum.withheld_reports import in_place, refusals


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
        title = f"reports to {name}"
        of = [refusal for refusal in found if refusal.destination == name]
        problem = next((refusal for refusal in of if refusal.is_all), None)
        if problem is not None:
            yield Check(
                title, ok=False, detail=f"{name} {problem.words}", advice=_sentence(problem.advice)
            )
        else:
            lacks = "; ".join(f"{refusal.words}: {refusal.advice}" for refusal in of)
            said = (
                f"{name} {lacks}" if lacks else "it gets those of every release that reads for it"
            )
            test = (
                ", of untrained weights too: ONLY for a test PACS (accept_untrained)"
                if destination.accept_untrained
                else ""
            )
            yield Check(title, ok=True, detail=f"{said}{test}")


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
        if item["releasable"]:
            command = f"hilum requeue deliver --destination {name} --reason {reason}"
            detail = f"{item['releasable']} withheld from {name} ({reason}) can be released now"
            yield Check(
                f"withheld from {name}",
                ok=False,
                detail=detail,
                advice=f"Restart the server, then run `{command}`.",
            )
        elif name in settings.destinations:
            detail = (
                f"{item['items']} withheld from {name} ({reason}): {item['advice']}; then restart"
                " the server and requeue them"
            )
            yield Check(f"withheld from {name}", ok=True, detail=detail)


def _rollouts(settings: Settings) -> list[dict[str, object]]:
    with contextlib.closing(LedgerViews(settings.ledger_url)) as views:
        try:
            return views.rollouts()
        except Retry:  # a ledger without tables
            return []


def _sentence(advice: str) -> str:
    return f"{advice[0].upper()}{advice[1:]}."
