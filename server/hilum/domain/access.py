"""Actors, their ways in, and the access tokens that they show."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Channel(StrEnum):
    """The way in by which a verb was asked for."""

    CLI = "cli"
    REST = "rest"
    PAGE = "page"
    DICOM = "dicom"


@dataclass(frozen=True, slots=True)
class Actor:
    """The origin of a verb: the authenticated name, the way in, and the address.

    An empty address is this host.
    """

    name: str
    channel: Channel
    address: str = ""


SERVER: Final = Actor("hilum", Channel.CLI)
"""The server itself: the origin of a verb that no person asked for."""


class Scope(StrEnum):
    """The verbs that a token opens, in rising order: each scope includes those before it."""

    READ = "read"
    OPERATE = "operate"
    ERASE = "erase"

    def includes(self, needed: Scope) -> bool:
        """Return whether this scope includes the other one."""
        rising = list(Scope)
        return rising.index(self) >= rising.index(needed)


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A named token.

    The ledger keeps the digest of its secret alone. Times in seconds since the epoch; None: never.
    """

    name: str
    scope: Scope
    digest: str
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None

    def is_valid(self, now: float) -> bool:
        """Whether it opens anything."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)
