"""User Information (PS3.7 D.3.3) as peers write it: none of it ends an association with DCMTK."""

from __future__ import annotations

import struct

from tests.support.peers.wire import item

CLASS_UID, VERSION_NAME, MAXIMUM = (
    item(0x52, b"1.2.3.4"),
    item(0x55, b"PACS_1"),
    item(0x51, struct.pack(">L", 4096)),
)

ODD_USER_INFORMATION = {
    "a version name of 17 characters": MAXIMUM + CLASS_UID + item(0x55, b"OFFIS_DCMTK_36812"),
    "a version name of 64 characters": MAXIMUM + CLASS_UID + item(0x55, b"V" * 64),
    "a version name padded with NUL": MAXIMUM + CLASS_UID + item(0x55, b"PACS\0\0\0\0"),
    "a version name padded with spaces": MAXIMUM + CLASS_UID + item(0x55, b"PACS".ljust(16)),
    "a version name of spaces": MAXIMUM + CLASS_UID + item(0x55, b" " * 16),
    "a version name in Latin-1": MAXIMUM + CLASS_UID + item(0x55, "Röntgen 2".encode("latin-1")),
    "a version name with a backslash": MAXIMUM + CLASS_UID + item(0x55, b"PACS\\1"),
    "an empty version name": MAXIMUM + CLASS_UID + item(0x55, b""),
    "no version name": MAXIMUM + CLASS_UID,
    "two version names": MAXIMUM + CLASS_UID + VERSION_NAME + VERSION_NAME,
    "a class UID padded with NUL": MAXIMUM + item(0x52, b"1.2.3.4\0") + VERSION_NAME,
    "a class UID that is none": MAXIMUM + item(0x52, "Röntgen".encode("latin-1")) + VERSION_NAME,
    "a class UID of 80 characters": MAXIMUM + item(0x52, b"1." * 39 + b"12") + VERSION_NAME,
    "an empty class UID": MAXIMUM + item(0x52, b"") + VERSION_NAME,
    "no class UID": MAXIMUM + VERSION_NAME,
    "an unknown sub-item": MAXIMUM + item(0x5F, b"\xff" * 7) + CLASS_UID,
    "an unknown sub-item before the maximum length": item(0xFE, b"") + MAXIMUM + CLASS_UID,
    "a role of a class UID that is none": MAXIMUM
    + CLASS_UID
    + item(0x54, struct.pack(">H", 3) + b"\xe9\xe9\xe9\1\1"),
    "an extended negotiation that is cut": MAXIMUM + CLASS_UID + item(0x56, b"\0"),
    "a user identity of an unknown type": MAXIMUM + CLASS_UID + item(0x58, b"\x09\0\0\0\0\0"),
    "a sub-item that is longer than all": MAXIMUM
    + CLASS_UID
    + struct.pack(">BxH", 0x55, 400)
    + b"PACS",
}
"""Each says a maximum length of 4096."""
