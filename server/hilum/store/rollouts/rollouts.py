"""The rows of rollouts: verbs of a person and of the analysers, and queries.

Each verb is one transaction.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from hilum.domain import Rollout, RolloutState, WorkState, alias_of
from hilum.store.audit.log import Deed
from hilum.store.database.engines import begin_part, open_engine, open_reader
from hilum.store.queue.queues import in_state
from hilum.store.rollouts import advertised_releases, reassign, rules
from hilum.store.rollouts import manifests as kept_manifests
from hilum.store.rollouts.assign import rollout_of
from hilum.store.rollouts.manifests import KeptManifest
from hilum.store.rollouts.reassign import Reassignment
from hilum.store.rollouts.rules import CannotRollOut, RolloutRequest
from hilum.store.schema.tables import assignment, reading, rollout, rollout_event

__all__ = ["CannotRollOut", "RolloutRequest", "Rollouts"]

Item = dict[str, Any]
Change = Callable[[Rollout], Rollout]
Follow = Callable[[Connection, Rollout, Rollout], str]
_COLUMNS = tuple(column.name for column in rollout.c)
_SETTINGS = "settings"


class Rollouts:
    """The rollouts of the ledger at an SQLAlchemy URL. Thread-safe.

    A decision holds for the next image that is recorded.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        self._engine = open_engine(url)
        self._reader = open_reader(url)
        self._clock = clock

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()
        self._reader.dispose()

    def all(self) -> list[Rollout]:
        """Every alias that was ever changed, by name."""
        with self._reader.connect() as connection:
            return [
                rollout_of(row)
                for row in connection.execute(select(rollout).order_by(rollout.c.alias))
            ]

    def find(self, alias: str) -> Rollout | None:
        """The rollout of one alias; None: it has never been changed."""
        return next((item for item in self.all() if item.alias == alias), None)

    def manifest(self, release: str) -> KeptManifest | None:
        """The present manifest of a release; None: there is none yet."""
        with self._reader.connect() as connection:
            return kept_manifests.find(connection, release)

    def begin(self, manifests: Iterable[KeptManifest], active: Collection[str]) -> list[str]:
        """Keep the manifests of a starting server's settings.

        Returns the releases whose manifest has changed.
        """
        known = self.all()
        rolled_out = {name for item in known for name in item.releases}
        loading = {item.candidate for item in known if item.state is RolloutState.LOADING}
        unproved = loading.difference(active)  # of an earlier revision
        wanted = [
            dataclasses.replace(item, is_proved=item.is_proved and item.release not in unproved)
            for item in manifests
            if item.release in rolled_out | set(active)
        ]
        try:
            return self._begin(wanted, active)
        except IntegrityError:  # another host of this ledger starts at the same moment
            return self._begin(wanted, active)

    def _begin(self, wanted: Iterable[KeptManifest], active: Collection[str]) -> list[str]:
        with self._engine.begin() as connection:
            return kept_manifests.begin(connection, wanted, active, self._clock())

    def start(
        self,
        configured: str,
        candidate: KeptManifest,
        order: RolloutRequest,
        who: str,
        deed: Deed | None = None,
    ) -> Rollout:
        """Begin a rollout: the candidate is loaded, then treated as `order` says.

        `configured`: the release in the settings. Raises CannotRollOut.
        """

        def change(known: Rollout) -> Rollout:
            fresh = (
                known
                if known.configured == configured
                else rules.begun(known.alias, configured, self._clock(), who)
            )
            return rules.started(fresh, candidate.release, order)

        def propose(connection: Connection, *_: Rollout) -> str:
            kept_manifests.propose(connection, candidate, self._clock())
            return ""

        begun = rules.begun(alias_of(configured), configured, self._clock(), who)
        return self._write(alias_of(configured), "start", who, change, begun, propose, deed)

    def promote(
        self, alias: str, order: RolloutRequest, who: str, deed: Deed | None = None
    ) -> Rollout:
        """Go one step further. Raises CannotRollOut, as all verbs here."""
        return self._write(
            alias, "promote", who, lambda known: rules.promoted(known, order), deed=deed
        )

    def roll_back(
        self, alias: str, who: str, *, is_pending: bool = False, deed: Deed | None = None
    ) -> Rollout:
        """Go one step back, for studies that come from now on.

        `is_pending`: also for studies without a result of the release left. If they are many, most
        are reassigned before, some at a time, so that others can write. After a crash on the way
        the same call finishes it.
        """
        count = self._take_back(alias) if is_pending else 0
        follow = functools.partial(_take_back_rest, count) if is_pending else None
        return self._write(alias, "rollback", who, rules.rolled_back, follow=follow, deed=deed)

    def _take_back(self, alias: str) -> int:
        if (known := self.find(alias)) is None:
            return 0
        taking = _taking(known, rules.rolled_back(known))
        with self._reader.connect() as connection:
            rows = taking.find(connection)
        many = rows[: -reassign.TOGETHER]  # few go with the step back, all at once
        return sum(self._take_back_part(taking, part) for part in reassign.parts(many))

    def _take_back_part(self, taking: Reassignment, rows: Sequence[int]) -> int:
        with begin_part(self._engine) as connection:
            return taking.take(connection, rows, self._clock())

    def stop(self, alias: str, who: str, deed: Deed | None = None) -> Rollout:
        """End the rollout; the serving release goes on alone."""
        return self._write(alias, "stop", who, rules.stopped, deed=deed)

    def confirm(self, alias: str, candidate: str, who: str, digest: str) -> Rollout:
        """Note that an analyser has loaded the candidate, which gave the known answers.

        `digest`: of the candidate's manifest.
        """
        follow = functools.partial(_prove, candidate, digest)
        return self._write(
            alias,
            "confirm",
            who,
            lambda known: rules.passed(_about(known, candidate)),
            follow=follow,
        )

    def refuse(self, alias: str, candidate: str, problem: str, who: str) -> Rollout:
        """Note that the candidate could not be loaded, or gave wrong answers."""
        return self._write(
            alias, "refuse", who, lambda known: rules.refused(_about(known, candidate), problem)
        )

    def close_stale(self, active: Collection[str]) -> list[Rollout]:
        """End rollouts that began with other settings than these releases, and return them."""
        stale = [
            item
            for item in self.all()
            if item.state is not RolloutState.CLOSED
            and _of_alias(item.alias, active) != [item.configured]
        ]
        return [
            self._close(item, ", ".join(_of_alias(item.alias, active)) or "no release of this name")
            for item in stale
        ]

    def is_assigned(self, study_uid: str, release: str) -> bool:
        """Whether this release was chosen to read this study, reported or as a shadow."""
        by = or_(assignment.c.release == release, assignment.c.shadow == release)
        with self._reader.connect() as connection:
            query = select(assignment.c.id).where(assignment.c.study_instance_uid == study_uid, by)
            return connection.execute(query).first() is not None

    def is_named(self, release: str) -> bool:
        """Whether the settings of a running server, on whichever host, name this release."""
        with self._reader.connect() as connection:
            return advertised_releases.is_named(
                connection, release, self._clock() - advertised_releases.RUNNING_SECONDS
            )

    def has_open_readings(self, release: str) -> bool:
        """Whether an image still waits for this release, or is being read by it."""
        waiting = [
            select(reading.c.id)
            .where(in_state(reading, state), reading.c.release == release)
            .exists()
            for state in WorkState
        ]
        with self._reader.connect() as connection:
            return bool(connection.execute(select(or_(*waiting))).scalar_one())

    def _close(self, stale: Rollout, named: str) -> Rollout:
        why = f"the settings name {named} now, and the rollout was made against {stale.configured}"
        return self._write(stale.alias, "close", _SETTINGS, lambda known: rules.closed(known, why))

    def _write(
        self,
        alias: str,
        verb: str,
        who: str,
        change: Change,
        begun: Rollout | None = None,
        follow: Follow | None = None,
        deed: Deed | None = None,
    ) -> Rollout:
        try:
            return self._write_once(alias, verb, who, change, begun, follow, deed)
        # Two began with this alias at once: a row that is not there cannot be locked.
        except IntegrityError:
            return self._write_once(alias, verb, who, change, begun, follow, deed)

    def _write_once(
        self,
        alias: str,
        verb: str,
        who: str,
        change: Change,
        begun: Rollout | None,
        follow: Follow | None,
        deed: Deed | None,
    ) -> Rollout:
        with self._engine.begin() as connection:
            row = _locked(connection, alias)
            known = begun if row is None else rollout_of(row)
            if known is None:
                raise CannotRollOut(
                    f"{alias} has never been rolled out; `hilum rollout start` begins"
                )
            after = _stamped(change(known), self._clock(), who)
            _store(connection, after, is_new=row is None)
            said = "" if follow is None else follow(connection, known, after)
            event = _event(after, verb, said)
            connection.execute(insert(rollout_event).values(event))
            if deed is not None:
                named = (after.candidate or after.serving, event["detail"])
                deed.detail = " ".join(filter(None, named))
                deed.write(connection, self._clock())
            return after


