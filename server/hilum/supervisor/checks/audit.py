"""Whether the syslog collector gets the audit: its files can be read, and no row waits long."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Final

from hilum.audit.message import AuditSource
from hilum.audit.syslog import Collector
from hilum.settings import Settings
from hilum.store.admin.audit_cursors import AuditCursors
from hilum.supervisor.checks.check import Check
from hilum.supervisor.checks.peers import tls_files

_NAME: Final = "audit collector"
_LONG_SECONDS: Final = 600.0


def collector_files(settings: Settings) -> Iterator[Check]:
    """Check the collector's files. Raises ConfigurationError."""
    if settings.audit.syslog.host:
        Collector(settings.audit.syslog, AuditSource())
        plain = settings.audit.syslog.protocol != "tls"
        advice = (
            'Names and addresses cross the network in clear: set protocol = "tls".' if plain else ""
        )
        detail = (
            f"{settings.audit.syslog.host}:{settings.audit.syslog.port} by"
            f" {settings.audit.syslog.protocol}"
        )
        yield Check(_NAME, ok=True, detail=f"{detail}{'; ' + advice if advice else ''}")
        yield from tls_files(_NAME, "audit.syslog", settings.audit.syslog)


def collector_waits(settings: Settings) -> Iterator[Check]:
    """Check for rows that wait for the collector. Needs a ledger of this revision."""
    if not settings.audit.syslog.host:
        return
    with contextlib.closing(AuditCursors(settings.ledger_url)) as cursors:
        waiting = cursors.waiting("syslog")
    if waiting is None:
        yield Check("audit", ok=True, detail="no server has begun to hand it on")
        return
    seconds = time.time() - waiting.oldest_at if waiting.count else 0.0
    detail = (
        f"{waiting.count} rows wait for the"
        f" collector{f', the oldest for {seconds:.0f} s' if waiting.count else ''}"
    )
    advice = (
        "See `audit_not_forwarded` in the server's log: is the collector there, and [audit.syslog]"
        " right?"
    )
    yield Check("audit", seconds < _LONG_SECONDS, detail, advice)
