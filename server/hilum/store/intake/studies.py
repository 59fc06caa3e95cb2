"""A study gets images: it is opened, or its quiet period begins anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, bindparam, insert, or_, select, update

from hilum.domain import Priority, ReadingState, StudyState
from hilum.store.database.prepared import PreparedRow, PreparedStatement
from hilum.store.intake.received import Arrival
from hilum.store.schema import codec
from hilum.store.schema.tables import reading, study

# Statements are built once (see `queue/queues`); an UPDATE sets the columns that its parameters
# name. In one order, or two listeners that share studies would wait for each other (PostgreSQL).
_KNOWN = PreparedStatement(
    select(study)
    .where(study.c.study_instance_uid.in_(bindparam("uids", expanding=True)))
    .order_by(study.c.study_instance_uid)
    .with_for_update(),
    "uids",
)
_MORE = PreparedStatement(
    update(study)
    .where(study.c.id == bindparam("row"))
    .values(
        revision=study.c.revision + bindparam("images"),
        open_readings=study.c.open_readings + bindparam("more"),
    )
)
_DECIDED = PreparedStatement(update(study).where(study.c.id == bindparam("row")))
_NEW = PreparedStatement(insert(study))
# A locked row is being read already. Readings come before studies in the order of locks, so this
# waits for no other transaction (PostgreSQL).
_LOWER_READINGS = (
    select(reading.c.id)
    .where(
        reading.c.study_instance_uid == bindparam("uid"),
        reading.c.state == ReadingState.DUE,
        reading.c.is_shadow.is_(False),
        reading.c.priority > bindparam("wanted"),
    )
    .with_for_update(skip_locked=True)
)
# A live image of the study that is open is being read, or waits for the others.
_LIVE_IMAGE = (
    select(reading.c.id)
    .where(
        reading.c.study_instance_uid == bindparam("uid"),
        reading.c.campaign_id.is_(None),
        reading.c.is_shadow.is_(False),
        or_(
            reading.c.state.in_((ReadingState.DUE, ReadingState.LEASED)),
            reading.c.finished_at >= bindparam("since"),
        ),
    )
    .limit(1)
)
_LIFT = update(reading).where(reading.c.id == bindparam("row")).values(priority=bindparam("wanted"))


class StudyDecided(Exception):
    """The rules have decided otherwise about the study by another image: ask again."""


@dataclass(slots=True)
class Growth:
    """Growth of one study: images in the order of arrival, and readings that it waits for."""

    arrivals: list[Arrival] = field(default_factory=list)
    new_readings: int = 0

    def add(self, arrival: Arrival, new_readings: int) -> None:
        """Add one image."""
        self.arrivals.append(arrival)
        self.new_readings += new_readings


def grow(connection: Connection, grown: Mapping[str, Growth], now: float) -> dict[str, int]:
    """Let studies grow, by Study Instance UID.

    Clearing the lease fences out an assembler that saw a study without these images. Returns the
    priority that new readings need at least, of studies in which live images wait for images of a
    campaign, and of studies that a worklist made urgent.

    Raises StudyDecided where another process was faster and decided otherwise.
    """
    known = {row.study_instance_uid: row for row in _KNOWN.all(connection, {"uids": list(grown)})}
    for uid, row in known.items():
        _write_decision(connection, grown[uid], row)
    if more := [
        _more_values(growth, known[uid], now) for uid, growth in grown.items() if uid in known
    ]:
        _MORE.write_each(connection, more)
    for uid, growth in grown.items():
        if uid in known and _may_wait_for_lower(known[uid], _priority_of(growth), now):
            _lift_readings(connection, uid, _priority_of(growth))
    if new := [
        _new_values(uid, growth, now) for uid, growth in sorted(grown.items()) if uid not in known
    ]:
        _NEW.write_each(connection, new)
    needed = {uid: _needed(connection, grown[uid], row) for uid, row in known.items()}
    return {uid: priority for uid, priority in needed.items() if priority is not None}


def _needed(connection: Connection, growth: Growth, row: PreparedRow) -> int | None:
    """The priority that new readings of the study need at least; None: they have it."""
    if (ordered := _ordered_priority(growth, row)) < _priority_of(growth):
        return ordered
    return int(row.priority) if _delays_live(connection, growth, row) else None


def _ordered_priority(growth: Growth, row: PreparedRow) -> int:
    """The priority of these images: urgent where a worklist said so of live ones."""
    given = _priority_of(growth)
    answer = codec.worklist_answer_of(row)
    is_urgent = given == Priority.LIVE and answer is not None and answer.is_urgent
    return Priority.URGENT if is_urgent else given


def _delays_live(connection: Connection, growth: Growth, row: PreparedRow) -> bool:
    """Whether live images in an open study would wait for these images of a campaign."""
    is_open = row.state in (StudyState.DUE, StudyState.LEASED)
    is_later = row.priority < _priority_of(growth) and growth.new_readings > 0
    if not (is_open and is_later and any(arrival.campaigns for arrival in growth.arrivals)):
        return False
    about = {"uid": row.study_instance_uid, "since": row.collecting_since}
    return connection.execute(_LIVE_IMAGE, about).first() is not None


def _priority_of(growth: Growth) -> int:
    return min(arrival.priority for arrival in growth.arrivals)


def _may_wait_for_lower(row: PreparedRow, wanted: int, now: float) -> bool:
    """Whether the study, as it was, may wait for readings of a lower priority.

    It began in one, or an archive is read again (`admin/reanalyse`). The second case lets it wait
    behind its quiet period, as live images do only in a backlog: else the check costs nothing.
    """
    return (
        wanted < Priority.REANALYSIS
        and row.open_readings > 0
        and (wanted < row.priority or row.quiet_until <= now)
    )


def _lift_readings(connection: Connection, study_uid: str, wanted: int) -> None:
    """Lift the study's open readings to the priority of the image that came.

    Its report would wait for the whole archive.
    """
    if (
        lower := connection.execute(_LOWER_READINGS, {"uid": study_uid, "wanted": wanted})
        .scalars()
        .all()
    ):
        connection.execute(_LIFT, [{"row": row_id, "wanted": wanted} for row_id in lower])


def _more_values(growth: Growth, row: PreparedRow, now: float) -> dict[str, Any]:
    # A study that was opened without a quiet period, and waits for an archive to be read, has not
    # been collecting.
    is_collecting = (
        row.state in (StudyState.DUE, StudyState.LEASED) and row.quiet_until > row.collecting_since
    )
    since = row.collecting_since if is_collecting else now
    return {
        **_open_values(growth, since, now),
        **_sender_values(growth, row),
        "row": row.id,
        "images": len(growth.arrivals),
        "more": growth.new_readings,
        "priority": min(row.priority, _ordered_priority(growth, row)),
        "last_received_at": max(
            row.last_received_at, *(arrival.instance.received_at for arrival in growth.arrivals)
        ),
    }


def _sender_values(growth: Growth, row: PreparedRow) -> dict[str, Any]:
    """Return the sender of the study: a live image takes over a study that campaigns brought."""
    live = next(
        (item.instance for item in growth.arrivals if row.called_ae_title in item.takes_over), None
    )
    sender = row if live is None else live
    names = ("calling_ae_title", "called_ae_title", "peer_address")
    return {name: getattr(sender, name) for name in names}


def _write_decision(connection: Connection, growth: Growth, row: PreparedRow) -> None:
    """Write the decision of a live image about a study that campaigns brought.

    The same of one from before there were rules. Raises StudyDecided for an image that was taken
    for the first of its study, and is not.
    """
    decided = codec.decision_of(row)
    first = growth.arrivals[0]
    live = next((item for item in growth.arrivals if row.called_ae_title in item.takes_over), None)
    if live is None and decided is not None:
        if any(item.is_deciding and item.decision != decided for item in growth.arrivals):
            raise StudyDecided
        return
    made = (live or first).decision
    if made != decided:
        _DECIDED.write(connection, {"row": row.id, **codec.decision_values(made)})


def _new_values(study_uid: str, growth: Growth, now: float) -> dict[str, Any]:
    first = growth.arrivals[0].instance
    return {
        **_open_values(growth, now, now),
        "study_instance_uid": study_uid,
        "revision": len(growth.arrivals),
        "open_readings": growth.new_readings,
        "priority": _priority_of(growth),
        "first_received_at": first.received_at,
        "last_received_at": max(arrival.instance.received_at for arrival in growth.arrivals),
        "calling_ae_title": first.calling_ae_title,
        "called_ae_title": first.called_ae_title,
        "peer_address": first.peer_address,
        **codec.decision_values(growth.arrivals[0].decision),
    }


def _open_values(growth: Growth, since: float, now: float) -> dict[str, Any]:
    last = growth.arrivals[-1]
    quiet_until = max(now, min(now + last.quiet_seconds, since + last.maximum_wait_seconds))
    return {
        "state": StudyState.DUE,
        "collecting_since": since,
        "quiet_until": quiet_until,
        "due_at": quiet_until,
        "attempts": 0,
        "lapses": 0,
        **dict.fromkeys(("lease_token", "leased_until", "finished_at", "reason", "detail")),
    }
