"""Migration of a ledger, only while no server works with it; and waiting for one.

A server of the version before would continue, but none of its processes could start again.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from typing import Any, TypeVar

from hilum.errors import NotYet
from hilum.services.launch_spec import is_ours
from hilum.services.state_dir import is_held
from hilum.settings import Settings
from hilum.store.migrations.migrate import migrate
from hilum.store.migrations.revision import REVISION, require_not_newer
from hilum.store.queries.views import LedgerViews

_SILENT_SECONDS = 10.0  # three heartbeats
_PAUSE_SECONDS = 2.0  # between two attempts
_SAID_SECONDS = 30.0  # between two messages with the same text

T = TypeVar("T")


def until_done(
    attempt: Callable[[], T],
    seconds: float,
    say: Callable[[str], None],
    kind: type[NotYet] = NotYet,
) -> T:
    """Return the result of `attempt`, which is repeated while it raises `kind`.

    `seconds`: so long after the first attempt its error is raised. `say` gets a problem when it is
    new, and again every half minute.
    """
    began: float | None = None
    said = ""
    said_at = 0.0
    while True:
        try:
            return attempt()
        except kind as error:
            now = time.monotonic()
            began = now if began is None else began
            if now - began >= seconds:
                raise
            problem = " ".join(error.problems)
            if problem != said or now - said_at >= _SAID_SECONDS:
                say(problem)
                said = problem
                said_at = now
        time.sleep(_PAUSE_SECONDS)


def migrate_at_rest(settings: Settings, role: str | None = None) -> str:
    """Return the ledger's revision after `migrate`.

    `role`: of the server that calls, which holds the state folder itself. Raises
    ConfigurationError, as `migrate`, and NotYet where a server would have to be stopped before.
    """
    found = require_not_newer(settings.ledger_url)
    if found not in (None, REVISION):
        _require_rest(settings, found, role)
    return migrate(settings.ledger_url)


def _require_rest(settings: Settings, found: str | None, role: str | None) -> None:
    if at_work := (
        [str(settings.site.state_dir)] if is_held(settings, role) else _alive(settings.ledger_url)
    ):
        problem = (
            f"ledger: a server works with it ({', '.join(at_work)}) at revision {found}, and could"
            f" not go on at {REVISION}."
        )
        raise NotYet(
            [
                (
                    f"{problem} Stop each `hilum serve` of it first; one that was killed is gone"
                    " ten seconds later."
                )
            ]
        )


def _alive(url: str) -> list[str]:
    """Return names of processes with a recent heartbeat, on any host.

    Supervisors are left out, because they write no end.
    """
    with contextlib.closing(LedgerViews(url)) as views:
        return [
            str(item["name"])
            for item in views.processes()
            if item["role"] != "supervisor" and _is_alive(item)
        ]


def _is_alive(item: dict[str, Any]) -> bool:
    """Return whether a process is alive.

    A heartbeat in the future, left by a clock that was set back, does not count (see
    `Ledger.silent`).
    """
    is_gone = item["host"] == socket.gethostname() and not is_ours(item["pid"])
    return abs(time.time() - item["beat_at"]) < _SILENT_SECONDS and not is_gone
