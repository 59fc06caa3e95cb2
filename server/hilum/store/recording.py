"""`record`: arrivals become rows, in one transaction. Idempotent: recording a file twice changes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, and_, bindparam, insert, select, update

from hilum.domain import ConflictState, Instance, Lane, ReadingState, Reason, StudyState
from hilum.store import codec, expiring, rejecting
from hilum.store.archive import quarantine_path
from hilum.store.schema import conflict, instance, reading, study

_SUPERSEDED_SECONDS = 3600.0
# Statements are built once (see `queues`); an UPDATE sets the columns that its parameters name.
_KNOWN_INSTANCE = select(instance).where(instance.c.sop_instance_uid == bindparam("uid")).with_for_update()
_NEW_STUDY, _NEW_READING = insert(study), insert(reading)
_NEW_INSTANCE = insert(instance).returning(instance.c.id)
_KNOWN_STUDY = select(study).where(study.c.study_instance_uid == bindparam("uid")).with_for_update()
_GROW_STUDY = (
    update(study)
    .where(study.c.id == bindparam("row"))
    .values(revision=study.c.revision + 1, open_readings=study.c.open_readings + bindparam("more"))
)


class RecordOutcome(StrEnum):
    """What became of an arrival (promise 2)."""

    NEW = "new"
    DUPLICATE = "duplicate"
    HEADER_REVISION = "header_revision"
    CONFLICT = "conflict"
    RESTORED = "restored"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A durable file that has no row yet, and what shall happen with it. The instance's `path` is where the file will lie."""

    instance: Instance
    lane: Lane
    releases: tuple[str, ...]
    quiet_seconds: float
    maximum_wait_seconds: float


def record(connection: Connection, arrivals: Sequence[Arrival], now: float) -> list[RecordOutcome]:
    """Rows for all arrivals, in their order."""
    return [_record_one(connection, arrival, now) for arrival in arrivals]


def _record_one(connection: Connection, arrival: Arrival, now: float) -> RecordOutcome:
    new = arrival.instance
    known = connection.execute(_KNOWN_INSTANCE, {"uid": new.sop_instance_uid}).first()
    if known is None:
        _insert_instance(connection, arrival, now)
        return RecordOutcome.NEW
    if known.digest == new.digest:
        if known.pixels_removed_at is not None:
            _restore_pixels(connection, known, new)
            return RecordOutcome.RESTORED
        # Recorded again after a crash, the file is the row's own: it must be settled, not deleted.
        return RecordOutcome.NEW if known.path == new.path else RecordOutcome.DUPLICATE
    if _is_header_revision(known, new):
        _revise_header(connection, known, new, now)
        _touch_study(connection, arrival, now, new_readings=0 if known.is_removed else _read_again(connection, known.id, now))
        return RecordOutcome.HEADER_REVISION
    return RecordOutcome.CONFLICT if _keep_conflict(connection, new) else RecordOutcome.DUPLICATE


def _is_header_revision(known: Row[Any], new: Instance) -> bool:
    """Same pixels in the same study. Another study under the same SOP Instance UID is a conflict, never a silent move."""
    return bool(known.pixel_digest == new.pixel_digest and known.study_instance_uid == new.study_instance_uid)


def _insert_instance(connection: Connection, arrival: Arrival, now: float) -> None:
    removal = rejecting.removal_of(connection, arrival.instance)
    values = {**codec.instance_values(arrival.instance), "is_removed": removal is not None, "removal_reason": removal}
    (instance_id,) = connection.execute(_NEW_INSTANCE, values).one()
    _touch_study(connection, arrival, now, new_readings=len(arrival.releases) if removal is None else 0)
    rejected = {"state": ReadingState.NOT_ANALYSED, "reason": Reason.REJECTED, "finished_at": now}
    common = {
        "instance_id": instance_id,
        "study_instance_uid": arrival.instance.study_instance_uid,
        "lane": arrival.lane,
        "due_at": now,
        **({"state": ReadingState.DUE} if removal is None else rejected),
    }
    if arrival.releases:
        connection.execute(_NEW_READING, [{**common, "release": release} for release in arrival.releases])


