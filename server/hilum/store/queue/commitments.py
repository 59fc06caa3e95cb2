"""Storage commitment: requests, the reports that are due, and kept objects (PS3.4 annex J)."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Text, and_, bindparam, cast, insert, or_, select, update

from hilum.domain import (
    Advance,
    CommitmentJob,
    CommitmentRequest,
    CommitmentState,
    CommitmentVerdict,
    ConflictState,
    Lease,
    Priority,
    SopReference,
)
from hilum.store.database.prepared import PreparedRow
from hilum.store.schema.tables import commitment, conflict, document, instance

_CHUNK = 500
_AFTER_RESPONSE_SECONDS = 1.0  # the response to a request comes before its report
_FAILURES = 100  # in a row; the report has all
_OPEN = (CommitmentState.DUE, CommitmentState.LEASED)
_FRESH: Mapping[str, Any] = {
    **dict.fromkeys(
        (
            "lease_token",
            "leased_until",
            "claimed_by",
            "reason",
            "detail",
            "finished_at",
            "committed",
            "failed",
        )
    ),
    "failures": [],
    "attempts": 0,
    "lapses": 0,
    "priority": Priority.LIVE,
    "state": CommitmentState.DUE,
}
_OF_TRANSACTION = and_(
    commitment.c.calling_ae_title == bindparam("who"),
    commitment.c.transaction_uid == bindparam("uid"),
)
_SAME = (
    select(commitment.c.id)
    .where(_OF_TRANSACTION, commitment.c.digest == bindparam("same"))
    .with_for_update()
)
_OTHER_OPEN = select(commitment.c.id).where(
    _OF_TRANSACTION, commitment.c.digest != bindparam("same"), commitment.c.state.in_(_OPEN)
)
_NEW = insert(commitment).returning(commitment.c.id)
# Sets the columns that its parameters name.
_AGAIN = update(commitment).where(commitment.c.id == bindparam("row"))
_ASKED = select(commitment.c.instances).where(commitment.c.id == bindparam("row")).with_for_update()
# Most ended rows name no object any more. Those are not decoded: their number has no bound.
_NAMING = (
    select(commitment.c.id, commitment.c.instances, commitment.c.failures)
    .where(
        or_(
            *(
                cast(column, Text).not_in(("[]", "null"))
                for column in (commitment.c.instances, commitment.c.failures)
            )
        )
    )
    .order_by(commitment.c.id)
)
_SOME_AT_ONCE = {"yield_per": 1000}
_WHOLE = select(commitment).where(commitment.c.id == bindparam("row")).with_for_update()
_KEPT_IMAGES = select(instance.c.sop_instance_uid, instance.c.sop_class_uid).where(
    instance.c.sop_instance_uid.in_(bindparam("uids", expanding=True)),
    instance.c.pixels_removed_at.is_(None),
)
_TO_PROMISE = (
    select(instance.c.id, instance.c.received_at, instance.c.committed_at)
    .where(
        instance.c.sop_instance_uid.in_(bindparam("uids", expanding=True)),
        instance.c.pixels_removed_at.is_(None),
    )
    .order_by(instance.c.sop_instance_uid)
    .with_for_update()
)
_PROMISE = (
    update(instance)
    .where(instance.c.id == bindparam("row"))
    .values(committed_at=bindparam("moment"))
)
_DISPUTED = select(conflict.c.sop_instance_uid).where(
    conflict.c.sop_instance_uid.in_(bindparam("uids", expanding=True)),
    conflict.c.calling_ae_title == bindparam("who"),
    conflict.c.state != ConflictState.REPLACED,
)
_KEPT_DOCUMENTS = select(document.c.sop_instance_uid, document.c.sop_class_uid).where(
    document.c.sop_instance_uid.in_(bindparam("uids", expanding=True))
)


@dataclass(frozen=True, slots=True)
class LeaseOwner:
    """The process that reports a request by itself, and the length of its lease."""

    owner: str
    seconds: float


def record(
    connection: Connection, request: CommitmentRequest, now: float, holder: LeaseOwner | None
) -> CommitmentJob | None:
    """Write a row for the request, due now or leased to `holder`, and return the holder's job.

    A repeated request begins anew: its sender has lost track.
    """
    key = {
        "who": request.calling_ae_title,
        "uid": request.transaction_uid,
        "same": _digest(request.references),
    }
    is_duplicate = connection.execute(_OTHER_OPEN, key).first() is not None
    lease = None if holder is None else Lease(0, uuid.uuid4().hex, attempts=1, lapses=0)
    begun = {
        "requested_at": now,
        "due_at": now + _AFTER_RESPONSE_SECONDS,
        "is_duplicate": is_duplicate,
    }
    values = {
        **_FRESH,
        **_request_values(request, key["same"]),
        **_lease_values(lease, holder, now),
        **begun,
    }
    row_id = _write(connection, connection.execute(_SAME, key).scalar_one_or_none(), values)
    if lease is None:
        return None
    return CommitmentJob(
        Lease(row_id, lease.token, lease.attempts, lease.lapses), request, now, is_duplicate
    )


def _write(connection: Connection, known: int | None, values: Mapping[str, Any]) -> int:
    if known is None:
        return int(connection.execute(_NEW, values).scalar_one())
    connection.execute(_AGAIN, {**values, "row": known})
    return known


def _request_values(request: CommitmentRequest, digest: str) -> dict[str, Any]:
    return {
        "transaction_uid": request.transaction_uid,
        "calling_ae_title": request.calling_ae_title,
        "called_ae_title": request.called_ae_title,
        "peer_address": request.peer_address[:64],
        "digest": digest,
        "instances": [[item.sop_class_uid, item.sop_instance_uid] for item in request.references],
    }


def _lease_values(lease: Lease | None, holder: LeaseOwner | None, now: float) -> dict[str, Any]:
    if lease is None or holder is None:
        return {}
    leased = {
        "state": CommitmentState.LEASED,
        "lease_token": lease.token,
        "attempts": lease.attempts,
    }
    return {**leased, "claimed_by": holder.owner, "leased_until": now + holder.seconds}


def _digest(references: Sequence[SopReference]) -> str:
    text = "\n".join(sorted(f"{item.sop_class_uid} {item.sop_instance_uid}" for item in references))
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def commitment_job(_connection: Connection, row: PreparedRow, lease: Lease) -> CommitmentJob:
    """The job of a claimed request."""
    references = tuple(SopReference(*names[:2]) for names in row.instances)
    titles = row.calling_ae_title, row.called_ae_title, row.peer_address
    return CommitmentJob(
        lease,
        CommitmentRequest(row.transaction_uid, references, *titles),
        row.requested_at,
        row.is_duplicate,
    )


def reported(verdict: CommitmentVerdict) -> dict[str, Any]:
    """The columns of a row whose report was answered.

    The requested objects are deleted from it; a repeated request has them again.
    """
    failures = [[item.sop_instance_uid, reason] for item, reason in verdict.failed[:_FAILURES]]
    return {
        "committed": len(verdict.committed),
        "failed": len(verdict.failed),
        "failures": failures,
        "instances": [],
    }


def described(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row for people: the requester, the number of objects, and the state of the report."""
    names = (
        "id",
        "transaction_uid",
        "calling_ae_title",
        "called_ae_title",
        "peer_address",
        "requested_at",
        "state",
        "committed",
        "failed",
    )
    asked = len(row["instances"]) if row["committed"] is None else row["committed"] + row["failed"]
    failures = [
        {"sop_instance_uid": uid, "failure_reason": f"0x{reason:04X}"}
        for uid, reason in row["failures"] or ()
    ]
    ended = {name: row[name] for name in ("reason", "detail", "finished_at")}
    next_try_at = row["due_at"] if row["state"] == CommitmentState.DUE else None
    return {
        **{name: row[name] for name in names},
        **ended,
        "instances": asked,
        "failures": failures,
        "next_try_at": next_try_at,
    }


