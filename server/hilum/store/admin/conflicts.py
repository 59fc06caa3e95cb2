"""Conflicts: other pixels, or a header that does not count, under a known SOP Instance UID.

A person's decision becomes rows, then moves of files. The rows are committed first and name the
final places of the files; readers find a file at either place (`Archive.open`). Until the files are
moved, the conflict's row has `is_settled` False. The next decision, or the scan at start, moves
them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, and_, insert, null, select, update

from hilum.domain import ConflictKind, ConflictState, Instance, ReadingState, ServerReason
from hilum.store.archive.archive import place_of_quarantined, quarantine_path
from hilum.store.queue.reopen import reopen
from hilum.store.schema import codec
from hilum.store.schema.tables import conflict, instance, reading, study

Item = dict[str, Any]
_ALLOWED = {
    ConflictState.KEPT: (ConflictState.HELD,),
    ConflictState.REPLACED: (ConflictState.HELD, ConflictState.KEPT),
    ConflictState.DISCARDED: (ConflictState.HELD, ConflictState.KEPT),
}
"""States before a decision. The decided state itself is allowed too, and changes nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class FileInQuarantine:
    """The file of a conflict, as a decision needs it.

    The instance that it describes, for REPLACED; the SHA-256 of its data set, for DISCARDED.
    """

    instance: Instance | None = None
    sha256: str | None = None


class CannotResolve(Exception):
    """This decision is not open (any more); the text says how to proceed."""


def with_studies(connection: Connection, found: Sequence[Item]) -> list[Item]:
    """Rows of conflicts, each with the Study Instance UID of the image that is in use.

    The UID is None where there is no such image any more.
    """
    columns = (instance.c.sop_instance_uid, instance.c.study_instance_uid)
    named = select(*columns).where(
        instance.c.sop_instance_uid.in_({item["sop_instance_uid"] for item in found})
    )
    studies = {row.sop_instance_uid: row.study_instance_uid for row in connection.execute(named)}
    return [{**item, "study_instance_uid": studies.get(item["sop_instance_uid"])} for item in found]


def find(connection: Connection, conflict_id: int) -> Row[Any] | None:
    """Lock and return a conflict's row."""
    return connection.execute(
        select(conflict).where(conflict.c.id == conflict_id).with_for_update()
    ).first()


def resolve(
    connection: Connection,
    found: Row[Any],
    state: ConflictState,
    quarantined: FileInQuarantine,
    now: float,
) -> None:
    """Write a decision. Idempotent. Raises CannotResolve."""
    if found.state == state:
        return
    if found.state not in _ALLOWED[state]:
        raise CannotResolve(f"The conflict is {found.state} already; nothing is left to decide.")
    if state is ConflictState.REPLACED:
        _replace(connection, found, quarantined.instance, now)
    values: dict[str, Any] = {
        "state": state,
        "resolved_at": now,
        "is_settled": state is ConflictState.KEPT,
    }
    if state is ConflictState.DISCARDED:
        values["sha256"] = quarantined.sha256
    connection.execute(update(conflict).where(conflict.c.id == found.id).values(values))


def unsettled(connection: Connection) -> list[int]:
    """Row ids of decisions whose files may not have been moved yet."""
    return list(
        connection.execute(
            select(conflict.c.id).where(conflict.c.is_settled.is_(False)).order_by(conflict.c.id)
        ).scalars()
    )


def settled(connection: Connection, conflict_id: int) -> None:
    """Mark a conflict: its files are in their places."""
    connection.execute(update(conflict).where(conflict.c.id == conflict_id).values(is_settled=True))


def _replace(
    connection: Connection, found: Row[Any], quarantined: Instance | None, now: float
) -> None:
    if quarantined is None or (quarantined.sop_instance_uid, quarantined.digest) != (
        found.sop_instance_uid,
        found.digest,
    ):
        raise CannotResolve(
            "The file in quarantine is not the one that was put there; look at it before you"
            " decide."
        )
    former = _locked_image(connection, found.sop_instance_uid)
    if former.pixels_removed_at is None:
        _keep_former(connection, former, now, found.kind)
    values = codec.instance_values(
        dataclasses.replace(
            _of_its_sender(quarantined, former, found.kind),
            path=place_of_quarantined(found.path),
            header_revision=former.header_revision + 1,
            received_at=found.received_at,
            pixels_removed_at=None,
        )
    )
    connection.execute(update(instance).where(instance.c.id == former.id).values(values))
    _read_again(connection, former, quarantined.study_instance_uid, now)
    _open_study(connection, quarantined, now)
    reopen(connection, {former.study_instance_uid, quarantined.study_instance_uid}, now)


