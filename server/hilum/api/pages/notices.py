"""Notices of the front page about reports that do not arrive. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

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