def rename(connection: Connection, names: Mapping[str, str]) -> None:
    """Replace the UIDs of erased objects in requests that have ended.

    An open request must still report the original UID. Until its end the replacement is stored
    beside it.
    """
    rows = connection.execute(_NAMING, execution_options=_SOME_AT_ONCE)
    for row_id in [row.id for row in rows if _names_any(row.instances, row.failures or (), names)]:
        row = connection.execute(_WHOLE, {"row": row_id}).first()
        if row is None:  # deleted meanwhile (`retention/history`)
            continue
        marked = [
            [*item[:2], names[item[1]]] if item[1] in names else item for item in row.instances
        ]
        asked = marked if row.state in _OPEN else _without_erased(marked)
        connection.execute(
            _AGAIN,
            {"row": row_id, "instances": asked, "failures": _failures(row.failures or (), names)},
        )


def _names_any(
    asked: Sequence[Sequence[str]], failures: Sequence[Sequence[Any]], names: Collection[str]
) -> bool:
    """Whether a request or its failures name one of these UIDs.

    UIDs come second in requests, and first in failures.
    """
    return any(uid in names for _, uid, *_ in asked) or any(uid in names for uid, _ in failures)


def without_erased(connection: Connection, lease: Lease, decided: Advance) -> Advance:
    """The end of a request, without the UIDs of objects that were erased while it was open."""
    asked = connection.execute(_ASKED, {"row": lease.row_id}).scalar_one_or_none() or ()
    erased = {uid: name for _, uid, *names in asked for name in names}
    if not erased:
        return decided
    values = {"instances": _without_erased(asked), **decided.values}
    return replace(
        decided, values={**values, "failures": _failures(values.get("failures") or (), erased)}
    )