def _locked_image(connection: Connection, sop_instance_uid: str) -> Row[Any]:
    """The image's row, locked. Raises CannotResolve where there is none."""
    query = (
        select(instance).where(instance.c.sop_instance_uid == sop_instance_uid).with_for_update()
    )
    former = connection.execute(query).first()
    if former is None:
        raise CannotResolve(
            "There is no image with this SOP Instance UID any more; send the file again instead."
        )
    return former


def _of_its_sender(quarantined: Instance, former: Row[Any], kind: ConflictKind) -> Instance:
    """The new instance; where its header alone changes, with the sender of the image.

    Other pixels belong to the sender of the new file.
    """
    if kind != ConflictKind.HEADER and quarantined.pixel_digest != former.pixel_digest:
        return quarantined
    names = ("calling_ae_title", "called_ae_title", "peer_address")
    return dataclasses.replace(quarantined, **{name: getattr(former, name) for name in names})


def _keep_former(connection: Connection, former: Row[Any], now: float, kind: ConflictKind) -> None:
    """Keep the former bytes as the conflict's counterpart in quarantine.

    They are out of use, and nothing is lost.
    """
    values = {
        "path": quarantine_path(former.path),
        "size_bytes": former.size_bytes,
        "received_at": former.received_at,
        "calling_ae_title": former.calling_ae_title,
        "kind": kind,
        "state": ConflictState.KEPT,
        "resolved_at": now,
        "is_settled": False,
    }
    same = and_(
        conflict.c.sop_instance_uid == former.sop_instance_uid, conflict.c.digest == former.digest
    )
    if connection.execute(update(conflict).where(same).values(values)).rowcount == 0:
        key = {"sop_instance_uid": former.sop_instance_uid, "digest": former.digest}
        connection.execute(insert(conflict).values({**values, **key}))


def _read_again(connection: Connection, former: Row[Any], study_uid: str, now: float) -> None:
    """Open the readings of the image again, because its pixels changed.

    The releases that read the image read it again, unless it was rejected. Where a rule keeps it
    from them, none reads the other pixels either.
    """
    emptied = dict.fromkeys(
        ("logits", "member_logits", "cam", "view", "precision", "preprocessing_version", "timings"),
        null(),
    )
    again = {
        "state": ReadingState.DUE,
        "due_at": now,
        "attempts": 0,
        "lapses": 0,
        "reason": None,
        "detail": None,
        "finished_at": None,
    }
    theirs = reading.c.instance_id == former.id
    moved = {"study_instance_uid": study_uid, "lease_token": None, "leased_until": None}
    connection.execute(update(reading).where(theirs).values(moved))
    if not former.is_removed:
        is_wanted = reading.c.reason.is_distinct_from(ServerReason.NOT_ANALYSED_BY_RULE)
        connection.execute(update(reading).where(theirs, is_wanted).values(**emptied, **again))


def _open_study(connection: Connection, new: Instance, now: float) -> None:
    """Open the study of the new file.

    It may be another study than the former image's, and it may be new.
    """
    if (
        connection.execute(
            select(study.c.id).where(study.c.study_instance_uid == new.study_instance_uid)
        ).first()
        is not None
    ):
        return
    of_image = (
        select(reading.c.priority)
        .where(reading.c.study_instance_uid == new.study_instance_uid)
        .limit(1)
    )
    priority = connection.execute(of_image).scalar_one_or_none()
    connection.execute(
        insert(study).values(study_values(new, 1 if priority is None else priority, now))
    )


def study_values(first: Instance, priority: int, now: float) -> dict[str, Any]:
    """Columns of a study that begins with this image; its quiet period is over."""
    moments = {"quiet_until": now, "due_at": now, "collecting_since": now}
    received = {"first_received_at": first.received_at, "last_received_at": first.received_at}
    names = ("study_instance_uid", "calling_ae_title", "called_ae_title", "peer_address")
    values = {**{name: getattr(first, name) for name in names}, **moments, **received}
    return {**values, "revision": 0, "open_readings": 0, "priority": priority, "state": "due"}
