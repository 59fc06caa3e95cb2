"""The record of an association."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AssociationRecord:
    """An association's or a STOW-RS request's sender, objects, refusals and advice.

    `count`: so many of a kind, on which nothing was stored, from the same sender within a minute;
    `ended_at` is the last one's.
    """

    started_at: float
    ended_at: float
    peer_address: str
    calling_ae_title: str
    called_ae_title: str
    outcome: str
    reason: str | None
    stored: int
    refused: int
    advice: str | None
    own_documents: int = 0
    count: int = 1
