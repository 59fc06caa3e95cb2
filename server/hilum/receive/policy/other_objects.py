"""Objects that are no images (reports of others, key objects, presentation states, PDF).

They are acknowledged and discarded. If one is refused, some archives give up the whole study that
it comes with. Images of other kinds are refused nevertheless: after Success a sender would believe
that they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydicom.uid import (
    UID,
    AllTransferSyntaxes,
    EnhancedUSVolumeStorage,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
)

from hilum.dicom.uid import is_like_uid
from hilum.domain import TRANSFER_SYNTAXES
from hilum.observability import telemetry
from hilum.receive.sinks import PiecewiseSink, StoreOutcome

_STANDARD: Final = "1.2.840.10008."
_COMPOSITE: Final = "1.2.840.10008.5.1.4.1.1."  # Storage Service Class, PS3.4 B.5
_INFORMATION_OBJECTS: Final = "1.2.840.10008.5.1.4."
_IMAGES_BY_ANOTHER_NAME: Final = frozenset({str(EnhancedUSVolumeStorage)})
_NATIVE = ExplicitVRLittleEndian, ImplicitVRLittleEndian, ExplicitVRBigEndian
TRANSFER_SYNTAXES_OF_OTHERS: Final[tuple[str, ...]] = tuple(
    dict.fromkeys(
        str(syntax) for syntax in (*_NATIVE, *TRANSFER_SYNTAXES.values(), *AllTransferSyntaxes)
    )
)
"""In order of preference: nothing is decoded, so any will do."""


def is_other(sop_class_uid: str) -> bool:
    """Return whether objects of this class are no images, or may be none.

    The content of a private class, and of one newer than our table, is unknown.
    """
    if not is_like_uid(sop_class_uid) or is_image(sop_class_uid):
        return False
    if not sop_class_uid.startswith(_STANDARD) or sop_class_uid.startswith(_COMPOSITE):
        return True
    return sop_class_uid.startswith(_INFORMATION_OBJECTS) and UID(sop_class_uid).name.endswith(
        " Storage"
    )


def is_image(sop_class_uid: str) -> bool:
    """Return whether the standard calls it an image, read by us or not."""
    return sop_class_uid in _IMAGES_BY_ANOTHER_NAME or " Image " in UID(sop_class_uid).name


def is_known(sop_class_uid: str) -> bool:
    """Return whether the standard defines the class."""
    return UID(sop_class_uid).name != sop_class_uid


class OtherObject(PiecewiseSink):
    """An object that is acknowledged and discarded."""

    def write(self, _pieces: Sequence[memoryview]) -> None:
        """Ignore the bytes."""

    def commit(self) -> StoreOutcome:
        """Count the object here; images are counted when they have their rows."""
        telemetry.INSTANCES_RECEIVED.labels(outcome=StoreOutcome.OTHER_OBJECT.value).inc()
        return StoreOutcome.OTHER_OBJECT

    def close(self) -> None:
        """Do nothing: nothing is open."""
