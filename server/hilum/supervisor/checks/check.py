"""The result of a check, and functions that checks share."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy.exc import DatabaseError

from hilum.errors import ConfigurationError
from hilum.store.database.engines import DAMAGED, RESTORE, is_damaged

_CONNECT_SECONDS = 3.0
AS_SERVER = "Do this as the user of the server, as in `sudo -u hilum hilum check`"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    ok: bool
    detail: str
    advice: str = ""


def accepts(host: str, port: int) -> bool:
    """Return whether a program accepts TCP connections there."""
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_SECONDS):
            return True
    except OSError:
        return False


def unless_refused(name: str, checks: Iterator[Check]) -> Iterator[Check]:
    """Return all checks, or those up to the first that fails to run, with its cause."""
    try:
        yield from checks
    except ConfigurationError as error:
        yield Check(name, ok=False, detail="; ".join(error.problems))
    except DatabaseError as error:
        if not is_damaged(error):
            raise
        yield Check(name, ok=False, detail=DAMAGED, advice=RESTORE)
    except OSError as error:
        advice = (
            f"{AS_SERVER}, or let this user look there."
            if isinstance(error, PermissionError)
            else "See what is wrong there."
        )
        place = f"{error.filename}: " if error.filename else ""
        problem = error.strerror or type(error).__name__
        yield Check(name, ok=False, detail=f"{place}{problem}", advice=advice)
