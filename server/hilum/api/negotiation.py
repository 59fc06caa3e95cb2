"""The media type of an answer, by the Accept field of a request (RFC 9110 12.5.1)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_WEIGHT: Final = re.compile(
    r"(?:^|;)\s*q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\s*(?:;|$)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class _Range:
    """A media range and its weight, 0 to 1. `specificity`: the most specific range decides."""

    kind: str
    subtype: str
    weight: float

    @property
    def specificity(self) -> int:
        return (self.kind != "*") + (self.subtype != "*")

    def covers(self, media_type: str) -> bool:
        kind, _, subtype = media_type.partition("/")
        return self.kind in ("*", kind) and self.subtype in ("*", subtype)


def preferred(accept: str, offered: Sequence[str]) -> str | None:
    """Return the media type that is wanted most; the first of `offered` among equals.

    An empty field accepts all. None: none of them is acceptable. Parameters other than the weight
    do not count.
    """
    ranges = list(_ranges(accept)) if accept.strip() else [_Range("*", "*", 1.0)]
    weights = {item: _weight(ranges, item) for item in offered}
    best = max(weights.values(), default=0.0)
    return next((item for item in offered if weights[item] == best > 0), None)


def _weight(ranges: Sequence[_Range], media_type: str) -> float:
    covering = [item for item in ranges if item.covers(media_type)]
    if not covering:
        return 0.0
    return max(covering, key=lambda item: item.specificity).weight


def _ranges(accept: str) -> Iterator[_Range]:
    """Yield the ranges of a field; one that is malformed accepts nothing."""
    for part in accept.split(","):
        name, _, parameters = part.partition(";")
        kind, slash, subtype = name.strip().lower().partition("/")
        if slash and kind and subtype:
            found = _WEIGHT.search(parameters)
            yield _Range(kind, subtype, float(found[1]) if found else 1.0)
