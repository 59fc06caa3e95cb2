"""Rejections of images by a note (IHE Imaging Object Change Management) or by a person.

A rejected image keeps its row, its bytes and its readings. It takes no part in results: its study
is assembled again without it. A note holds for images of its own sender, unless it holds for all
(`Rejection.holds_for_all`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    func,
    insert,
    select,
    text,
    true,
    update,
)

from hilum.domain import Instance, ReadingState, Rejection, RemovalReason, ServerReason
from hilum.store.database.prepared import PreparedRow, PreparedStatement
from hilum.store.queue.reopen import reopen
from hilum.store.schema.tables import instance, reading, rejection

_REASONS = PreparedStatement(
    select(
        *(
            rejection.c[name]
            for name in (
                "sop_instance_uid",
                "study_instance_uid",
                "reason",
                "calling_ae_title",
                "holds_for_all",
            )
        )
    )
    .where(rejection.c.sop_instance_uid.in_(bindparam("uids", expanding=True)))
    .order_by(rejection.c.id.desc()),
    "uids",
)
_HOLD = PreparedStatement(
    text(
        "SELECT pg_advisory_xact_lock(hashtextextended(uid, 0)) FROM unnest(CAST(:uids AS text[]))"
        " AS uid"
    )
)
_WITHOUT_EFFECT = (
    select(
        rejection.c.sop_instance_uid,
        rejection.c.study_instance_uid,
        rejection.c.reason,
        rejection.c.calling_ae_title,
        rejection.c.received_at,
    )
    .join(
        instance,
        and_(
            rejection.c.sop_instance_uid == instance.c.sop_instance_uid,
            rejection.c.study_instance_uid == instance.c.study_instance_uid,
        ),
    )
    .where(
        and_(
            rejection.c.holds_for_all.is_(False),
            rejection.c.calling_ae_title != instance.c.calling_ae_title,
        ),
        instance.c.is_removed.is_(False),
    )
    .order_by(rejection.c.id)
)


def reject(connection: Connection, rejections: Sequence[Rejection], now: float) -> int:
    """Reject images, and return how many this takes out of results. Idempotent.

    The first rejection that holds for an image stays. A rejection of an unknown image is stored: a
    note may be faster than the row of its image.
    """
    hold(connection, (item.sop_instance_uid for item in rejections))
    # In the order of locks of `record`, or two transactions that change the same images would wait
    # for each other (PostgreSQL).
    removed = [
        _reject_one(connection, item, now)
        for item in sorted(rejections, key=lambda item: item.sop_instance_uid)
    ]
    _end_readings(connection, [instance_id for instance_id, _ in filter(None, removed)], now)
    if studies := {study_uid for _, study_uid in filter(None, removed)}:
        reopen(connection, studies, now)
    return sum(item is not None for item in removed)


def hold(connection: Connection, uids: Iterable[str]) -> None:
    """Lock images, with or without a row, until the transaction ends.

    Called before any row is locked. No other transaction makes rows for these images or rejects
    them. Otherwise neither would see the other's uncommitted rows, and an image that is rejected at
    the moment of its arrival would be reported. PostgreSQL has a lock for each image; SQLite has
    one writer at a time.
    """
    if connection.dialect.name == "postgresql":
        _HOLD.write(connection, {"uids": sorted(set(uids))})


def removals_of(connection: Connection, new: Sequence[Instance]) -> dict[str, RemovalReason]:
    """Reasons of arriving images that are out of results from the beginning.

    By SOP Instance UID.
    """
    images = {item.sop_instance_uid: item for item in new}
    # oldest last, so that the first one holds
    found = _REASONS.all(connection, {"uids": list(images)})
    return {
        row.sop_instance_uid: RemovalReason(row.reason)
        for row in found
        if _holds(row, images[row.sop_instance_uid])
    }


def _holds(word: PreparedRow, image: Instance) -> bool:
    is_permitted = word.holds_for_all or word.calling_ae_title == image.calling_ae_title
    return bool(is_permitted and word.study_instance_uid == image.study_instance_uid)


def count_of_others(connection: Connection, rejections: Sequence[Rejection]) -> int:
    """Count the images that stay in results because they are another sender's."""
    return sum(_is_of_another(connection, item) for item in rejections if not item.holds_for_all)


def _is_of_another(connection: Connection, item: Rejection) -> bool:
    of_another = and_(
        _named(item),
        instance.c.is_removed.is_(False),
        instance.c.calling_ae_title != item.calling_ae_title,
    )
    return bool(
        connection.execute(
            select(func.count()).select_from(instance).where(of_another)
        ).scalar_one()
    )


def _reject_one(connection: Connection, item: Rejection, now: float) -> tuple[int, str] | None:
    """Reject one image, and return its row id and its study.

    None: nothing changed, or the image is not there yet.
    """
    _remember(connection, item, now)
    permitted = (
        true() if item.holds_for_all else instance.c.calling_ae_title == item.calling_ae_title
    )
    chosen = and_(_named(item), permitted, instance.c.is_removed.is_(False))
    query = update(instance).where(chosen).values(is_removed=True, removal_reason=item.reason)
    instance_id = connection.execute(query.returning(instance.c.id)).scalar_one_or_none()
    return None if instance_id is None else (instance_id, item.study_instance_uid)


def without_effect(connection: Connection) -> list[dict[str, Any]]:
    """Rejections by other senders of images that are in results, oldest first."""
    return [row._asdict() for row in connection.execute(_WITHOUT_EFFECT)]


def _named(item: Rejection) -> ColumnElement[bool]:
    """A condition on the image that the rejection names.

    An image of another study under the same SOP Instance UID is another image.
    """
    return and_(
        instance.c.sop_instance_uid == item.sop_instance_uid,
        instance.c.study_instance_uid == item.study_instance_uid,
    )


def _remember(connection: Connection, item: Rejection, now: float) -> None:
    names = ("sop_instance_uid", "study_instance_uid", "calling_ae_title")
    same = and_(*(rejection.c[name] == getattr(item, name) for name in names))
    known = connection.execute(
        select(rejection.c.id, rejection.c.holds_for_all).where(same)
    ).first()
    values = {name: getattr(item, name) for name in Rejection.__slots__}
    if known is None:
        connection.execute(insert(rejection).values(**values, received_at=now))
    # The settings allow more than when it came first.
    elif item.holds_for_all and not known.holds_for_all:
        connection.execute(
            update(rejection).where(rejection.c.id == known.id).values(holds_for_all=True)
        )


def _end_readings(connection: Connection, instance_ids: Sequence[int], now: float) -> None:
    """End the open readings of these images.

    Clearing the lease fences out an analyser at work on them.
    """
    open_ones = and_(
        reading.c.instance_id.in_(instance_ids),
        reading.c.state.in_((ReadingState.DUE, ReadingState.LEASED)),
    )
    ended = {
        "state": ReadingState.NOT_ANALYSED,
        "reason": ServerReason.REJECTED,
        "lease_token": None,
        "leased_until": None,
        "finished_at": now,
    }
    connection.execute(
        select(reading.c.id).where(open_ones).order_by(reading.c.id).with_for_update()
    ).all()
    connection.execute(update(reading).where(open_ones).values(ended))
