"""Settings of Hilum that more than one part asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# An innocent item can meet more than three deaths of its workers when one dies every second.
MANY_LAPSES: Mapping[str, Mapping[str, Any]] = {"pipeline": {"maximum_lapses": 50}}
