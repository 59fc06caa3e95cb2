"""Outputs of shadows beside the reported ones, for the decision about a rollout."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, func, select

from hilum.domain import ComparisonState
from hilum.store.schema.tables import comparison


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Comparisons of one pair of releases.

    `said`: for each study [score, shadow's, decision, shadow's] by finding. `states`: the number of
    comparisons by state.
    """

    said: list[Mapping[str, tuple[float, float, str, str]]]
    states: Mapping[str, int]


def compared(connection: Connection, release: str, shadow: str, limit: int) -> Comparisons:
    """The last compared studies, at most `limit`, and the number of comparisons by state."""
    of_pair = and_(comparison.c.release == release, comparison.c.shadow == shadow)
    counts = (
        select(comparison.c.state, func.count().label("studies"))
        .where(of_pair)
        .group_by(comparison.c.state)
    )
    latest = select(comparison.c.content).where(
        of_pair, comparison.c.state == ComparisonState.COMPARED
    )
    rows = connection.execute(
        latest.order_by(comparison.c.finished_at.desc()).limit(limit)
    ).scalars()
    return Comparisons(
        [row for row in rows if row], {row.state: row.studies for row in connection.execute(counts)}
    )


def last_pair(connection: Connection, releases: Collection[str]) -> tuple[str, str] | None:
    """The release reported and its shadow, both of these, of the newest comparison."""
    of_both = and_(comparison.c.release.in_(releases), comparison.c.shadow.in_(releases))
    return _newest(connection, of_both)


def last_read_along(connection: Connection, releases: Collection[str]) -> tuple[str, str] | None:
    """As `last_pair`, with any release reported.

    A release that the settings alone name may have read an archive as a shadow.
    """
    return _newest(connection, comparison.c.shadow.in_(releases))


def _newest(connection: Connection, chosen: ColumnElement[bool]) -> tuple[str, str] | None:
    query = (
        select(comparison.c.release, comparison.c.shadow)
        .where(chosen)
        .order_by(comparison.c.id.desc())
        .limit(1)
    )
    row = connection.execute(query).first()
    return None if row is None else (row.release, row.shadow)
