"""Clients of sources under test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hilum.retrieve.dicomweb.client import DicomwebClient
from hilum.settings import DicomwebSource


@contextlib.contextmanager
def web_client(url: str, **settings: Any) -> Iterator[DicomwebClient]:
    """A client of a DICOMweb server at `url`, or at the url among the settings."""
    values = {"url": url, "timeout_seconds": 20.0, **settings}
    client = DicomwebClient(DicomwebSource.model_validate(values))
    try:
        yield client
    finally:
        client.close()
