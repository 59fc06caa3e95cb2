"""Notices of the front page: reports that do not arrive, and faults between hosts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hilum.api.readiness import ReadinessFacts
from hilum.domain import host_problems
from hilum.withheld_reports import WithholdingCause


def notices(
    refusals: Iterable[WithholdingCause], withheld: Iterable[Mapping[str, Any]]
) -> Iterator[str]:
    """Return the reports that a destination will not get, and those withheld from it already."""
    for refusal in refusals:
        yield f"{refusal.destination} {refusal.words}: {refusal.advice}."
    for item in withheld:
        name = item["destination"]
        reason = item["reason"]
        said = f"{item['items']} withheld from {name}"
        if item["releasable"]:
            yield (
                f"{said}, {item['releasable']} can be released: hilum requeue deliver --destination"
                f" {name} --reason {reason}"
            )
        else:
            yield f"{said} ({reason}): {item['advice']}; then restart, and requeue them."


def host_notices(facts: ReadinessFacts) -> Iterator[str]:
    """Return the faults among the hosts that are alive."""
    for problem in host_problems(facts.hosts, facts.clock_tolerance_seconds):
        yield f"{problem.host}: {problem.detail}. {problem.advice}"
