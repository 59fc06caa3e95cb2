"""`record`: arrivals become rows, in one transaction. Idempotent: recording a file twice changes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, and_, bindparam, insert, select, update

from hilum.domain import ConflictState, Instance, ReadingState
from hilum.store import codec, comparing, expiring, newcomers
from hilum.store.archive import quarantine_path
from hilum.store.arrival import Arrival
from hilum.store.growing import Growth, grow
from hilum.store.schema import conflict, instance, reading

_SUPERSEDED_SECONDS = 3600.0
_SAID = ("lease_token", "leased_until", "reason", "detail", "finished_at", "logits", "member_logits", "cam", "view", "timings")
# Statements are built once (see `queues`); an UPDATE sets the columns that its parameters name.
_KNOWN_INSTANCE = select(instance).where(instance.c.sop_instance_uid == bindparam("uid")).with_for_update()


class RecordOutcome(StrEnum):
    """What became of an arrival (promise 2)."""

    NEW = "new"
    DUPLICATE = "duplicate"
    HEADER_REVISION = "header_revision"
    CONFLICT = "conflict"
    RESTORED = "restored"


def record(connection: Connection, arrivals: Sequence[Arrival], now: float) -> list[RecordOutcome]:
    """Rows for all arrivals; what became of each, in their order. Those of unknown images are written together, the others after them."""
    new = newcomers.find(connection, arrivals)
    if new:
        newcomers.insert_all(connection, list(new.values()), now)
    return [RecordOutcome.NEW if position in new else _record_known(connection, arrival, now) for position, arrival in enumerate(arrivals)]


def _record_known(connection: Connection, arrival: Arrival, now: float) -> RecordOutcome:
    new = arrival.instance
    known = connection.execute(_KNOWN_INSTANCE, {"uid": new.sop_instance_uid}).one()
    if known.digest == new.digest:
        if known.pixels_removed_at is not None:
            _restore_pixels(connection, known, new)
            return RecordOutcome.RESTORED
        # Recorded again after a crash, the file is the row's own: it must be settled, not deleted.
        return RecordOutcome.NEW if known.path == new.path else RecordOutcome.DUPLICATE
    if _is_header_revision(known, new):
        _revise_header(connection, known, new, now)
        again = 0 if known.is_removed else _read_again(connection, known, now)
        grow(connection, {new.study_instance_uid: Growth([arrival], again)}, now)
        return RecordOutcome.HEADER_REVISION
    return RecordOutcome.CONFLICT if _keep_conflict(connection, new) else RecordOutcome.DUPLICATE


def _is_header_revision(known: Row[Any], new: Instance) -> bool:
    """Same pixels in the same study. Another study under the same SOP Instance UID is a conflict, never a silent move."""
    return bool(known.pixel_digest == new.pixel_digest and known.study_instance_uid == new.study_instance_uid)


def _revise_header(connection: Connection, known: Row[Any], new: Instance, now: float) -> None:
    values = codec.instance_values(dataclasses.replace(new, header_revision=known.header_revision + 1))
    del values["sop_instance_uid"]
    connection.execute(update(instance).where(instance.c.id == known.id).values(values))
    if known.pixels_removed_at is None and known.path != new.path:
        # Not at once: an analyser may be reading it.
        expiring.expire(connection, known.path, "superseded", now + _SUPERSEDED_SECONDS, known.id)


def _read_again(connection: Connection, known: Row[Any], now: float) -> int:
    """A corrected header may change what the pixels mean (Photometric Interpretation, view, age).

    How many readings that opens again for which the study waits.
    """
    of_instance = reading.c.instance_id == known.id
    due = {"state": ReadingState.DUE, "due_at": now, "attempts": 0, "lapses": 0, **dict.fromkeys(_SAID)}
    # One in progress read the old header: without its lease it cannot write.
    connection.execute(update(reading).where(of_instance, reading.c.state == ReadingState.LEASED).values(due))
    ended = (ReadingState.ANALYSED, ReadingState.NOT_ANALYSED, ReadingState.FAILED)
    again = update(reading).where(of_instance, reading.c.state.in_(ended)).values(due)
    opened = connection.execute(again.returning(reading.c.release, reading.c.is_shadow)).all()
    if shadows := [row.release for row in opened if row.is_shadow]:
        comparing.reopen(connection, known.study_instance_uid, now, shadows)
    return len(opened) - len(shadows)


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
