"""The form of a UID (PS3.5 9.1), by one rule for every way in."""

from __future__ import annotations

import re
from typing import Final

# Components with a leading zero, and a second one above 39, are tolerated: they exist, and refusing
# such an image would not help.
_UID: Final = re.compile(r"[0-9]+(?:\.[0-9]+)*")
_LONGEST_UID: Final = 64
_LAST_ROOT: Final = 2
# written by a device without a value: all its patients would share one study
_ZEROS: Final = frozenset("0.")


def problem_of_uid(text: str) -> str | None:
    """Return the fault of a text as a UID, with its remedy; None: it is valid.

    It fits into an Error Comment after a name. It is the only rule, for every way in.
    """
    if problem := problem_of_form(text):
        return problem
    first = int(text.partition(".")[0])
    # ISO/IEC 9834-1: there are three roots
    return "must start with 0-2" if first > _LAST_ROOT else None


def is_like_uid(text: str) -> bool:
    """Return whether a stored object may have this name.

    Earlier versions took UIDs that begin with any number, and such objects can be named.
    """
    return problem_of_form(text) is None


def problem_of_form(text: str) -> str | None:
    """Return the fault of a stored object's name; its root is not judged. None: it may stand."""
    if not text:
        return "is missing; fill it in"
    if len(text) > _LONGEST_UID:
        return f"is over {_LONGEST_UID} characters"
    if not _UID.fullmatch(text):
        return "is not a valid UID"
    return "is all zeros; fill it in" if _ZEROS.issuperset(text) else None