def _revise_header(connection: Connection, known: Row[Any], new: Instance, now: float) -> None:
    values = codec.instance_values(dataclasses.replace(new, header_revision=known.header_revision + 1))
    del values["sop_instance_uid"]
    connection.execute(update(instance).where(instance.c.id == known.id).values(values))
    if known.pixels_removed_at is None and known.path != new.path:
        # Not at once: an analyser may be reading it.
        expiring.expire(connection, known.path, "superseded", now + _SUPERSEDED_SECONDS, known.id)


def _read_again(connection: Connection, instance_id: int, now: float) -> int:
    """A corrected header may change what the pixels mean (Photometric Interpretation, view, age); how many readings that re-opens."""
    of_instance = reading.c.instance_id == instance_id
    fresh = dict.fromkeys(("lease_token", "leased_until", "reason", "detail", "finished_at", "logits", "cam", "view", "timings"))
    due = {"state": ReadingState.DUE, "due_at": now, "attempts": 0, "lapses": 0, **fresh}
    # One in progress read the old header: without its lease it cannot write.
    connection.execute(update(reading).where(of_instance, reading.c.state == ReadingState.LEASED).values(due))
    ended = (ReadingState.ANALYSED, ReadingState.NOT_ANALYSED, ReadingState.FAILED)
    return connection.execute(update(reading).where(of_instance, reading.c.state.in_(ended)).values(due)).rowcount


def _restore_pixels(connection: Connection, known: Row[Any], new: Instance) -> None:
    """Retention had removed the pixels and the sender sends them again: they are kept as long as those of a new image."""
    values = {"path": new.path, "size_bytes": new.size_bytes, "received_at": new.received_at, "pixels_removed_at": None}
    connection.execute(update(instance).where(instance.c.id == known.id).values(values))
    expiring.keep(connection, new.path)


def _keep_conflict(connection: Connection, new: Instance) -> bool:
    """Whether this file is the one that the conflict's row names; the same bytes sent once more are not.

    What a person has discarded, or kept out, stays so however often it is sent.
    """
    held = dataclasses.replace(new, path=quarantine_path(new.path))
    same = and_(conflict.c.sop_instance_uid == new.sop_instance_uid, conflict.c.digest == new.digest)
    if (row := connection.execute(select(conflict.c.path, conflict.c.state).where(same)).first()) is not None:
        return bool(row.path == held.path and row.state != ConflictState.DISCARDED)
    names = ("sop_instance_uid", "path", "size_bytes", "digest", "received_at", "calling_ae_title")
    connection.execute(insert(conflict).values({**{name: getattr(held, name) for name in names}, "state": ConflictState.HELD}))
    return True


def _touch_study(connection: Connection, arrival: Arrival, now: float, new_readings: int) -> None:
    """Open the study, or prolong its quiet period. Clearing the lease fences out an assembler that saw the study without this image."""
    uid = arrival.instance.study_instance_uid
    row = connection.execute(_KNOWN_STUDY, {"uid": uid}).first()
    is_collecting = row is not None and row.state in (StudyState.DUE, StudyState.LEASED)
    since = row.collecting_since if row is not None and is_collecting else now
    quiet_until = max(now, min(now + arrival.quiet_seconds, since + arrival.maximum_wait_seconds))
    fresh = {
        "state": StudyState.DUE,
        "collecting_since": since,
        "quiet_until": quiet_until,
        "due_at": quiet_until,
        "last_received_at": max(arrival.instance.received_at, row.last_received_at) if row else arrival.instance.received_at,
        "attempts": 0,
        "lapses": 0,
        "lease_token": None,
        "leased_until": None,
        "finished_at": None,
        "reason": None,
        "detail": None,
    }
    if row is None:
        connection.execute(_NEW_STUDY, {**fresh, **_first_values(arrival), "open_readings": new_readings})
        return
    connection.execute(_GROW_STUDY, {**fresh, "row": row.id, "more": new_readings, "lane": min(arrival.lane, row.lane)})


def _first_values(arrival: Arrival) -> dict[str, Any]:
    return {
        "study_instance_uid": arrival.instance.study_instance_uid,
        "revision": 1,
        "lane": arrival.lane,
        "first_received_at": arrival.instance.received_at,
        "calling_ae_title": arrival.instance.calling_ae_title,
        "called_ae_title": arrival.instance.called_ae_title,
        "peer_address": arrival.instance.peer_address,
    }
