"""`record`: arrivals become rows, in one transaction.

Idempotent: recording a file twice changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, bindparam, insert, select, update

from hilum.domain import ConflictKind, ConflictState, Instance, ReadingState, ServerReason
from hilum.store.archive.archive import quarantine_path
from hilum.store.intake import new_images, take_over
from hilum.store.intake.new_images import NewImages
from hilum.store.intake.received import Arrival, Compared
from hilum.store.intake.studies import Growth, grow
from hilum.store.queue import comparisons, rejections
from hilum.store.retention import deletions
from hilum.store.schema import codec
from hilum.store.schema.tables import conflict, former_header, instance, reading

_SUPERSEDED_SECONDS = 3600.0
_SAID = (
    "lease_token",
    "leased_until",
    "reason",
    "detail",
    "finished_at",
    "logits",
    "member_logits",
    "cam",
    "view",
    "timings",
)
# An image stays its first sender's, also after another one has corrected it. Its first sender may
# correct and reject it.
_LASTING = ("sop_instance_uid", "calling_ae_title", "called_ae_title", "peer_address")
# Statements are built once (see `queue/queues`); an UPDATE sets the columns that its parameters
# name.
_KNOWN_INSTANCE = (
    select(instance).where(instance.c.sop_instance_uid == bindparam("uid")).with_for_update()
)
_FORMER_HEADER = select(former_header.c.sha256).where(
    former_header.c.instance_id == bindparam("instance_id"),
    former_header.c.digest == bindparam("digest"),
)
_LOCKED_READINGS = (
    select(reading.c.id)
    .where(reading.c.instance_id.in_(bindparam("images", expanding=True)))
    .order_by(reading.c.id)
    .with_for_update()
)
# A rule keeps an image from releases whatever its header says now.
_HAS_ENDED = and_(
    reading.c.state.in_((ReadingState.ANALYSED, ReadingState.NOT_ANALYSED, ReadingState.FAILED)),
    reading.c.reason.is_distinct_from(ServerReason.NOT_ANALYSED_BY_RULE),
)
_MISSED_PIXELS = and_(
    reading.c.state == ReadingState.NOT_ANALYSED, reading.c.reason == ServerReason.INSTANCE_MISSING
)


class ImageChanged(Exception):
    """The image's row does not match the compared file any more: compare again."""


class RecordOutcome(StrEnum):
    """The result of recording one arrival."""

    NEW = "new"
    DUPLICATE = "duplicate"
    HEADER_REVISION = "header_revision"
    CONFLICT = "conflict"
    HEADER_CONFLICT = "header_conflict"
    RESTORED = "restored"

    @property
    def is_conflict(self) -> bool:
        """Whether the file is in quarantine until a person decides."""
        return self in (RecordOutcome.CONFLICT, RecordOutcome.HEADER_CONFLICT)


@dataclass(frozen=True, slots=True)
class _KnownRow:
    """The outcome for an arrival of a known image.

    `before`: its row as it was, where readings may follow from the arrival. `taken`: the same where
    a campaign had brought the image, and it becomes a live sender's.
    """

    outcome: RecordOutcome
    before: Row[Any] | None = None
    taken: Row[Any] | None = None


@dataclass(frozen=True, slots=True)
class _Opened:
    """Readings that were opened again: the number that the study waits for, and `shadows`.

    `grows`: the study's quiet period begins anew.
    """

    waited_for: int = 0
    shadows: tuple[str, ...] = ()
    grows: bool = True


