"""Claims of readings on an empty and on a full ledger, in turns, by the ledger's own verb.

Each is timed by the wall clock and by the CPU clocks of both ends. Each turn makes one study of images due, claims them part by part, and ends them. Only the claims
are timed; ends and new rows are not.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Engine, insert

from hilum.domain import Advance, Priority, ReadingState
from hilum.store.database.engines import open_engine
from hilum.store.ledger import Ledger
from hilum.store.schema.tables import instance, reading, study
from load_tests.ledger.backends import Clocks, client_backends
from load_tests.ledger.fill import RELEASE

AT_ONCE: Final = 8  # as an analyser claims
_LEASE_SECONDS: Final = 60.0
_ANALYSED: Final = Advance(ReadingState.ANALYSED, {"logits": [0.5]})


@dataclass
class Side:
    """One ledger, and milliseconds of each claim by both clocks."""

    ledger: Ledger
    engine: Engine
    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, url: str) -> Side:
        """Open a ledger, without figures yet."""
        return cls(Ledger(url), open_engine(url))

    def close(self) -> None:
        """Give the connections back."""
        self.ledger.close()
        self.engine.dispose()


def claims_in_turns(empty: str, full: str, claims: int, warm_up: int = 20) -> tuple[Side, Side]:
    """Claim on both ledgers by turns, `claims` times on each."""
    sides = (Side.of(empty), Side.of(full))
    try:
        for number in range(claims + warm_up):
            for side in sides if number % 2 else reversed(sides):
                wall_ms, cpu_ms = _claim_once(side)
                if number >= warm_up:
                    side.wall_ms.append(wall_ms)
                    side.cpu_ms.append(cpu_ms)
    finally:
        for side in sides:
            side.close()
    return sides


def _claim_once(side: Side) -> tuple[float, float]:
    """Milliseconds of one claim by the wall clock, and of CPU of this thread and the sessions."""
    make_due(side.engine, AT_ONCE)
    sessions = client_backends(side.engine)
    clocks = Clocks(sessions)
    jobs = side.ledger.claim("analyse", AT_ONCE, "bench", _LEASE_SECONDS)
    taken = clocks.passed()
    if len(jobs) != AT_ONCE:
        raise RuntimeError(f"{len(jobs)} readings were claimed instead of {AT_ONCE}")
    side.ledger.advance("analyse", [(job.lease, _ANALYSED) for job in jobs])
    return taken


def make_due(engine: Engine, images: int) -> str:
    """Insert one study with due readings, and return its Study Instance UID."""
    uid = f"2.25.{uuid.uuid4().int}"
    now = time.time()
    with engine.begin() as connection:
        connection.execute(insert(study).values(_study(uid, images, now)))
        rows = [_instance(uid, now) for _ in range(images)]
        ids = connection.execute(insert(instance).returning(instance.c.id), rows).scalars().all()
        connection.execute(insert(reading), [_reading(uid, row_id, now) for row_id in ids])
    return uid


def _study(uid: str, images: int, now: float) -> dict[str, Any]:
    moments = ("quiet_until", "collecting_since", "first_received_at", "last_received_at", "due_at")
    return {
        "study_instance_uid": uid,
        "revision": images,
        "open_readings": images,
        "calling_ae_title": "BENCH",
        "called_ae_title": "HILUM",
        "state": "due",
        "priority": Priority.LIVE.value,
        **dict.fromkeys(moments, now),
    }


def _instance(uid: str, now: float) -> dict[str, Any]:
    name = uuid.uuid4()
    return {
        "sop_instance_uid": f"2.25.{name.int}",
        "sop_class_uid": "1.2.840.10008.5.1.4.1.1.1.1",
        "study_instance_uid": uid,
        "series_instance_uid": f"{uid}.1",
        "transfer_syntax_uid": "1.2.840.10008.1.2.1",
        "path": f"ab/cd/{name.hex}.dcm",
        "size_bytes": 10_000_000,
        "digest": name.hex,
        "pixel_digest": name.hex,
        "received_at": now,
        "calling_ae_title": "BENCH",
        "called_ae_title": "HILUM",
        "header": name.bytes * 20,
    }


def _reading(uid: str, instance_id: int, now: float) -> dict[str, Any]:
    return {
        "instance_id": instance_id,
        "study_instance_uid": uid,
        "release": RELEASE,
        "state": "due",
        "priority": Priority.LIVE.value,
        "due_at": now,
    }
