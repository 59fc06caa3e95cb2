"""Campaigns: their plans, and the verbs of a person. Each call is one transaction."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, and_, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from hilum.domain import (
    ARCHIVE,
    FILES,
    PICTURES,
    Campaign,
    CampaignImageState,
    CampaignOptions,
    CampaignState,
    ExpectedImage,
    ListRow,
    PlanDoubt,
    PlannedSeries,
    SeriesReason,
    SeriesState,
)
from hilum.store.audit.log import Deed, write_down
from hilum.store.campaigns.rules import CannotRun, after
from hilum.store.database.engines import open_engine, open_reader
from hilum.store.rollouts import manifests as kept_manifests
from hilum.store.rollouts.manifests import KeptManifest
from hilum.store.schema.tables import campaign, campaign_image, campaign_row, campaign_series

_MAXIMUM_DOUBTS: Final = 200  # kept one by one; of the others the number is kept
_ROWS_AT_ONCE: Final = 400
_NOTHING: Final[Mapping[str, str]] = {
    ARCHIVE: "the archive has no closed study as you said; check the other options",
    FILES: "there is no DICOM image in the folder; check its path",
    PICTURES: "the list names no file; check its rows",
}
_UNFINISHED: Final = (CampaignState.RUNNING, CampaignState.PAUSED)


@dataclasses.dataclass(frozen=True, slots=True)
class SkippedOrigin:
    """A file that a plan passes over, with its reason."""

    origin: str
    reason: SeriesReason
    detail: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class PlanPart:
    """A part of a plan that is written in one transaction.

    `cursor`: the plan continues after it. `images`: of each series, those that are known already.
    `keys`: the digest of each row's identifier, by the row's number. `skipped`: files that are not
    read; they are kept for the export.
    """

    cursor: str
    series: Sequence[tuple[PlannedSeries, Sequence[ExpectedImage]]]
    doubts: Sequence[PlanDoubt] = ()
    rows: Sequence[ListRow] = ()
    keys: Mapping[int, str] = dataclasses.field(default_factory=dict)
    skipped: Sequence[SkippedOrigin] = ()


class Campaigns:
    """The campaigns of the ledger at an SQLAlchemy URL. Thread-safe."""

    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        self._engine = open_engine(url)
        self._reader = open_reader(url)
        self._clock = clock

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()
        self._reader.dispose()

    def all(self) -> list[Campaign]:
        """Return every campaign, the newest first."""
        with self._reader.connect() as connection:
            rows = connection.execute(select(campaign).order_by(campaign.c.id.desc()))
            return [campaign_of(row) for row in rows]

    def find(self, name: str) -> Campaign | None:
        """Return the campaign of this name, or None."""
        with self._reader.connect() as connection:
            row = connection.execute(select(campaign).where(campaign.c.name == name)).first()
            return None if row is None else campaign_of(row)

    def releases(self) -> frozenset[str]:
        """Return the releases of campaigns that run or are paused: analysers keep them loaded."""
        query = select(campaign.c.release).where(
            campaign.c.state.in_(_UNFINISHED), campaign.c.release.is_not(None)
        )
        with self._reader.connect() as connection:
            return frozenset(connection.execute(query.distinct()).scalars())

    def is_read_by(self, release: str) -> bool:
        """Return whether any campaign, also an ended one, reads by this release."""
        query = select(campaign.c.id).where(campaign.c.release == release).limit(1)
        with self._reader.connect() as connection:
            return connection.execute(query).first() is not None

    def create(self, name: str, source: str, request: Mapping[str, Any]) -> Campaign:
        """Return the campaign to plan: a new one, or one whose plan was interrupted.

        Other options replace a plan that has found nothing yet, so that a mistyped path costs no
        name. Raises CannotRun for another plan under this name.
        """
        known = self.find(name)
        if known is not None and self._is_replaceable(known, source, request):
            self.forget(name)
            known = None
        if known is None:
            try:
                with self._engine.begin() as connection:
                    connection.execute(insert(campaign).values(self._new(name, source, request)))
            except IntegrityError as error:
                raise CannotRun(f"another command plans {name} at this moment") from error
            known = self._found(name)
        if known.state is not CampaignState.PLANNING:
            raise CannotRun(f"there is a campaign {name} already ({known.state}): use another name")
        if (known.source, dict(known.request)) != (source, dict(request)):
            raise CannotRun(
                f"the plan of {name} was begun with other options: give the same ones, or run"
                f" `hilum campaign forget {name}` first"
            )
        return known

    def _is_replaceable(self, known: Campaign, source: str, request: Mapping[str, Any]) -> bool:
        same = (known.source, dict(known.request)) == (source, dict(request))
        return known.state is CampaignState.PLANNING and not same and not self._has_series(known)

    def _has_series(self, known: Campaign) -> bool:
        query = select(campaign_series.c.id).where(campaign_series.c.campaign_id == known.id)
        with self._reader.connect() as connection:
            return connection.execute(query.limit(1)).first() is not None

    def _new(self, name: str, source: str, request: Mapping[str, Any]) -> dict[str, Any]:
        now = self._clock()
        return {
            "name": name,
            "source": source,
            "state": CampaignState.PLANNING,
            "request": dict(request),
            "options": {},
            "doubts": [],
            "created_at": now,
            "changed_at": now,
        }

    def _found(self, name: str) -> Campaign:
        known = self.find(name)
        if known is None:
            raise CannotRun(f"there is no campaign {name}: `hilum campaign list` shows all")
        return known

    def add(self, campaign_id: int, part: PlanPart) -> int:
        """Write one part of a plan, and return how many series are new in it."""
        now = self._clock()
        with self._engine.begin() as connection:
            row = connection.execute(
                select(campaign).where(campaign.c.id == campaign_id).with_for_update()
            ).first()
            if row is None:
                raise CannotRun("this plan was forgotten by another command: plan it again")
            if row.state != CampaignState.PLANNING:
                raise CannotRun(f"campaign {row.name} is {row.state}: its plan is over")
            added = _add_series(connection, campaign_id, part.series, now)
            _add_rows(connection, campaign_id, part)
            _add_skipped(connection, campaign_id, part.skipped, now)
            values = {
                "plan_cursor": part.cursor,
                "doubts": _with_doubts(row.doubts, part.doubts),
                "changed_at": now,
            }
            connection.execute(update(campaign).where(campaign.c.id == campaign_id).values(values))
        return added

    def images_since(self, source: str, moment: float) -> int:
        """Return how many images all campaigns have asked a source for since that moment."""
        query = (
            select(func.count())
            .select_from(campaign_image)
            .join(campaign_series, campaign_series.c.id == campaign_image.c.series_id)
            .join(campaign, campaign.c.id == campaign_series.c.campaign_id)
            .where(
                campaign.c.source == source,
                campaign_series.c.requested_at >= moment,
                campaign_image.c.is_fetched.is_(True),
            )
        )
        with self._reader.connect() as connection:
            return int(connection.execute(query).scalar_one())

    def end_plan(self, name: str) -> Campaign:
        """Fix the plan. Raises CannotRun for a campaign without a series."""
        known = self._found(name)
        some = (
            select(campaign_series.c.id)
            .where(
                campaign_series.c.campaign_id == known.id,
                campaign_series.c.state == SeriesState.FOUND,
            )
            .limit(1)
        )
        with self._engine.begin() as connection:
            if connection.execute(some).first() is None:
                raise CannotRun(f"nothing to read was found for {name}: {_nothing(known.source)}")
            _set_state(connection, known, CampaignState.PLANNED, self._clock())
        return self._found(name)

    def forget(self, name: str) -> None:
        """Delete a campaign that never ran, so that its name is free."""
        known = self._found(name)
        if known.started_at is not None:
            raise CannotRun(f"campaign {name} has run: its rows stay")
        with self._engine.begin() as connection:
            for table in (campaign_image, campaign_row, campaign_series):
                connection.execute(table.delete().where(table.c.campaign_id == known.id))
            connection.execute(campaign.delete().where(campaign.c.id == known.id))

    def run(
        self,
        name: str,
        release: str,
        options: CampaignOptions,
        manifest: KeptManifest | None,
        deed: Deed | None = None,
    ) -> Campaign:
        """Begin a planned campaign. `manifest`: of a release that is new to the ledger.

        Raises CannotRun, and CannotRollOut for a release that was edited.
        """
        known = self._found(name)
        if known.state in _UNFINISHED and (known.release, known.options) == (release, options):
            is_running = known.state is CampaignState.RUNNING
            return known if is_running else self.change(name, "resume", deed)
        state = after(known, "run")
        now = self._clock()
        values = {"release": release, "options": dataclasses.asdict(options), "started_at": now}
        with self._engine.begin() as connection:
            if manifest is not None:
                kept_manifests.propose(connection, manifest, now)
            _set_state(connection, known, state, now, values)
            write_down(deed, connection, now)
        return self._found(name)

    def change(self, name: str, verb: str, deed: Deed | None = None) -> Campaign:
        """Pause, resume or cancel a campaign. Raises CannotRun."""
        known = self._found(name)
        state = after(known, verb)
        now = self._clock()
        with self._engine.begin() as connection:
            _set_state(connection, known, state, now)
            write_down(deed, connection, now)
        return self._found(name)

    def retry(self, name: str, deed: Deed | None = None) -> int:
        """Begin the dead series again, and return their number. Raises CannotRun."""
        known = self._found(name)
        if known.state in (CampaignState.PLANNING, CampaignState.PLANNED, CampaignState.CANCELLED):
            raise CannotRun(f"campaign {name} is {known.state}: nothing of it is dead")
        now = self._clock()
        dead = and_(
            campaign_series.c.campaign_id == known.id,
            campaign_series.c.state == SeriesState.DEAD,
            campaign_series.c.reason.is_distinct_from(SeriesReason.ERASED),
        )
        missing = and_(
            campaign_image.c.campaign_id == known.id,
            campaign_image.c.state == CampaignImageState.MISSING,
            campaign_image.c.series_id.in_(select(campaign_series.c.id).where(dead)),
        )
        expected = {"state": CampaignImageState.EXPECTED, "reason": None, "detail": None}
        again = {
            "state": SeriesState.FOUND,
            "attempts": 0,
            "interruptions": 0,
            "due_at": now,
            "reason": None,
            "detail": None,
            "finished_at": None,
        }
        with self._engine.begin() as connection:
            connection.execute(update(campaign_image).where(missing).values(expected))
            count = connection.execute(update(campaign_series).where(dead).values(again)).rowcount
            if count and known.state is CampaignState.FINISHED:
                _set_state(connection, known, CampaignState.RUNNING, now, {"finished_at": None})
            write_down(deed, connection, now, int(count))
        return int(count)

    def own(self, owner: str, seconds: float) -> list[Campaign]:
        """Lease the campaigns that this process fetches for; return those that it holds.

        A lease is renewed when half of it is over: each renewal is a synced transaction. Cancelled
        ones are among them until the images that were received have been read.
        """
        now = self._clock()
        is_open = or_(
            campaign.c.state.in_(_UNFINISHED),
            and_(
                campaign.c.state == CampaignState.CANCELLED,
                campaign.c.started_at.is_not(None),
                campaign.c.finished_at.is_(None),
            ),
        )
        is_free = or_(
            campaign.c.owner.is_(None),
            campaign.c.owner == owner,
            campaign.c.owned_until < now,
            campaign.c.owned_until > now + 10 * seconds,  # a clock was set back
        )
        is_fresh = and_(
            campaign.c.owner == owner,
            campaign.c.owned_until > now + seconds / 2,
            campaign.c.owned_until <= now + seconds,
        )
        to_lease = and_(is_open, is_free, or_(campaign.c.owner.is_(None), ~is_fresh))
        lease = {"owner": owner, "owned_until": now + seconds}
        mine = select(campaign).where(is_open, campaign.c.owner == owner).order_by(campaign.c.id)
        with self._reader.connect() as connection:
            if connection.execute(select(campaign.c.id).where(to_lease)).first() is None:
                return [campaign_of(row) for row in connection.execute(mine)]
        with self._engine.begin() as connection:
            connection.execute(update(campaign).where(to_lease).values(lease))
            return [campaign_of(row) for row in connection.execute(mine)]

    def give_back(self, owner: str) -> None:
        """End the leases of this process."""
        with self._engine.begin() as connection:
            mine = campaign.c.owner == owner
            connection.execute(
                update(campaign).where(mine).values({"owner": None, "owned_until": None})
            )

    def end(self, campaign_id: int, detail: str = "") -> None:
        """Mark a campaign whose series have all ended; a cancelled one stays cancelled."""
        now = self._clock()
        row = campaign.c.id == campaign_id
        running = and_(row, campaign.c.state == CampaignState.RUNNING)
        with self._engine.begin() as connection:
            connection.execute(
                update(campaign).where(row).values(finished_at=now, changed_at=now, detail=detail)
            )
            connection.execute(update(campaign).where(running).values(state=CampaignState.FINISHED))

    def note(self, campaign_id: int, detail: str) -> None:
        """Set the sentence that says why a campaign waits; empty: it does not."""
        row = and_(campaign.c.id == campaign_id, campaign.c.detail != detail)
        with self._engine.begin() as connection:
            connection.execute(update(campaign).where(row).values(detail=detail))


def _nothing(source: str) -> str:
    """Return the remedy where a source has no series for a plan."""
    return _NOTHING.get(source, "check the dates or the list, and --modality")


def campaign_of(row: Row[Any]) -> Campaign:
    """Return the campaign of a row."""
    options = dict(row.options)
    hours = options.get("hours")
    return Campaign(
        id=row.id,
        name=row.name,
        source=row.source,
        state=CampaignState(row.state),
        request=row.request,
        created_at=row.created_at,
        changed_at=row.changed_at,
        release=row.release,
        options=CampaignOptions(
            bool(options.get("delivers")), None if hours is None else tuple(hours)
        ),
        doubts=tuple(PlanDoubt(*item) for item in row.doubts),
        detail=row.detail,
        plan_cursor=row.plan_cursor,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )


def _set_state(
    connection: Connection,
    known: Campaign,
    state: CampaignState,
    now: float,
    values: Mapping[str, Any] | None = None,
) -> None:
    """Change the state, unless another process has changed it since it was read."""
    same: ColumnElement[bool] = and_(campaign.c.id == known.id, campaign.c.state == known.state)
    written = {**(values or {}), "state": state, "changed_at": now}
    if not connection.execute(update(campaign).where(same).values(written)).rowcount:
        raise CannotRun(f"campaign {known.name} was changed at the same moment: look, then repeat")


def _with_doubts(known: Sequence[Any], new: Iterable[PlanDoubt]) -> list[list[str]]:
    """Return the doubts, each once. Beyond a maximum the last one counts the others."""
    kept = [list(item) for item in known]
    for doubt in new:
        item = [doubt.text, doubt.day]
        if item in kept:
            continue
        if len(kept) < _MAXIMUM_DOUBTS:
            kept.append(item)
        elif len(kept) == _MAXIMUM_DOUBTS:
            kept.append(["1 more doubt that is not listed", ""])
        else:
            count = int(kept[-1][0].partition(" ")[0]) + 1
            kept[-1] = [f"{count} more doubts that are not listed", ""]
    return kept


def _add_series(
    connection: Connection,
    campaign_id: int,
    series: Sequence[tuple[PlannedSeries, Sequence[ExpectedImage]]],
    now: float,
) -> int:
    """Insert series that are new, and the images that are known of each."""
    known = _known_series(connection, campaign_id, [item for item, _ in series])
    new: dict[tuple[str, str], PlannedSeries] = {}
    for item, _ in series:
        key = (item.study_instance_uid, item.series_instance_uid)
        if key not in known:
            new.setdefault(key, item)
    if new:
        rows = [_series_values(campaign_id, item, now) for item in new.values()]
        connection.execute(insert(campaign_series), rows)
        known |= _known_series(connection, campaign_id, list(new.values()))
    images = [
        _image_values(
            campaign_id, known[(item.study_instance_uid, item.series_instance_uid)], image
        )
        for item, expected in series
        for image in expected
    ]
    add_images(connection, images)
    return len(new)


def add_images(connection: Connection, images: Sequence[Mapping[str, Any]]) -> None:
    """Insert images that have no row yet; a plan or a listing may be repeated after a crash."""
    unique = {(row["series_id"], row["sop_instance_uid"], row["origin"]): row for row in images}
    series = sorted({key[0] for key in unique})
    for start in range(0, len(series), _ROWS_AT_ONCE):
        query = select(
            campaign_image.c.series_id,
            campaign_image.c.sop_instance_uid,
            campaign_image.c.origin,
        ).where(campaign_image.c.series_id.in_(series[start : start + _ROWS_AT_ONCE]))
        for row in connection.execute(query):
            unique.pop(tuple(row), None)
    if unique:
        connection.execute(insert(campaign_image), list(unique.values()))


def _known_series(
    connection: Connection, campaign_id: int, series: Sequence[PlannedSeries]
) -> dict[tuple[str, str], int]:
    uids = sorted({item.study_instance_uid for item in series})
    found: dict[tuple[str, str], int] = {}
    for start in range(0, len(uids), _ROWS_AT_ONCE):
        query = select(
            campaign_series.c.id,
            campaign_series.c.study_instance_uid,
            campaign_series.c.series_instance_uid,
        ).where(
            campaign_series.c.campaign_id == campaign_id,
            campaign_series.c.study_instance_uid.in_(uids[start : start + _ROWS_AT_ONCE]),
        )
        for row in connection.execute(query):
            found[(row.study_instance_uid, row.series_instance_uid)] = row.id
    return found


def _series_values(campaign_id: int, item: PlannedSeries, now: float) -> dict[str, Any]:
    return {
        **dataclasses.asdict(item),
        "campaign_id": campaign_id,
        "state": SeriesState.FOUND,
        "due_at": now,
    }


def _image_values(campaign_id: int, series_id: int, image: ExpectedImage) -> dict[str, Any]:
    return {
        "campaign_id": campaign_id,
        "series_id": series_id,
        "sop_instance_uid": image.sop_instance_uid,
        "sop_class_uid": image.sop_class_uid,
        "origin": image.origin,
        "state": CampaignImageState.EXPECTED,
        "is_fetched": False,
    }


def _add_skipped(
    connection: Connection, campaign_id: int, skipped: Sequence[SkippedOrigin], now: float
) -> None:
    """Keep files that are not read as missing images of one series without UIDs."""
    if not skipped:
        return
    apart = PlannedSeries("", "")
    found = _known_series(connection, campaign_id, [apart])
    if ("", "") not in found:
        values = _series_values(campaign_id, apart, now)
        ended = {"state": SeriesState.NOTHING_TO_READ, "finished_at": now}
        connection.execute(insert(campaign_series), [{**values, **ended}])
        found = _known_series(connection, campaign_id, [apart])
    rows = [
        {
            **_image_values(campaign_id, found["", ""], ExpectedImage("", origin=item.origin)),
            "state": CampaignImageState.MISSING,
            "reason": item.reason,
            "detail": item.detail,
        }
        for item in skipped
    ]
    add_images(connection, rows)


def _add_rows(connection: Connection, campaign_id: int, part: PlanPart) -> None:
    """Write the outcomes of rows; a repetition writes the same."""
    numbers = [row.number for row in part.rows]
    for start in range(0, len(numbers), _ROWS_AT_ONCE):
        connection.execute(
            campaign_row.delete().where(
                campaign_row.c.campaign_id == campaign_id,
                campaign_row.c.number.in_(numbers[start : start + _ROWS_AT_ONCE]),
            )
        )
    if part.rows:
        values = [
            {
                "campaign_id": campaign_id,
                "number": row.number,
                "key": part.keys.get(row.number, ""),
                "outcome": row.outcome,
                "detail": row.detail,
                "study_instance_uids": list(row.study_instance_uids),
            }
            for row in part.rows
        ]
        connection.execute(insert(campaign_row), values)
