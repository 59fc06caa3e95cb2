"""Validate Bundles by fhir.resources, in the Python of .venv/peers.

Reads a JSON array of resources, and writes an array: what is wrong with each, empty for nothing.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from fhir.resources.R4B.bundle import Bundle
from pydantic import ValidationError


def problem(resource: Any) -> str:
    """Return what is wrong; empty: nothing."""
    try:
        Bundle.model_validate(resource)
    except ValidationError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    json.dump([problem(item) for item in json.load(sys.stdin)], sys.stdout)
