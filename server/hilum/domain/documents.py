"""Encoded reports, before and after they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Document:
    """The encoded bytes of one report. They are sent as they are, never built again."""

    kind: str
    media_type: str
    content: bytes
    sop_class_uid: str | None = None
    sop_instance_uid: str | None = None
    series_instance_uid: str | None = None
    predecessor_uid: str | None = None
    result_id: int = 0
    id: int = 0


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document to store, where it shall go, and which destinations are withheld from it for what reason (never silently)."""

    document: Document
    destinations: tuple[str, ...]
    withheld: Mapping[str, str] = field(default_factory=dict)
