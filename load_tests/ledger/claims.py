"""Claims of readings on an empty and on a full ledger, in turns, by the ledger's own verb.

Each turn makes one study of images due, claims them part by part, and ends them. Only the claims
are timed; ends and new rows are not.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Engine, insert, text

from hilum.domain import Advance, Priority, ReadingState
from hilum.store.database.engines import open_engine
from hilum.store.ledger import Ledger
from hilum.store.schema.tables import instance, reading, study
from load_tests.ledger.fill import RELEASE

AT_ONCE: Final = 8  # as an analyser claims
_LEASE_SECONDS: Final = 60.0
_ANALYSED: Final = Advance(ReadingState.ANALYSED, {"logits": [0.5]})


@dataclass
class Side:
    """One ledger, and milliseconds of each claim."""

    url: str
    claims: list[float]

    @classmethod
    def of(cls, url: str) -> Side:
        """Begin without figures."""
        return cls(url, [])


def claims_in_turns(empty: str, full: str, claims: int, warm_up: int = 20) -> tuple[Side, Side]:
    """Claim on both ledgers by turns, `claims` times on each."""
    sides = (Side.of(empty), Side.of(full))
    ledgers = [Ledger(side.url) for side in sides]
    engines = [open_engine(side.url) for side in sides]
    try:
        for number in range(claims + warm_up):
            order = (0, 1) if number % 2 else (1, 0)
            for place in order:
                taken = _claim_once(engines[place], ledgers[place])
                if number >= warm_up:
                    sides[place].claims.append(taken)
    finally:
        for ledger in ledgers:
            ledger.close()
        for engine in engines:
            engine.dispose()
    return sides


def _claim_once(engine: Engine, ledger: Ledger) -> float:
    make_due(engine, AT_ONCE)
    began = time.perf_counter()
    jobs = ledger.claim("analyse", AT_ONCE, "bench", _LEASE_SECONDS)
    taken = (time.perf_counter() - began) * 1e3
    if len(jobs) != AT_ONCE:
        raise RuntimeError(f"{len(jobs)} readings were claimed instead of {AT_ONCE}")
    ledger.advance("analyse", [(job.lease, _ANALYSED) for job in jobs])
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


def plans(engine: Engine) -> Iterator[str]:
    """The plans of the claim's statements on this ledger, for a person."""
    queries = (
        "SELECT * FROM reading WHERE state = 'due' AND due_at <= 2e9"
        " ORDER BY priority, due_at, id LIMIT 8 FOR UPDATE SKIP LOCKED",
    )
    with engine.connect() as connection:
        for query in queries:
            yield from connection.execute(text(f"EXPLAIN (ANALYZE, BUFFERS) {query}")).scalars()