def record(
    connection: Connection, arrivals: Sequence[Arrival], now: float, *, is_compared: bool = False
) -> list[RecordOutcome]:
    """Record all arrivals, and return the outcome of each, in their order.

    New images are written together. Everything is locked in one order, or two transactions that
    record the same images would wait for each other (PostgreSQL). The order: known images by SOP
    Instance UID, new ones likewise; readings by their rows; studies; comparisons.

    Raises IntegrityError when another process inserts an image first. Raises ImageChanged where a
    file was compared with another file than the row's, or where `is_compared` is set and a file was
    not compared.
    """
    # There are three kinds of arrival. (1) `new`: the first of an image without a row.
    # (2) `first`: of images that have a row. (3) `again`: more of an image that is new
    # in this batch.
    new = new_images.find(connection, arrivals)
    if new:
        rejections.hold(connection, (arrival.instance.sop_instance_uid for arrival in new.values()))
    first, again = _others(arrivals, new)
    if is_compared and any(arrivals[position].compared is None for position in (*first, *again)):
        raise ImageChanged
    known = {position: _record_known(connection, arrivals[position], now) for position in first}
    came = new_images.insert_images(connection, new, now) if new else NewImages()
    known |= {position: _record_known(connection, arrivals[position], now) for position in again}
    # What follows, in the order of locks: readings, then studies, then comparisons.
    taken = {
        position: (arrivals[position], item.taken)
        for position, item in known.items()
        if item.taken is not None and not item.taken.is_removed
    }
    read_by = take_over.readers(connection, taken, now)
    opened = _read_again(connection, known, now)
    take_over.add_readings(connection, taken, read_by, came, now)
    _write_following(connection, arrivals, came, opened, now)
    return [
        RecordOutcome.NEW if position in new else known[position].outcome
        for position in range(len(arrivals))
    ]


def _write_following(
    connection: Connection,
    arrivals: Sequence[Arrival],
    came: NewImages,
    opened: Mapping[int, _Opened],
    now: float,
) -> None:
    """Let studies grow, then insert readings and comparisons."""
    more = dict(came.waited_for)
    for position, item in opened.items():
        if item.grows:
            more[position] = more.get(position, 0) + item.waited_for
    if grown := _grown(arrivals, more):
        for uid, priority in grow(connection, grown, now).items():
            new_images.raise_to(came, uid, priority)
    new_images.insert_readings(connection, came)
    again = [(arrivals[position], item.shadows) for position, item in opened.items()]
    _compare_again(connection, came, again, now)


def _others(arrivals: Sequence[Arrival], new: Mapping[int, Arrival]) -> tuple[list[int], list[int]]:
    """Positions of arrivals that are not `new`, by SOP Instance UID.

    First those of images with a row, then those of images that get it in this batch.
    """
    uids = [arrival.instance.sop_instance_uid for arrival in arrivals]
    others = sorted(
        (position for position in range(len(arrivals)) if position not in new), key=uids.__getitem__
    )
    made = {uids[position] for position in new}
    return [position for position in others if uids[position] not in made], [
        position for position in others if uids[position] in made
    ]


def _grown(arrivals: Sequence[Arrival], readings: Mapping[int, int]) -> dict[str, Growth]:
    """Growth of each study by Study Instance UID.

    `readings`: how many more the study waits for, by positions of the arrivals that it grows by.
    """
    grown: dict[str, Growth] = {}
    for position in sorted(readings):
        arrival = arrivals[position]
        grown.setdefault(arrival.instance.study_instance_uid, Growth()).add(
            arrival, readings[position]
        )
    return grown


def _compare_again(
    connection: Connection,
    came: NewImages,
    opened: Iterable[tuple[Arrival, tuple[str, ...]]],
    now: float,
) -> None:
    again: dict[str, set[str]] = {}
    for arrival, shadows in opened:
        if shadows:
            again.setdefault(arrival.instance.study_instance_uid, set()).update(shadows)
    for study_uid in sorted({*came.shadows, *again}):
        comparisons.follow(connection, study_uid, came.shadows.get(study_uid, {}), now)
        if study_uid in again:
            comparisons.reopen(connection, study_uid, now, again[study_uid])


def _record_known(connection: Connection, arrival: Arrival, now: float) -> _KnownRow:
    """Record an arrival of an image that has a row. Raises ImageChanged."""
    uid = arrival.instance.sop_instance_uid
    known = connection.execute(_KNOWN_INSTANCE, {"uid": uid}).one()
    compared = arrival.compared or Compared(known.path)
    if compared.path != known.path:
        raise ImageChanged
    found = _record_same(connection, known, arrival, compared, now)
    is_same = known.digest == arrival.instance.digest or _is_other_header(known, arrival.instance)
    if is_same and not found.outcome.is_conflict and _is_taken(known, arrival):
        take_over.change_sender(connection, known, arrival.instance)
        return dataclasses.replace(found, taken=known)
    return found


def _is_taken(known: Row[Any], arrival: Arrival) -> bool:
    """Whether a campaign brought the image, and a live sender sends it now."""
    return known.called_ae_title in arrival.takes_over


