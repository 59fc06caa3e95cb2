"""What both sides of an association say of themselves (PS3.7 D.3.3), as pynetdicom's PDU classes take it."""

from __future__ import annotations

from typing import Any, Final

from pydicom.uid import UID
from pynetdicom.pdu_primitives import (
    ImplementationClassUIDNotification,
    ImplementationVersionNameNotification,
    MaximumLengthNotification,
)

from hilum import IMPLEMENTATION_CLASS_UID, IMPLEMENTATION_VERSION_NAME

APPLICATION_CONTEXT: Final = UID("1.2.840.10008.3.1.1.1")  # PS3.7 A.2.1


def user_information(maximum_pdu_bytes: int) -> list[Any]:
    """`maximum_pdu_bytes`: of a PDU that we take."""
    length = MaximumLengthNotification()
    implementation = ImplementationClassUIDNotification()
    version = ImplementationVersionNameNotification()
    length.maximum_length_received = maximum_pdu_bytes
    implementation.implementation_class_uid = IMPLEMENTATION_CLASS_UID
    version.implementation_version_name = IMPLEMENTATION_VERSION_NAME
    return [length, implementation, version]
