"""Statuses of C-FIND, C-MOVE and C-GET: hexadecimal, name and advice (PS3.4 C.4, PS3.7 Annex C).

Error comments are not repeated, because a server may name a patient in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

SUCCESS: Final = 0x0000
PENDING: Final = 0xFF00
PENDING_WITHOUT_KEYS: Final = 0xFF01
CANCELLED: Final = 0xFE00
OUT_OF_RESOURCES: Final = 0xA700
CANNOT_PERFORM: Final = 0xA702
SOME_FAILED: Final = 0xB000


@dataclass(frozen=True, slots=True)
class StatusMeaning:
    """The name and the remedy of a status. `is_final`: no other series would fare better."""

    name: str
    advice: str
    is_final: bool = False


_MEANINGS: Final[Sequence[tuple[range, StatusMeaning]]] = (
    (range(0x0001), StatusMeaning("success", "")),
    (
        range(0x0122, 0x0123),
        StatusMeaning("SOP Class not supported", "enable query and retrieve there", is_final=True),
    ),
    (
        range(0x0124, 0x0125),
        StatusMeaning("not authorised", "let our AE Title query and retrieve there", is_final=True),
    ),
    (
        range(0x0211, 0x0212),
        StatusMeaning(
            "unrecognised operation",
            "does it offer this service? try the other kind",
            is_final=True,
        ),
    ),
    (range(0x0213, 0x0214), StatusMeaning("resource limitation", "it may be overloaded")),
    (
        range(0xA700, 0xA701),
        StatusMeaning("out of resources", "the query may be too broad for it"),
    ),
    (
        range(0xA701, 0xA702),
        StatusMeaning("out of resources, cannot count the matches", "see its log"),
    ),
    (
        range(0xA702, 0xA703),
        StatusMeaning(
            "cannot perform the sub-operations",
            "can it reach our listener, and is our disk not full? it may also refuse the class",
        ),
    ),
    (
        range(0xA801, 0xA802),
        StatusMeaning(
            "move destination unknown",
            "register our Move Destination (move_ae_title) there, with our host and port",
            is_final=True,
        ),
    ),
    (
        range(0xA900, 0xA901),
        StatusMeaning("identifier does not match the SOP Class", "see its log"),
    ),
    (
        range(0xB000, 0xB001),
        StatusMeaning("some sub-operations failed", "the missing images are asked for again"),
    ),
    (
        range(0xC000, 0xD000),
        StatusMeaning(
            "unable to process", "see its log; is the study still there, can it reach our listener?"
        ),
    ),
    (range(0xFE00, 0xFE01), StatusMeaning("cancelled", "it ended the operation by itself")),
)
_UNKNOWN: Final = StatusMeaning("a status that PS3.4 C.4 does not name", "see its log")


def hexadecimal(status: int) -> str:
    """Return a status as people write it: C000."""
    return f"{status:04X}"


def meaning_of(status: int) -> StatusMeaning:
    """Return the meaning of a status."""
    return next((item for codes, item in _MEANINGS if status in codes), _UNKNOWN)


def status_text(status: int) -> str:
    """Return the status in words: `C000, unable to process; see its log`."""
    found = meaning_of(status)
    advice = f"; {found.advice}" if found.advice else ""
    return f"{hexadecimal(status)}, {found.name}{advice}"


def is_pending(status: int) -> bool:
    """Whether more responses follow."""
    return status in (PENDING, PENDING_WITHOUT_KEYS)
