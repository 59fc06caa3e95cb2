"""Rules that are never reached: an earlier one matches all that they match.

Found from the conditions as they are written. What is not found may still be shadowed.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Final

Conditions = Mapping[str, object]
_AS_WRITTEN: Final = ("calling", "called", "peer")
_LIMITS: Final = frozenset(("min", "max"))


def shadowed(rules: Sequence[tuple[str, Conditions]]) -> dict[str, str]:
    """Return the rules that an earlier one shadows, each with that one. By name."""
    found: dict[str, str] = {}
    for position, (name, when) in enumerate(rules):
        for earlier, wider in rules[:position]:
            if when and _covers_all(wider, when):
                found[name] = earlier
                break
    return found


def _covers_all(wide: Conditions, narrow: Conditions) -> bool:
    """Return whether each condition of the one follows from a condition of the other."""
    return all(key in narrow and _is_within(key, narrow[key], value) for key, value in wide.items())


def _is_within(key: str, narrow: object, wide: object) -> bool:
    """Return whether each value that the one accepts is accepted by the other."""
    if narrow == wide:
        return True
    if isinstance(narrow, Mapping) or isinstance(wide, Mapping):
        return _is_range_within(narrow, wide)
    return all(
        any(_covers(other, item, is_folded=key not in _AS_WRITTEN) for other in _listed(wide))
        for item in _listed(narrow)
    )


def _is_range_within(narrow: object, wide: object) -> bool:
    if not isinstance(wide, Mapping) or not set(wide) <= _LIMITS:
        return False
    values = [narrow] if not isinstance(narrow, Mapping) else []
    if isinstance(narrow, Mapping):
        if not set(narrow) <= _LIMITS or not set(wide) <= set(narrow):
            return False
        values = list(narrow.values())
    low = wide.get("min", float("-inf"))
    high = wide.get("max", float("inf"))
    return all(isinstance(value, int | float) and low <= value <= high for value in values)


def _covers(pattern: object, item: object, *, is_folded: bool) -> bool:
    """Return whether a pattern accepts all that another one accepts.

    The other pattern counts as a text: a `*` accepts a `*`.
    """
    if not isinstance(pattern, str) or not isinstance(item, str):
        return pattern == item
    wide = pattern.strip().casefold() if is_folded else pattern.strip()
    narrow = item.strip().casefold() if is_folded else item.strip()
    if wide == narrow:
        return True
    is_plain = not set(wide) & set("?[\\")
    return is_plain and fnmatch.fnmatchcase(narrow, wide)


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else (value,)
