"""Objects that are no images (reports of others, key objects, presentation states, PDF), let go.

To refuse one makes some archives give up the whole study that it comes with. Images of other kinds
are refused all the same: a sender that hears Success would believe that they are read.
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

from hilum import telemetry
from hilum.domain import TRANSFER_SYNTAXES
from hilum.receive.header import is_like_uid
from hilum.receive.taking import PiecesOnly, Taken

_STANDARD: Final = "1.2.840.10008."
_COMPOSITE: Final = "1.2.840.10008.5.1.4.1.1."  # Storage Service Class, PS3.4 B.5
_INFORMATION_OBJECTS: Final = "1.2.840.10008.5.1.4."
_IMAGES_BY_ANOTHER_NAME: Final = frozenset({str(EnhancedUSVolumeStorage)})
_NATIVE = ExplicitVRLittleEndian, ImplicitVRLittleEndian, ExplicitVRBigEndian
TRANSFER_SYNTAXES_OF_OTHERS: Final[tuple[str, ...]] = tuple(
    dict.fromkeys(str(syntax) for syntax in (*_NATIVE, *TRANSFER_SYNTAXES.values(), *AllTransferSyntaxes))
)
"""In order of preference: nothing is decoded, so any will do."""


def is_other(sop_class_uid: str) -> bool:
    """Whether objects of this class are no images, or may be none.

    Of a private class, and of one that is newer than our table, nobody knows.
    """
    if not is_like_uid(sop_class_uid) or is_image(sop_class_uid):
        return False
    if not sop_class_uid.startswith(_STANDARD) or sop_class_uid.startswith(_COMPOSITE):
        return True
    return sop_class_uid.startswith(_INFORMATION_OBJECTS) and UID(sop_class_uid).name.endswith(" Storage")


def is_image(sop_class_uid: str) -> bool:
    """Whether the standard calls it an image, whether we read it or not."""
    return sop_class_uid in _IMAGES_BY_ANOTHER_NAME or " Image " in UID(sop_class_uid).name


def is_known(sop_class_uid: str) -> bool:
    """Whether the standard says what it is."""
    return UID(sop_class_uid).name != sop_class_uid


class OtherObject(PiecesOnly):
    """Acknowledged and let go."""

    def write(self, _pieces: Sequence[memoryview]) -> None:
        """Not looked at."""

    def commit(self) -> Taken:
        """Counted here; images are counted when they have their rows."""
        telemetry.INSTANCES_RECEIVED.labels(outcome=Taken.OTHER_OBJECT.value).inc()
        return Taken.OTHER_OBJECT

    def close(self) -> None:
        """There is nothing."""