def _record_same(
    connection: Connection, known: Row[Any], arrival: Arrival, compared: Compared, now: float
) -> _KnownRow:
    """Record an arrival of an image whose row is locked."""
    new = arrival.instance
    # (1) The same data set: its pixels come back, or it is a duplicate.
    if known.digest == new.digest:
        if known.pixels_removed_at is not None:
            _restore_pixels(connection, known, new)
            return _KnownRow(RecordOutcome.RESTORED, known)
        # Recorded again after a crash, the file is the row's own: it must be settled, not deleted.
        return _KnownRow(RecordOutcome.NEW if known.path == new.path else RecordOutcome.DUPLICATE)
    # (2) The same pixels under another header: a correction, a duplicate, or a conflict.
    if _is_other_header(known, new):
        return _record_header(connection, known, arrival, compared, now)
    # (3) Other pixels, or another study.
    return _record_conflict(connection, new, ConflictKind.PIXELS)


def _record_header(
    connection: Connection, known: Row[Any], arrival: Arrival, compared: Compared, now: float
) -> _KnownRow:
    """Record the same pixels with another header.

    It is a correction only from a sender that may correct the image.
    """
    new = arrival.instance
    # (1) The sender may not correct: a header of before is a duplicate, any other a conflict.
    if not _may_correct(known, arrival):
        former = connection.execute(
            _FORMER_HEADER, {"instance_id": known.id, "digest": new.digest}
        ).first()
        was_in_use = former is not None and former.sha256 == compared.sha256
        return (
            _KnownRow(RecordOutcome.DUPLICATE)
            if was_in_use
            else _record_conflict(connection, new, ConflictKind.HEADER)
        )
    # (2) A person has decided against these bytes.
    if _is_kept_out(connection, new, compared.sha256):
        return _KnownRow(RecordOutcome.DUPLICATE)
    # (3) The last header counts, and this one came before it.
    if arrival.is_left_behind and new.received_at < known.received_at:
        _remember(connection, known.id, new.digest, compared.sha256)
        return _KnownRow(RecordOutcome.DUPLICATE)
    _revise_header(connection, known, new, compared.former_sha256, now)
    return _KnownRow(RecordOutcome.HEADER_REVISION, known)


def _may_correct(known: Row[Any], arrival: Arrival) -> bool:
    # Whatever header a campaign brought, a live sender may replace it.
    if _is_taken(known, arrival):
        return True
    is_own = known.calling_ae_title == arrival.instance.calling_ae_title
    return is_own if arrival.may_correct is None else arrival.may_correct


def _is_kept_out(connection: Connection, new: Instance, sha256: str | None) -> bool:
    """Whether a person has decided against these very bytes.

    If there is no decision yet, a sender that may correct decides: the file in quarantine is
    deleted then, as after `discard`.
    """
    if (
        state := connection.execute(
            select(conflict.c.state).where(_same_conflict(new))
        ).scalar_one_or_none()
    ) == ConflictState.HELD:
        values = {
            "state": ConflictState.DISCARDED,
            "sha256": sha256,
            "resolved_at": new.received_at,
            "is_settled": False,
        }
        connection.execute(update(conflict).where(_same_conflict(new)).values(values))
    return state in (ConflictState.KEPT, ConflictState.DISCARDED)


def _record_conflict(connection: Connection, new: Instance, kind: ConflictKind) -> _KnownRow:
    held = RecordOutcome.HEADER_CONFLICT if kind is ConflictKind.HEADER else RecordOutcome.CONFLICT
    return _KnownRow(held if _keep_conflict(connection, new, kind) else RecordOutcome.DUPLICATE)


def _is_other_header(known: Row[Any], new: Instance) -> bool:
    """Whether the pixels and the study are the same.

    Another study under the same SOP Instance UID is a conflict, never a silent move.
    """
    return bool(
        known.pixel_digest == new.pixel_digest
        and known.study_instance_uid == new.study_instance_uid
    )


def _revise_header(
    connection: Connection, known: Row[Any], new: Instance, former_sha256: str | None, now: float
) -> None:
    values = codec.instance_values(
        dataclasses.replace(new, header_revision=known.header_revision + 1)
    )
    for name in _LASTING:
        del values[name]
    connection.execute(update(instance).where(instance.c.id == known.id).values(values))
    _remember(connection, known.id, known.digest, former_sha256)
    if known.pixels_removed_at is None and known.path != new.path:
        # Not at once: an analyser may be reading it.
        deletions.expire(connection, known.path, "superseded", now + _SUPERSEDED_SECONDS, known.id)


