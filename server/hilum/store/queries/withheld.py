"""Withheld deliveries as people ask for them.

Their number by reason, and how many the settings keep back no longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, select, true

from hilum.domain import DeliveryState
from hilum.settings import Destination
from hilum.store.queue.queues import in_state
from hilum.store.queue.requeue import SUBJECT, WITH_STUDY, subject_of
from hilum.store.schema.tables import delivery, result
from hilum.withheld_reports import BY_REASON, advice_of, cause_of

Item = dict[str, Any]
_GROUPS = (delivery.c.destination, delivery.c.reason)
_COUNTS = (
    select(*_GROUPS, func.count().label("items"), func.min(delivery.c.finished_at).label("since"))
    .group_by(*_GROUPS)
    .order_by(*_GROUPS)
)


def withheld(
    connection: Connection, destinations: Mapping[str, Destination], study_uid: str | None = None
) -> list[Item]:
    """Withheld deliveries by destination and reason, of one study or of all.

    `releasable`: the number that `requeue` would release by these settings. Studies are looked at
    only for destinations whose settings may have changed: a destination may have withheld a million
    reports.
    """
    is_withheld = in_state(delivery, DeliveryState.WITHHELD)
    of_study = true() if study_uid is None else result.c.study_instance_uid == study_uid
    table = delivery if study_uid is None else WITH_STUDY
    rows = connection.execute(_COUNTS.select_from(table).where(is_withheld, of_study)).all()
    free: Counter[tuple[str, str]] = Counter()
    for name, destination in destinations.items():
        free += _releasable(connection, name, destination, and_(is_withheld, of_study))
    return [
        {
            **row._asdict(),
            "releasable": free[row.destination, row.reason],
            "advice": advice_of(row.reason, row.destination),
        }
        for row in rows
    ]


def _releasable(
    connection: Connection, name: str, destination: Destination, chosen: ColumnElement[bool]
) -> Counter[tuple[str, str]]:
    passing = [reason for reason, cause in BY_REASON.items() if cause.may_be_gone(destination)]
    groups = (delivery.c.reason, *SUBJECT)
    query = select(*groups, func.count().label("items")).select_from(WITH_STUDY)
    theirs = query.where(
        chosen, delivery.c.destination == name, delivery.c.reason.in_(passing)
    ).group_by(*groups)
    found: Counter[tuple[str, str]] = Counter()
    for row in connection.execute(theirs):
        if cause_of(destination, subject_of(row)) is None:
            found[name, row.reason] += row.items
    return found
