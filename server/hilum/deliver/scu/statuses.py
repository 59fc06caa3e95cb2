"""The meaning of a C-STORE status for a document.

The Error Comment is not repeated, because a receiver may name a patient in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hilum.deliver.client import ReceiverBusy
from hilum.errors import Refused, Retry

# PS3.7 Annex C.4.2, C.4.3, C.5; PS3.4 Table B.2-1. A warning is a success: the object is stored.
_STORED: Final = frozenset({0x0000, 0x0001, 0x0107, 0x0116})
# Duplicate SOP Instance: our UID stands for these bytes alone. So the receiver has them from an
# attempt whose response was lost.
STORED_BEFORE: Final = 0x0111
_LATER: Final[Sequence[tuple[range, str]]] = (
    (range(0xA700, 0xA800), "it is out of resources; its disk may be full"),
    (range(0xFE00, 0xFE01), "it cancelled the operation"),
    (range(0x0213, 0x0214), "it is short of resources"),
)
# Status, reason, its meaning for any object, and the remedy for a document.
_NEVER: Final[Sequence[tuple[range, str, str, str]]] = (
    (
        range(0xA900, 0xAA00),
        "data_set_refused",
        "the data set does not match its SOP Class there",
        "ask its vendor, with the document",
    ),
    (
        range(0xC000, 0xD000),
        "data_set_refused",
        "it cannot understand the data set",
        "see its log, and whether it takes SR of this kind",
    ),
    (
        range(0x0122, 0x0123),
        "sop_class_refused",
        "it does not support this SOP Class",
        "enable it there",
    ),
    (range(0x0124, 0x0125), "not_authorised", "our AE Title may not store there", "grant it"),
    (
        range(0x0117, 0x0118),
        "data_set_refused",
        "it finds the SOP Instance UID invalid",
        "see its log",
    ),
    (
        range(0x0211, 0x0213),
        "operation_refused",
        "it does not take the operation",
        "is this the storage service?",
    ),
)


def is_stored(status: int) -> bool:
    """Whether the receiver has the object, perhaps with a warning or from an earlier attempt."""
    return status in _STORED or status == STORED_BEFORE or 0xB000 <= status <= 0xBFFF


def cause(status: int) -> tuple[str, bool]:
    """Return the meaning of a failure for any object, and whether it is final."""
    never = next((what for codes, _, what, _ in _NEVER if status in codes), None)
    later = next((what for codes, what in _LATER if status in codes), "its log may say why")
    return never or later, never is not None


def check_status(status: int, peer: str) -> None:
    """Return when the object is stored. Raises Retry or Refused.

    A failure that the standard does not name is tried again.
    """
    if is_stored(status):
        return
    for codes, reason, what, advice in _NEVER:
        if status in codes:
            raise Refused(
                reason,
                f"{peer} answered 0x{status:04X}: {what}; {advice}, then requeue the delivery",
            )
    for codes, what in _LATER:
        if status in codes:
            raise ReceiverBusy(f"{peer} answered 0x{status:04X}: {what}", is_outage=True)
    raise Retry(f"{peer} answered 0x{status:04X}; its log may say why")