def _remember(connection: Connection, instance_id: int, digest: str, sha256: str | None) -> None:
    """Note the digest, so that the file is known when it is sent again.

    The image's row is locked.
    """
    former = {"instance_id": instance_id, "digest": digest}
    if connection.execute(_FORMER_HEADER, former).first() is None:
        connection.execute(insert(former_header), {**former, "sha256": sha256})


def _read_again(
    connection: Connection, known: Mapping[int, _KnownRow], now: float
) -> dict[int, _Opened]:
    """Open readings again after a new header, or after pixels came back; by position.

    A corrected header may change the meaning of the pixels (Photometric Interpretation, view, age).
    """
    again = {
        position: (item.outcome, item.before)
        for position, item in known.items()
        if item.before is not None
    }
    rows = chain((row for _, row in again.values()), (item.taken for item in known.values()))
    if images := [row.id for row in rows if row is not None and not row.is_removed]:
        connection.execute(_LOCKED_READINGS, {"images": images}).all()
    return {
        position: _opened(connection, outcome, row, now)
        for position, (outcome, row) in again.items()
    }


def _opened(
    connection: Connection, outcome: RecordOutcome, before: Row[Any], now: float
) -> _Opened:
    is_restored = outcome is RecordOutcome.RESTORED
    if before.is_removed:
        return _Opened(grows=not is_restored)
    found = _open_readings(connection, before, now, _MISSED_PIXELS if is_restored else _HAS_ENDED)
    return dataclasses.replace(found, grows=not is_restored or found.waited_for > 0)


def _open_readings(
    connection: Connection, known: Row[Any], now: float, chosen: ColumnElement[bool]
) -> _Opened:
    of_instance = reading.c.instance_id == known.id
    due = {
        "state": ReadingState.DUE,
        "due_at": now,
        "attempts": 0,
        "lapses": 0,
        **dict.fromkeys(_SAID),
    }
    # A reading in progress read the old header, or looks for a file that is gone: without its lease
    # it cannot write.
    connection.execute(
        update(reading).where(of_instance, reading.c.state == ReadingState.LEASED).values(due)
    )
    again = update(reading).where(of_instance, chosen).values(due)
    opened = connection.execute(again.returning(reading.c.release, reading.c.is_shadow)).all()
    shadows = tuple(row.release for row in opened if row.is_shadow)
    return _Opened(len(opened) - len(shadows), shadows)


def _restore_pixels(connection: Connection, known: Row[Any], new: Instance) -> None:
    """Take pixels that retention had removed and that the sender sends again.

    They are kept as long as those of a new image. Readings that found no pixels meanwhile are
    opened again (`_read_again`).
    """
    back = {"path": new.path, "size_bytes": new.size_bytes, "header": new.header}
    values = {**back, "received_at": new.received_at, "pixels_removed_at": None}
    connection.execute(update(instance).where(instance.c.id == known.id).values(values))
    deletions.keep(connection, new.path)


def _same_conflict(new: Instance) -> ColumnElement[bool]:
    return and_(
        conflict.c.sop_instance_uid == new.sop_instance_uid, conflict.c.digest == new.digest
    )


def _keep_conflict(connection: Connection, new: Instance, kind: ConflictKind) -> bool:
    """Record a conflict, and return whether the conflict's row names this file.

    It does not if the same bytes were sent before. A person's decision to discard or to keep out
    holds for them, however often they are sent.
    """
    held = dataclasses.replace(new, path=quarantine_path(new.path))
    if (
        row := connection.execute(
            select(conflict.c.path, conflict.c.state).where(_same_conflict(new))
        ).first()
    ) is not None:
        return bool(row.path == held.path and row.state != ConflictState.DISCARDED)
    names = ("sop_instance_uid", "path", "size_bytes", "digest", "received_at", "calling_ae_title")
    values = {"state": ConflictState.HELD, "kind": kind}
    connection.execute(
        insert(conflict).values({**{name: getattr(held, name) for name in names}, **values})
    )
    return True