def _locked(connection: Connection, alias: str) -> Row[Any] | None:
    query = select(rollout).where(rollout.c.alias == alias).with_for_update()
    return connection.execute(query).first()


def _take_back_rest(count: int, connection: Connection, before: Rollout, after: Rollout) -> str:
    """Reassign the studies that came meanwhile, in the transaction that ends their arrival."""
    taking = _taking(before, after)
    for rows in reassign.parts(taking.find(connection)):
        count += taking.take(connection, rows, after.changed_at)
    return f"{count} studies taken back from {taking.left}"


def _taking(before: Rollout, after: Rollout) -> Reassignment:
    return Reassignment(after.alias, before.candidate or before.serving, after.serving)


def _prove(candidate: str, digest: str, connection: Connection, *_: Rollout) -> str:
    kept_manifests.prove(connection, candidate, digest)
    return ""


def _about(known: Rollout, candidate: str) -> Rollout:
    if known.candidate != candidate:
        raise CannotRollOut(f"{candidate} is no candidate any more")
    return known


def _of_alias(alias: str, active: Collection[str]) -> list[str]:
    return [name for name in active if alias_of(name) == alias]


def _stamped(item: Rollout, now: float, who: str) -> Rollout:
    return dataclasses.replace(item, changed_at=now, changed_by=who[:64])


def _store(connection: Connection, item: Rollout, *, is_new: bool) -> None:
    values = {name: getattr(item, name) for name in _COLUMNS}
    connection.execute(
        insert(rollout).values(values)
        if is_new
        else update(rollout).where(rollout.c.alias == item.alias).values(values)
    )


def _event(item: Rollout, verb: str, said: str) -> Item:
    details = [
        item.mode,
        f"{item.fraction:g}" if item.fraction is not None else None,
        item.problem,
        said,
    ]
    return {
        "alias": item.alias,
        "verb": verb,
        "state": item.state,
        "serving": item.serving,
        "candidate": item.candidate,
        "detail": " ".join(part for part in details if part) or None,
        "changed_at": item.changed_at,
        "changed_by": item.changed_by,
    }
