"""The SOP Classes of structured reports at one destination, from the richest down."""

from __future__ import annotations

from typing import Final

from pydicom.uid import UID

from hilum.deliver.client import SopClassRefused
from hilum.domain import SR_CLASS_PREFERENCE, SrClass
from hilum.settings import ObjectDestination

_ALL: Final = tuple(item.sop_class_uid for item in SR_CLASS_PREFERENCE)


class ClassLadder:
    """The SR classes that may go to a destination, the richest first."""

    def __init__(self, destination: ObjectDestination) -> None:
        self.classes: tuple[SrClass, ...] = tuple(
            item for item in SR_CLASS_PREFERENCE if item.name in destination.sr_classes
        )

    def leaves_out(self, sop_class_uid: str) -> bool:
        """Return whether it is a class of reports that the settings leave out."""
        return sop_class_uid in _ALL and all(
            item.sop_class_uid != sop_class_uid for item in self.classes
        )

    def below(self, sop_class_uid: str) -> tuple[SrClass, ...]:
        """Return the classes that a report of this class can be turned into, the richest first.

        Only classes of this destination count.
        """
        if sop_class_uid not in _ALL:
            return ()
        place = _ALL.index(sop_class_uid)
        return tuple(item for item in self.classes if _ALL.index(item.sop_class_uid) > place)


def instead(receiver: str, sop_class_uid: str, lower: SrClass) -> SopClassRefused:
    """Return the error for a report that the receiver takes in a lower class."""
    return SopClassRefused(
        f"{receiver} does not take {UID(sop_class_uid).name}; the report goes as"
        f" {UID(lower.sop_class_uid).name}",
        lower,
    )
