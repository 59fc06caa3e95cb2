"""Studies that two releases have read, with both results, for a comparison."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Select, and_, select

from hilum.domain import Result, ResultState
from hilum.store.database.engines import open_reader
from hilum.store.schema import codec
from hilum.store.schema.tables import campaign_series, result

_TOGETHER = 200
_SPOKEN = (ResultState.REPORTED, ResultState.SHADOW, ResultState.DUE, ResultState.LEASED)


@dataclass(frozen=True, slots=True)
class Pair:
    """The newest results of two releases on one study."""

    study_instance_uid: str
    first: Result
    second: Result


class Pairs:
    """Queries on the ledger at an SQLAlchemy URL."""

    def __init__(self, url: str) -> None:
        self._reader = open_reader(url)

    def close(self) -> None:
        """Give the connections back."""
        self._reader.dispose()

    def pairs(self, campaign_id: int | None, first: str, second: str) -> Iterator[Pair]:
        """Yield the studies of a campaign that both have read; None: all studies.

        In the order of the first release's results, some at a time.
        """
        after = 0
        while True:
            with self._reader.connect() as connection:
                rows = connection.execute(_of(first, campaign_id, after)).all()
                if not rows:
                    return
                after = rows[-1].id
                uids = [row.study_instance_uid for row in rows]
                others = connection.execute(
                    select(result)
                    .where(
                        result.c.study_instance_uid.in_(uids),
                        result.c.release == second,
                        result.c.state.in_(_SPOKEN),
                    )
                    .order_by(result.c.id)
                )
                theirs = {row.study_instance_uid: row for row in others}
            for row in rows:
                if (other := theirs.get(row.study_instance_uid)) is not None:
                    yield Pair(row.study_instance_uid, codec.result_of(row), codec.result_of(other))


def _of(release: str, campaign_id: int | None, after: int) -> Select[tuple[object, ...]]:
    chosen = [
        result.c.release == release,
        result.c.is_current.is_(True),
        result.c.state != ResultState.ERASED,
        result.c.id > after,
    ]
    if campaign_id is not None:
        planned = select(campaign_series.c.id).where(
            campaign_series.c.campaign_id == campaign_id,
            campaign_series.c.study_instance_uid == result.c.study_instance_uid,
        )
        chosen.append(planned.exists())
    return select(result).where(and_(*chosen)).order_by(result.c.id).limit(_TOGETHER)
