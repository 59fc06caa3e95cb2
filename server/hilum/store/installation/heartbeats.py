"""Heartbeats of processes; those of supervisors carry facts of their hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, Row, func, select

from hilum.domain import Host, HostFacts
from hilum.store.schema.tables import process

_SUPERVISOR: Final = "supervisor"
# Heartbeats of one host come from one clock: those of a dead process are older by more.
_TOGETHER_SECONDS: Final = 15.0
# Named, so that a ledger of an earlier revision can be read.
_SHOWN: Final = (
    process.c.name,
    process.c.role,
    process.c.host,
    process.c.pid,
    process.c.started_at,
    process.c.beat_at,
    process.c.is_ready,
    process.c.detail,
)


def processes(connection: Connection, now: float) -> list[dict[str, Any]]:
    """Heartbeats, by name; `age_seconds` is the time since the last."""
    rows = connection.execute(select(*_SHOWN).order_by(process.c.name))
    return [{**row._asdict(), "age_seconds": max(0.0, now - row.beat_at)} for row in rows]


def newest(connection: Connection) -> float:
    """Return the moment of the newest heartbeat; 0: there is none."""
    return float(connection.execute(select(func.max(process.c.beat_at))).scalar() or 0.0)


def hosts(connection: Connection, now: float) -> list[Host]:
    """Servers with a heartbeat, by host.

    `now`: by the clock that all hosts share. The error of a host's own clock is taken off.
    """
    rows = connection.execute(select(process).order_by(process.c.name)).all()
    children = [row for row in rows if row.role != _SUPERVISOR]
    return [_host(row, children, now) for row in rows if row.role == _SUPERVISOR and row.facts]


def _host(row: Row[Any], children: Sequence[Row[Any]], now: float) -> Host:
    facts = HostFacts.load(row.facts)
    error = facts.clock_offset_seconds or 0.0
    found = Host(
        name=row.name,
        host=row.host,
        pid=row.pid,
        started_at=row.started_at,
        beat_at=row.beat_at,
        age_seconds=max(0.0, now - (row.beat_at - error)),
        facts=facts,
        is_alone=row.is_ready,
    )
    own = [
        child
        for child in children
        if child.host == row.host and abs(row.beat_at - child.beat_at) < _TOGETHER_SECONDS
    ]
    return replace(
        found,
        processes=dict(Counter(child.role for child in own)),
        ready=dict(Counter(child.role for child in own if child.is_ready)),
    )
