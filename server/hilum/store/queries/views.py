"""Read-only queries of people and monitors.

Each answer is one snapshot, and no longer than the requested limit. Answers are plain dictionaries
of JSON values; times are seconds since the epoch, as in the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, and_, func, select, true

from hilum.domain import AccessToken, CommitmentState, Host, Priority
from hilum.settings import Destination
from hilum.store.admin import conflicts
from hilum.store.audit import access_tokens
from hilum.store.database.clocks import moment_in
from hilum.store.database.engines import read_only
from hilum.store.installation import heartbeats
from hilum.store.intake import known_images
from hilum.store.intake.known_images import KnownDataSet
from hilum.store.queries import changes, comparisons, exports, headers, pages, retention
from hilum.store.queries import destinations as destination_views
from hilum.store.queries import queues as queue_views
from hilum.store.queries import rules as rule_views
from hilum.store.queries import studies as study_views
from hilum.store.queries import study as study_detail
from hilum.store.queries import withheld as withheld_views
from hilum.store.queries.campaign_views import CampaignViews
from hilum.store.queries.comparisons import Comparisons
from hilum.store.queries.exports import ExportedStudy, StudyKey, StudySelection
from hilum.store.queries.headers import StoredHeader
from hilum.store.queries.retention import Promised, RetentionState
from hilum.store.queries.rules import DecidedStudy
from hilum.store.queries.studies import StudyFilter
from hilum.store.queue import asked_commitments, commitments, rejections
from hilum.store.queue.queues import in_state
from hilum.store.schema import cursor as cursors
from hilum.store.schema.tables import (
    association,
    commitment,
    conflict,
    instance,
    rollout_event,
    study,
)

__all__ = ["LedgerViews", "StudyFilter"]

Item = dict[str, Any]


class LedgerViews(CampaignViews):
    """The ledger at an SQLAlchemy URL, read-only.

    Thread-safe. Every method raises Retry while the ledger does not answer.
    """

    def ping(self) -> None:
        """Return if the ledger can be read."""
        with self._snapshot() as connection:
            connection.execute(select(study.c.id).limit(1)).first()

    def access_token(self, *, digest: str = "", name: str = "") -> AccessToken | None:
        """The token of this digest or name, valid or not."""
        with self._snapshot() as connection:
            return access_tokens.find(connection, digest=digest, name=name)

    def access_tokens(self) -> list[AccessToken]:
        """Every token, also those that have ended, by name."""
        with self._snapshot() as connection:
            return access_tokens.all_tokens(connection)

    def list_studies(
        self, chosen: StudyFilter, *, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[Item], str | None]:
        """One page of studies and the cursor of the next, by last image received.

        Raises BadCursor.
        """
        with self._snapshot() as connection:
            return study_views.page(connection, chosen, limit, cursor)

    def list_changed(self, *, limit: int = 50, cursor: str | None = None) -> tuple[list[Item], str]:
        """One page of studies in the order of their changes, and the next cursor.

        See `queries/changes`. Raises BadCursor.
        """
        with self._snapshot() as connection:
            return changes.page(connection, limit, cursor)

    def study(self, study_instance_uid: str) -> Item | None:
        """Everything about one study, or None.

        Images with readings, all results with documents and deliveries, times.
        """
        with self._snapshot() as connection:
            return study_detail.detail(connection, study_instance_uid)

    def has_study(self, study_instance_uid: str) -> bool:
        """True if the study was ever recorded."""
        with self._snapshot() as connection:
            return study_detail.exists(connection, study_instance_uid)

    def study_of(self, sop_instance_uid: str) -> str | None:
        """Study Instance UID of an image, or of a report of ours.

        None: there is no such object.
        """
        with self._snapshot() as connection:
            return study_detail.study_of(connection, sop_instance_uid)

    def decided_study(self, study_instance_uid: str) -> DecidedStudy | None:
        """One study with its first image and the decision of the rules, or None."""
        with self._snapshot() as connection:
            return rule_views.decided_study(connection, study_instance_uid)

    def last_decided(self, before: int | None, limit: int) -> list[DecidedStudy]:
        """Studies before this row id, newest first: see `rules.last_decided`."""
        with self._snapshot() as connection:
            return rule_views.last_decided(connection, before, limit)

    def rule_matches(self, rules: Collection[str]) -> tuple[float | None, dict[str, float]]:
        """When rules first decided about a study, and when each of these last did, by name."""
        with self._snapshot() as connection:
            first = rule_views.first_decision(connection)
            return first, rule_views.last_matches(connection, rules)

    def headers_before(
        self, row_id: int | None, since: float | None = None, limit: int = 500
    ) -> list[StoredHeader]:
        """Headers of images before this one, newest first: see `headers.before`.

        None: begin with the newest.
        """
        with self._snapshot() as connection:
            return headers.before(connection, row_id, since, limit)

    def headers_of(self, study_instance_uid: str, row_id: int) -> list[StoredHeader]:
        """Headers of images of one study, from this row id on."""
        with self._snapshot() as connection:
            return headers.of_study(connection, study_instance_uid, row_id)

    def newest_headers(self, study_instance_uids: Sequence[str]) -> list[StoredHeader]:
        """The header of the newest image of each of these studies, where it has one."""
        with self._snapshot() as connection:
            return headers.newest(connection, study_instance_uids)

    def whole_header(self, row_id: int) -> bytes:
        """All of an image's header; empty: it was erased meanwhile."""
        with self._snapshot() as connection:
            return headers.whole(connection, row_id)

    def last_study(self) -> int:
        """Row id of the newest study; 0: there is none."""
        with self._snapshot() as connection:
            return exports.last_study(connection)

    def release_of_campaign(self, campaign_id: int) -> str | None:
        """The release of a campaign; None: it has never run."""
        with self._snapshot() as connection:
            return exports.release_of_campaign(connection, campaign_id)

    def export_page(
        self, chosen: StudySelection, after: StudyKey | None, until: int, limit: int
    ) -> tuple[list[str], StudyKey | None]:
        """Study Instance UIDs of one page, and the key of the last: see `exports.page`."""
        with self._snapshot() as connection:
            return exports.page(connection, chosen, after, until, limit)

    def exported(self, chosen: StudySelection, uids: Sequence[str]) -> list[ExportedStudy]:
        """These studies with the rows for an export."""
        with self._snapshot() as connection:
            return exports.studies(connection, chosen, uids)

    def documents(self, study_instance_uid: str) -> list[Item] | None:
        """All documents of a study without their bytes, oldest first; None: no such study."""
        with self._snapshot() as connection:
            if not study_detail.exists(connection, study_instance_uid):
                return None
            return study_detail.documents(connection, study_instance_uid)

    def document(self, key: int | str) -> Item | None:
        """One document with its `content`, by row id or by SOP Instance UID."""
        with self._snapshot() as connection:
            return study_detail.document_bytes(connection, key)

    def associations(
        self, *, outcome: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[Item], str | None]:
        """One page of associations, newest first, and the cursor of the next. Raises BadCursor."""
        condition = true() if outcome is None else association.c.outcome == outcome
        with self._snapshot() as connection:
            return _page(connection, association, "started_at", condition, limit, cursor)

    def rejections_without_effect(self) -> list[Item]:
        """Images that rejection notes name and that stay in results.

        They are other senders' images; sorted by the note's arrival.
        """
        with self._snapshot() as connection:
            return rejections.without_effect(connection)

    def conflicts(
        self, *, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[Item], str | None]:
        """One page of objects in quarantine, newest first, and the cursor of the next.

        Raises BadCursor.
        """
        with self._snapshot() as connection:
            found, following = _page(connection, conflict, "received_at", true(), limit, cursor)
            return conflicts.with_studies(connection, found), following

    def commitments(
        self, *, state: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[Item], str | None]:
        """One page of requests for storage commitment, newest first, and the next cursor.

        Raises BadCursor.
        """
        condition = true() if state is None else _in_state(CommitmentState(state))
        with self._snapshot() as connection:
            found, following = _page(
                connection, commitment, "requested_at", condition, limit, cursor
            )
            return [commitments.described(item) for item in found], following

    def queues(self) -> list[Item]:
        """Depth and age of every queue: an item a stage, priority and, for deliver, destination."""
        with self._snapshot() as connection:
            return queue_views.queues(connection, self._clock())

    def priorities_since(self, since: float) -> dict[Priority, int]:
        """Studies of each priority that got an image since then."""
        with self._snapshot() as connection:
            return study_views.priorities_since(connection, since)

    def uncommitted(self) -> dict[str, tuple[int, float]]:
        """Documents that a destination has not committed to keep yet: see `waiting`.

        Their number, and the age of the oldest one in seconds.
        """
        with self._snapshot() as connection:
            now = self._clock()
            found = asked_commitments.waiting(connection)
            return {name: (count, max(0.0, now - since)) for name, (count, since) in found.items()}

    def destination_states(self, configured: Mapping[str, Destination]) -> list[Item]:
        """Every destination with its queue, by name."""
        with self._snapshot() as connection:
            return destination_views.states(connection, configured, self._clock())

    def withheld(
        self, destinations: Mapping[str, Destination], study_uid: str | None = None
    ) -> list[Item]:
        """Withheld deliveries by destination and reason, and how many `requeue` would release.

        See `withheld.withheld`.
        """
        with self._snapshot() as connection:
            return withheld_views.withheld(connection, destinations, study_uid)

    def digests(self, sop_instance_uids: Sequence[str]) -> dict[str, str]:
        """The digest of the data set of each of these objects with pixels in the archive.

        By SOP Instance UID.
        """
        chosen = and_(
            instance.c.sop_instance_uid.in_(sop_instance_uids),
            instance.c.pixels_removed_at.is_(None),
        )
        with self._snapshot() as connection:
            found = connection.execute(
                select(instance.c.sop_instance_uid, instance.c.digest).where(chosen)
            )
            return {row.sop_instance_uid: row.digest for row in found}

    def known_data_sets(self, sop_instance_uid: str) -> list[KnownDataSet]:
        """Data sets of an image that need not be sent again.

        The image's own, those that a corrected header has replaced, and those that were put aside.
        """
        with self._snapshot() as connection:
            return known_images.known_data_sets(connection, sop_instance_uid)

    def due_readings(self, at_most: int) -> int:
        """Due readings of the priorities urgent and live, counted up to `at_most`."""
        with self._snapshot() as connection:
            return queue_views.due_readings(connection, at_most)

    def stuck(self) -> list[Item]:
        """Items that need a person, counted by stage, reason and destination."""
        with self._snapshot() as connection:
            return queue_views.stuck(connection)

    def outcomes(self, since: float) -> list[Item]:
        """Results stored since then, counted by release, outcome and reason."""
        with self._snapshot() as connection:
            return queue_views.outcomes(connection, since)

    def destinations(self) -> list[Item]:
        """Used destinations: the dispatcher of each, and whether a person paused it."""
        with self._snapshot() as connection:
            return pages.destinations(connection)

    def failing(self, before: float) -> list[Item]:
        """Destinations that have not taken documents written before that time.

        Each with the error of the last try.
        """
        with self._snapshot() as connection:
            return queue_views.failing(connection, before)

    def processes(self) -> list[Item]:
        """Heartbeats, by name; `age_seconds` is the time since the last."""
        with self._snapshot() as connection:
            return heartbeats.processes(connection, self._clock())

    def is_read_only(self) -> bool:
        """Whether the ledger's server takes no writes now, as a standby of PostgreSQL."""
        with self._snapshot() as connection:
            return read_only(connection)

    def hosts(self) -> list[Host]:
        """Servers with a heartbeat, by host, with the facts in it."""
        with self._snapshot() as connection:
            return heartbeats.hosts(connection, moment_in(connection, self._clock))

    def front(
        self,
        chosen: StudyFilter,
        *,
        limit: int,
        cursor: str | None,
        failing_before: float,
        configured: Mapping[str, Destination],
    ) -> Item:
        """Everything on the front page, as one state of the ledger: see `pages.front`.

        Raises BadCursor.
        """
        with self._snapshot() as connection:
            return pages.front(
                connection, chosen, limit, cursor, self._clock(), failing_before, configured
            )

    def lines(self, study_instance_uids: Sequence[str]) -> list[Item]:
        """These studies as the front page lists them, in the order of the UIDs.

        A study that is not there is left out.
        """
        with self._snapshot() as connection:
            return pages.lines(connection, study_instance_uids)

    def stored_image(self, study_instance_uid: str, sop_instance_uid: str) -> Item | None:
        """The place of the pixels of an image of this study; None: no such image."""
        with self._snapshot() as connection:
            return pages.stored_image(connection, study_instance_uid, sop_instance_uid)

    def rollouts(self) -> list[Item]:
        """Every alias that was ever changed, by name."""
        with self._snapshot() as connection:
            return pages.rollouts(connection)

    def rollout_events(self, alias: str, limit: int = 50) -> list[Item]:
        """Events of an alias, newest first."""
        query = (
            select(rollout_event)
            .where(rollout_event.c.alias == alias)
            .order_by(rollout_event.c.id.desc())
            .limit(limit)
        )
        with self._snapshot() as connection:
            return [row._asdict() for row in connection.execute(query)]

    def last_compared(self, releases: Collection[str]) -> tuple[str, str] | None:
        """The release reported and its shadow, both of these, that were compared last."""
        with self._snapshot() as connection:
            return comparisons.last_pair(connection, releases)

    def last_read_along(self, releases: Collection[str]) -> tuple[str, str] | None:
        """The release reported, whichever it is, and one of these that was its last shadow."""
        with self._snapshot() as connection:
            return comparisons.last_read_along(connection, releases)

    def compared(self, release: str, shadow: str, limit: int) -> Comparisons:
        """Outputs of both releases for the studies that were compared last."""
        with self._snapshot() as connection:
            return comparisons.compared(connection, release, shadow, limit)

    def retention_state(self) -> RetentionState:
        """The state of deletion."""
        with self._snapshot() as connection:
            return retention.state(connection, self._clock())

    def promised(self) -> Promised:
        """Images that storage commitment has promised and that are there."""
        with self._snapshot() as connection:
            return retention.promised(connection)

    def totals(self) -> dict[str, int]:
        """Studies and instances recorded since the installation.

        Highest row numbers, not counts: counting ten million rows at each scrape would cost a
        second.
        """
        with self._snapshot() as connection:
            highest = select(
                *(
                    select(func.coalesce(func.max(table.c.id), 0)).scalar_subquery()
                    for table in (study, instance)
                )
            )
            studies, instances = connection.execute(highest).one()
            return {"studies": studies, "instances": instances}


def _page(
    connection: Connection,
    table: Table,
    moment: str,
    condition: ColumnElement[bool],
    limit: int,
    after: str | None,
) -> tuple[list[Item], str | None]:
    """Rows of a table that only grows, newest first.

    The order is that of the row ids, so nothing is missed or repeated.
    """
    query = select(table).where(condition).order_by(table.c.id.desc()).limit(limit + 1)
    if after is not None:
        _, row_id = cursors.decode(table.name, after)
        query = query.where(table.c.id < row_id)
    rows = [row._asdict() for row in connection.execute(query)]
    following = (
        cursors.encode(table.name, float(rows[limit - 1][moment]), rows[limit - 1]["id"])
        if len(rows) > limit
        else None
    )
    return rows[:limit], following


def _in_state(state: CommitmentState) -> ColumnElement[bool]:
    """A condition on the row ids of one state, by the partial indexes.

    Without it SQLite walks the table in its order, to the end if there are none.
    """
    if state is CommitmentState.REPORTED:
        return commitment.c.state == state
    few = commitment.alias("few")
    return commitment.c.id.in_(select(few.c.id).where(in_state(few, state)))