def forget_erased(connection: Connection, row_ids: Collection[int]) -> None:
    """As `without_erased`, for requests that failed after too many lapses."""
    for row_id in row_ids:
        asked = connection.execute(_ASKED, {"row": row_id}).scalar_one()
        connection.execute(_AGAIN, {"row": row_id, "instances": _without_erased(asked)})


def _without_erased(asked: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[sop_class, names[-1]] for sop_class, *names in asked]


def _failures(failures: Sequence[Sequence[Any]], erased: Mapping[str, str]) -> list[list[Any]]:
    return [[erased.get(uid, uid), reason] for uid, reason in failures]


def kept(connection: Connection, sop_instance_uids: Collection[str]) -> dict[str, str]:
    """The SOP Class UID of each kept object, by SOP Instance UID.

    Images whose pixels are there, and documents of our own.
    """
    found: dict[str, str] = {}
    for uids in _chunks(sop_instance_uids):
        for query in (_KEPT_DOCUMENTS, _KEPT_IMAGES):
            found |= {
                row.sop_instance_uid: row.sop_class_uid
                for row in connection.execute(query, {"uids": uids})
            }
    return found


def promise(connection: Connection, sop_instance_uids: Collection[str], now: float) -> None:
    """Mark images that are there as promised.

    The settings say how long promised images stay. Locks in the order of locks.
    """
    for uids in _chunks(sop_instance_uids):
        rows = connection.execute(_TO_PROMISE, {"uids": uids}).all()
        moments = [
            {"row": row.id, "moment": max(now, row.received_at, row.committed_at or 0.0)}
            for row in rows
        ]
        if moments:
            connection.execute(_PROMISE, moments)


def disputed(
    connection: Connection, sop_instance_uids: Collection[str], calling_ae_title: str
) -> set[str]:
    """Those objects of which this sender sent other pixels than the image has.

    A person may yet delete the sender's pixels.
    """
    rows = (
        connection.execute(_DISPUTED, {"uids": uids, "who": calling_ae_title}).scalars()
        for uids in _chunks(sop_instance_uids)
    )
    return {uid for chunk in rows for uid in chunk}


def _chunks(uids: Collection[str]) -> Iterator[list[str]]:
    distinct = sorted(set(uids))
    return (distinct[start : start + _CHUNK] for start in range(0, len(distinct), _CHUNK))
