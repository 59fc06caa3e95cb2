"""The roles of one host: all, or some of them. A role is a word of `hilum serve --role`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hilum.errors import ConfigurationError

ALL: Final = "all"
SERVED: Final = ("listener", "analyser", "dispatcher", "api")


def parse(text: str) -> str:
    """Return the roles in their usual order with commas between; all four are `all`.

    Raises ConfigurationError.
    """
    words = [word.strip() for word in text.split(",")]
    if unknown := [word for word in words if word not in {ALL, *SERVED}]:
        shown = " and ".join(repr(word) for word in dict.fromkeys(unknown))
        known = f"{', '.join((ALL, *SERVED[:-1]))} or {SERVED[-1]}"
        raise ConfigurationError(
            [
                (
                    f"unknown role {shown}; use {known}, or several with commas between, as in"
                    " listener,dispatcher"
                )
            ]
        )
    return ALL if ALL in words else joined(words)


def joined(roles: Iterable[str]) -> str:
    """Return some roles as one word."""
    chosen = set(roles)
    return ALL if chosen == set(SERVED) else ",".join(role for role in SERVED if role in chosen)


def of(role: str) -> frozenset[str]:
    """Return the roles of such a word."""
    return frozenset(SERVED if role == ALL else role.split(","))
