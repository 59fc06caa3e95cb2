"""The names of the Storage Commitment Push Model (PS3.4 annex J)."""

from __future__ import annotations

from typing import Final

STORAGE_COMMITMENT: Final = "1.2.840.10008.1.20.1"
WELL_KNOWN_INSTANCE: Final = "1.2.840.10008.1.20.1.1"  # PS3.4 J.3.5
REQUEST_STORAGE_COMMITMENT: Final = 1  # the only action type, PS3.4 Table J.3-1

# Event types, PS3.4 J.3.3
SUCCESSFUL: Final = 1
FAILURES_EXIST: Final = 2
