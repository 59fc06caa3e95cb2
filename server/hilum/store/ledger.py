"""The ledger: every promise about images and reports is a row here.

Verbs: record, claim, advance, retry, requeue.

Thread-safe. Each verb is one transaction, but for `reject` and `requeue` of many rows, and survives
any crash of a process. What the outside may rely on (rows of received objects, rejections,
documents, what a person decided) survives a power cut too, as soon as the verb has returned.
Leases, readings, results and deliveries are not waited for: after a power cut they would be made
again, and the same.
"""

from __future__ import annotations

import contextlib
import socket
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, and_, bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError, OperationalError

from hilum.domain import (
    ActivationMaps,
    Advance,
    AssociationRecord,
    CommitmentJob,
    CommitmentRequest,
    Instance,
    Job,
    Lease,
    Rejection,
    StudyJob,
)
from hilum.settings import Destination
from hilum.store.admin import abandon
from hilum.store.admin import complete as completing
from hilum.store.admin.abandon import Forgotten
from hilum.store.admin.complete import Completed
from hilum.store.audit.log import Deed, write_down
from hilum.store.database.clocks import ahead_seconds
from hilum.store.database.engines import Transactions, begin_part, error_text, open_engine, sync_of
from hilum.store.database.prepared import PreparedStatement
from hilum.store.installation import digest_seed, epoch
from hilum.store.intake import known_images, missing_files
from hilum.store.intake import record as recording
from hilum.store.intake.known_images import KnownImage
from hilum.store.intake.missing_files import Quarantined
from hilum.store.intake.received import Arrival
from hilum.store.intake.record import ImageChanged, RecordOutcome
from hilum.store.notify.notifier import Subscription, notifier_for
from hilum.store.queries import associations
from hilum.store.queries.activation_maps import activation_maps
from hilum.store.queue import claim as claiming
from hilum.store.queue import clock_recovery, commitments, destination_lease
from hilum.store.queue import complete as advancing
from hilum.store.queue import rejections as rejecting
from hilum.store.queue import requeue as requeueing
from hilum.store.queue import resend as resending
from hilum.store.queue.claim import Claim
from hilum.store.queue.commitments import LeaseOwner
from hilum.store.queue.hand_off import HandingOn, Heir
from hilum.store.queue.jobs import jobs_of
from hilum.store.queue.queues import QUEUES
from hilum.store.queue.resend import Resent
from hilum.store.schema.tables import (
    WORK_TABLES,
    destination,
    document,
    installation,
    process,
    study,
)

__all__ = ["Arrival", "ImageChanged", "Ledger", "RecordOutcome"]

# The stages to notify when a stage's rows have advanced and left something due: a delivery, the same
# report in another SOP Class.
_NEXT = {
    "analyse": ("assemble",),
    "assemble": ("report",),
    "compare": (),
    "report": ("deliver",),
    "deliver": ("deliver",),
    "commit": (),
}
# Stages whose decisions follow from the rows before them. A delivery that is forgotten sends the
# same bytes under the same UID again.
_MADE_AGAIN = frozenset({"analyse", "assemble", "compare", "deliver"})
_ITS_ROW = update(process).where(process.c.name == bindparam("who"))
_BEAT = PreparedStatement(_ITS_ROW)
_BEAT_AGAIN = PreparedStatement(_ITS_ROW.where(process.c.started_at == bindparam("since")))
_HOST = socket.gethostname()
_TRIES = 3
_REJECTED_AT_ONCE = 500  # images of a transaction: PostgreSQL has room for some thousand locks

T = TypeVar("T")


class Ledger:
    """Rows of one installation, at an SQLAlchemy URL. The schema must be there already (`hilum.store.migrations.migrate`)."""

    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        self.url = url
        self._clock = clock
        # The disk is waited for after a transaction (`_sync`), never inside: SQLite has one writer
        # at a time.
        self._engine = open_engine(url, is_synced=False)
        self._sync = sync_of(url)
        # Who only looks must not wait for the one who writes.
        self._reader = (
            open_engine(url, read_only=True)
            if self._engine.dialect.name == "sqlite"
            else self._engine
        )
        self._writes = Transactions(self._engine)
        self._reads = Transactions(self._reader)
        self._notifier = notifier_for(url)

    def close(self) -> None:
        """Give the connections back."""
        self._writes.close()
        self._reads.close()
        self._engine.dispose()
        self._reader.dispose()
        self._notifier.close()

    @property
    def namespace(self) -> uuid.UUID:
        """The installation's UID namespace, minted once at the first migration."""
        with self._reads.begin() as connection:
            return uuid.UUID(
                connection.execute(
                    select(installation.c.value).where(installation.c.key == "namespace")
                ).scalar_one()
            )

    def begin_epoch(self) -> str:
        """What the UIDs of documents that are minted from now on differ by from those before a restore (see `store.epoch`)."""
        with self._reads.begin() as connection:
            if (known := epoch.current(connection, self.url)) is not None:
                return known
        with self._writes.begin() as connection:
            found = epoch.begin(connection, self.url)
        self._sync()
        return found

    @cached_property
    def digest_seed(self) -> int:
        """The installation's secret seed of digests, minted once."""
        with self._reads.begin() as connection:
            return digest_seed.read(connection)

    @property
    def serial(self) -> str:
        """What tells this installation from others of the same make.

        Device Serial Number (0018,1000) of its documents.
        """
        return self.namespace.hex[:16]

    def record(
        self, arrivals: Sequence[Arrival], *, is_compared: bool = False
    ) -> list[RecordOutcome]:
        """Rows for files that are durable already; what became of each, in order.

        Safe to repeat after any crash. `is_compared`: what comes of a known image must have been
        compared with its file, or ImageChanged is raised; else digests decide.
        """
        return _until_ours(lambda: self._record(arrivals, is_compared=is_compared))

    def _record(self, arrivals: Sequence[Arrival], *, is_compared: bool) -> list[RecordOutcome]:
        with self._writes.begin() as connection:
            outcomes = recording.record(
                connection, arrivals, self._clock(), is_compared=is_compared
            )
            self._notifier.notify_in(connection, notified := _stages_of_record(arrivals, outcomes))
        self._notifier.notify(notified)  # an image may be read while the disk is waited for
        self._sync()
        return outcomes

    def known_images(self, uids: Sequence[str]) -> Mapping[str, KnownImage]:
        """By SOP Instance UID, what is known of those of these images that have a row."""
        with self._reads.begin() as connection:
            return known_images.known_images(connection, uids)

    def paths_of(self, same: Sequence[Instance]) -> dict[str, str]:
        """By SOP Instance UID, the `path` of each image with pixels whose bytes are these."""
        with self._reads.begin() as connection:
            return missing_files.paths_of(connection, same)

    def not_read(self, uids: Collection[str]) -> set[str]:
        """Those of these SOP Instance UIDs of which a reading ended without numbers."""
        with self._reads.begin() as connection:
            return missing_files.not_read(connection, uids)

    def give_up_files(self, paths: Mapping[str, str], damaged: Collection[str] = ()) -> None:
        """Write down that the archive has lost the pixels of these images.

        By SOP Instance UID, the `path` that was looked for.

        `damaged`: of those whose file is there, and no use to anybody.
        """
        with self._writes.begin() as connection:
            missing_files.give_up(connection, paths, damaged, self._clock())

    def quarantined(self, same: Sequence[Instance]) -> list[Quarantined]:
        """Conflicts of the very bytes of these images whose file lies in quarantine."""
        with self._reads.begin() as connection:
            return missing_files.quarantined(connection, same)

    def take_place_in_quarantine(self, lost: Sequence[Quarantined]) -> None:
        """The archive has lost the files of these conflicts: what came is theirs.

        Recorded again, it goes to quarantine.
        """
        with self._writes.begin() as connection:
            missing_files.take_place(connection, lost)

    def record_associations(
        self,
        records: Sequence[AssociationRecord],
        counted: Sequence[tuple[int | None, AssociationRecord]] = (),
    ) -> list[int]:
        """Write who sent what, and what was refused.

        `counted`: with the id of the row, if there is one.

        The ids of the rows of `counted`, in the same order.
        """
        with self._writes.begin() as connection:
            row_ids = associations.write(connection, records, counted)
        self._sync()
        return row_ids

    def reject(self, rejections: Sequence[Rejection]) -> int:
        """Take images out of results, also such as have not come yet.

        How many are out that were not. Their studies are due again.
        """
        starts = range(0, len(rejections), _REJECTED_AT_ONCE)
        parts = [rejections[start : start + _REJECTED_AT_ONCE] for start in starts]
        count = sum(_until_ours(partial(self._reject, part)) for part in parts)
        self._sync()
        self._notifier.notify(("assemble",))
        return count

    def count_of_others(self, rejections: Sequence[Rejection]) -> int:
        """How many of these images stay in results, because another sender has sent them."""
        with self._reads.begin() as connection:
            return rejecting.count_of_others(connection, rejections)

    def _reject(self, rejections: Sequence[Rejection]) -> int:
        with self._writes.begin() as connection:
            count = rejecting.reject(connection, rejections, self._clock())
            self._notifier.notify_in(connection, ("assemble",))
        return count

    def request_commitment(
        self, request: CommitmentRequest, holder: LeaseOwner | None = None
    ) -> CommitmentJob | None:
        """Owe a report.

        `holder` reports itself and gets the job; else whoever claims it. The same request again
        begins it anew.
        """
        with self._writes.begin() as connection:
            job = commitments.record(connection, request, self._clock(), holder)
            self._notifier.notify_in(connection, ("commit",))
        self._sync()
        self._notifier.notify(("commit",))
        return job

    def kept(
        self, sop_instance_uids: Collection[str], calling_ae_title: str
    ) -> tuple[dict[str, str], set[str]]:
        """SOP Instance UID to SOP Class UID of what is kept of these.

        Then those of which this sender sent other pixels.
        """
        with self._reads.begin() as connection:
            disputed = commitments.disputed(connection, sop_instance_uids, calling_ae_title)
            return commitments.kept(connection, sop_instance_uids), disputed

    def promise(self, sop_instance_uids: Collection[str]) -> None:
        """Those of these images that are there stay: storage commitment is about to promise it.

        Durable.
        """
        with self._writes.begin() as connection:
            commitments.promise(connection, sop_instance_uids, self._clock())
        self._sync()

    def is_own_document(self, sop_instance_uid: str) -> bool:
        """Whether a document of ours has this SOP Instance UID."""
        with self._reads.begin() as connection:
            query = select(document.c.id).where(document.c.sop_instance_uid == sop_instance_uid)
            return connection.execute(query).first() is not None

    def ae_titles(self, study_uids: Collection[str]) -> dict[str, tuple[str, str]]:
        """Calling and Called AE Title of the first image of each of these studies.

        Studies that nobody has sent yet are left out.
        """
        query = select(
            study.c.study_instance_uid, study.c.calling_ae_title, study.c.called_ae_title
        )
        with self._reads.begin() as connection:
            rows = connection.execute(query.where(study.c.study_instance_uid.in_(study_uids)))
            return {
                row.study_instance_uid: (row.calling_ae_title, row.called_ae_title) for row in rows
            }

    def claim(
        self,
        stage: str,
        limit: int,
        owner: str,
        lease_seconds: float,
        *,
        maximum_lapses: int = 3,
        is_idle: bool = True,
        destination_name: str | None = None,
    ) -> list[Job]:
        """Up to `limit` jobs of a stage, oldest first within the first priority, leased to `owner`.

        `is_idle`: the worker holds nothing, so it may take a lapsed item, which comes alone: if it is the one that kills workers, it
        shall take no neighbour along. Items that lapsed too often fail here.
        """
        claimed = self.claim_and_look(
            stage,
            limit,
            owner,
            lease_seconds,
            maximum_lapses=maximum_lapses,
            is_idle=is_idle,
            destination_name=destination_name,
        )
        return claimed[0]

    def claim_and_look(
        self,
        stage: str,
        limit: int,
        owner: str,
        lease_seconds: float,
        *,
        maximum_lapses: int,
        is_idle: bool,
        destination_name: str | None,
    ) -> tuple[list[Job], float | None]:
        """As `claim`; then, of the same transaction, seconds until more can be claimed (None.

        Nothing is there).
        """
        now = self._clock()
        notified: tuple[str, ...] = ()
        claim = Claim(stage, limit, owner, now, now + lease_seconds, destination_name)
        with self._writes.begin() as connection:
            lapsed = claiming.lapsed_row(connection, claim)
            if lapsed is not None:
                notified = self._fail_exhausted(connection, claim, maximum_lapses)
                lapsed = claiming.lapsed_row(connection, claim)
            if lapsed is None:
                rows = claiming.claim_due(connection, claim)
            else:
                rows = claiming.take(connection, claim, [lapsed]) if is_idle else []
            jobs = advancing.without_superseded(connection, jobs_of(connection, stage, rows), now)
            seconds = claiming.seconds_to_next(connection, stage, now, destination_name)
        if notified:
            self._notifier.notify(notified)
        if stage == "deliver" and jobs:
            self._sync_before_sending(
                jobs
            )  # a document may be claimed before who stored it has waited for the disk
        return jobs, seconds

    def _sync_before_sending(self, jobs: Sequence[Job]) -> None:
        """Nothing is sent that could be lost.

        If the disk cannot be waited for, deliveries are due again: nobody hears of these jobs.
        """
        try:
            self._sync()
        except OperationalError as error:
            with self._writes.begin() as connection:
                for job in jobs:
                    claiming.release(
                        connection,
                        QUEUES["deliver"],
                        job.lease,
                        error_text(error),
                        self._clock(),
                        counts=False,
                    )
            raise

    def seconds_to_next(
        self, stage: str, at_most: float, *, destination_name: str | None = None
    ) -> float:
        """How long a stage may sleep.

        Until the next row can be claimed, or `at_most`; 0: one can be claimed now. Takes no write
        lock.
        """
        with self._reads.begin() as connection:
            seconds = claiming.seconds_to_next(connection, stage, self._clock(), destination_name)
        return at_most if seconds is None else min(at_most, seconds)

    def _fail_exhausted(
        self, connection: Connection, claim: Claim, maximum_lapses: int
    ) -> tuple[str, ...]:
        """The stages to notify after the commit."""
        exhausted = claiming.fail_exhausted(
            connection, QUEUES[claim.stage], claim.now, maximum_lapses
        )
        if claim.stage == "commit":
            commitments.forget_erased(connection, exhausted)
        if claim.stage != "analyse" or not advancing.close_readings(
            connection, exhausted, claim.now
        ):
            return ()
        self._notifier.notify_in(connection, _NEXT[claim.stage])
        return _NEXT[claim.stage]

    def activation_maps(self, study_uid: str, release: str) -> dict[str, ActivationMaps]:
        """Class activation maps of a study's analysed images by one release, by SOP Instance UID."""
        with self._reads.begin() as connection:
            return activation_maps(connection, study_uid, release)

    def advance(self, stage: str, decided: Sequence[tuple[Lease, Advance]]) -> list[bool]:
        """Write decisions and what follows from them, all in one commit.

        False marks a lease that was lost: nothing of it is written.
        """
        return self._advance(stage, [(lease, item, None) for lease, item in decided], {})[0]

    def advance_and_hand_on(
        self, stage: str, decided: Sequence[tuple[Job, Advance]], heirs: Mapping[str | None, Heir]
    ) -> tuple[list[bool], list[Job]]:
        """As `advance`; then jobs for the heirs (HandingOn), leased as by a claim.

        Where several destinations are, each has its own.
        """
        return self._advance(stage, [(job.lease, item, job) for job, item in decided], heirs)

    def _advance(
        self, stage: str, decided: Sequence[advancing.Decided], heirs: Mapping[str | None, Heir]
    ) -> tuple[list[bool], list[Job]]:
        try:
            return self._write(stage, decided, heirs, at_once=len(decided) > 1)
        except advancing.LeaseLost:
            return self._write(stage, decided, heirs, at_once=False)

    def _write(
        self,
        stage: str,
        decided: Sequence[advancing.Decided],
        heirs: Mapping[str | None, Heir],
        *,
        at_once: bool,
    ) -> tuple[list[bool], list[Job]]:
        with self._writes.begin() as connection:
            following = HandingOn(
                now := self._clock(), destination_lease.held_by(connection, heirs, now)
            )
            # In the order of `recording`: two that name the same rows would wait for each other
            # (PostgreSQL).
            said = sorted(decided, key=lambda one: _place(one[0], one[2]))
            if stage == "commit":
                said = [
                    (lease, commitments.without_erased(connection, lease, item), job)
                    for lease, item, job in said
                ]
            written = advancing.advance_rows(
                connection, QUEUES[stage], said, following, at_once=at_once
            )
            ended = [lease.row_id for lease, _, _ in decided if lease.token in written]
            # A study that waits for more readings is not notified: the last one does.
            is_ready = (
                advancing.close_readings(connection, ended, now)
                if stage == "analyse"
                else following.leaves_due
            )
            self._notifier.notify_in(connection, notified := _NEXT[stage] if is_ready else ())
        if stage not in _MADE_AGAIN:
            self._sync_before_sending(following.jobs)
        self._notifier.notify(notified)
        return [lease.token in written for lease, _, _ in decided], following.jobs

    def retry(
        self, stage: str, lease: Lease, detail: str, after_seconds: float, *, counts: bool = True
    ) -> bool:
        """Due again in `after_seconds`. False: the lease is lost."""
        with self._writes.begin() as connection:
            return claiming.release(
                connection,
                QUEUES[stage],
                lease,
                detail,
                self._clock() + after_seconds,
                counts=counts,
            )

    def set_aside(self, stage: str, lease: Lease, detail: str, after_seconds: float) -> bool:
        """A lapse of an item that is known to have killed its worker.

        Due again in `after_seconds`, beside others. False: as `lapse`.
        """
        with self._writes.begin() as connection:
            due_at = self._clock() + after_seconds
            return claiming.release(
                connection, QUEUES[stage], lease, detail, due_at, counts=True, lapses=1
            )

    def lapse(self, stage: str, lease: Lease) -> bool:
        """The lease ends now as if its worker had died, and is counted as such.

        False: it was lost already.
        """
        table = QUEUES[stage].table
        now = self._clock()
        held = and_(table.c.id == lease.row_id, table.c.lease_token == lease.token)
        with self._writes.begin() as connection:
            return (
                connection.execute(update(table).where(held).values(leased_until=now - 1)).rowcount
                == 1
            )

    def end_leases(self, owner: str, *, is_clean: bool, counts: bool = False) -> int:
        """End all leases of a process that stopped (clean.

        Due again, not counted) or died (lapsed now); how many.

        `counts`, of a clean one: something may have come of its tries, so that they stay counted.
        """
        with self._writes.begin() as connection:
            now = self._clock()
            count = sum(
                claiming.expire(connection, table, owner, now, is_clean=is_clean, counts=counts)
                for table in WORK_TABLES.values()
            )
            connection.execute(
                update(destination)
                .where(destination.c.owner == owner)
                .values(owner=None, owned_until=None)
            )
            self._notifier.notify_in(connection, QUEUES)
        self._notifier.notify(QUEUES)
        return count

    def requeue(
        self,
        stage: str,
        *,
        reason: str | None = None,
        study_uid: str | None = None,
        destination_name: str | None = None,
        among: Mapping[str, Destination] | None = None,
        deed: Deed | None = None,
    ) -> int:
        """Ended items of a stage become due again, chosen by reason, study or destination.

        How many.

        `among`: the destinations that there are; None: any. To others nobody would send what is due. What is withheld becomes due
        only where `among` says that its cause is gone (`withholding`). Not one transaction, if they
        are many: each is as safe as any, and whoever repeats it after a crash gets the rest.
        """
        chosen = requeueing.condition(stage, reason, study_uid, destination_name, among)
        with self._reads.begin() as connection:
            parts = requeueing.parts(connection, stage, chosen, among or {})
        if deed is not None and len(parts) > 1:
            with self._writes.begin() as connection:
                deed.begin(connection, self._clock())
        count = sum(self._requeue(stage, chosen, ids, deed) for ids in parts[:-1])
        count = self._requeue(stage, chosen, parts[-1] if parts else (), deed, count)
        self._sync()
        return count

    def _requeue(
        self,
        stage: str,
        chosen: ColumnElement[bool],
        ids: Sequence[int],
        deed: Deed | None = None,
        before: int | None = None,
    ) -> int:
        """How many.

        `before`: those of the parts before the last one, with which the `deed` is written.
        """
        with begin_part(self._engine) as connection:
            now = self._clock()
            count = (before or 0) + (
                requeueing.requeue(connection, stage, chosen, ids, now, deed) if ids else 0
            )
            if before is not None:
                write_down(deed, connection, now, count)
            self._notifier.notify_in(connection, (stage,))
        self._notifier.notify((stage,))
        return count

    def resend(
        self,
        study_uid: str,
        *,
        sop_instance_uid: str | None = None,
        destination_name: str | None = None,
        among: Mapping[str, Destination],
        deed: Deed | None = None,
    ) -> Resent | None:
        """What was delivered of a study is sent again: see `resending.resend`.

        Without anything to send nothing is written.
        """
        with self._writes.begin() as connection:
            done = resending.resend(
                connection, study_uid, sop_instance_uid, destination_name, among, self._clock()
            )
            if done is None or not done.due:
                return done
            write_down(deed, connection, self._clock(), len(done.due))
            self._notifier.notify_in(connection, ("deliver",))
        self._sync()
        self._notifier.notify(("deliver",))
        return done

    def acquire_destination(self, name: str, owner: str, seconds: float) -> bool:
        """Own a destination for half of `seconds` at least.

        False: another dispatcher owns it, or a person paused it.
        """
        now = self._clock()
        with self._reads.begin() as connection:
            if destination_lease.is_held(connection, name, owner, now + seconds / 2):
                return True
        with self._writes.begin() as connection:
            return destination_lease.take(connection, name, owner, now, seconds)

    def pause(self, name: str, *, is_paused: bool, deed: Deed | None = None) -> None:
        """Stop or resume deliveries to a destination, also one that has never been used.

        What is on the wire is finished.
        """
        with self._writes.begin() as connection:
            destination_lease.pause(connection, name, is_paused=is_paused)
            write_down(deed, connection, self._clock())
            self._notifier.notify_in(connection, ("deliver",))
        self._sync()
        self._notifier.notify(("deliver",))

    def forget_destination(self, name: str, deed: Deed | None = None) -> Forgotten:
        """Give up what waits for a destination that is no longer in the settings.

        That it is not is for the caller to know.
        """
        with self._writes.begin() as connection:
            done = abandon.forget(connection, name, self._clock())
            write_down(deed, connection, self._clock(), done.cancelled)
        self._sync()
        return done

    def forget_commitments(self, calling_ae_title: str, deed: Deed | None = None) -> int:
        """Give up the dead reports of storage commitment that this AE Title is owed; how many."""
        with self._writes.begin() as connection:
            count = abandon.forget_commitments(connection, calling_ae_title)
            write_down(deed, connection, self._clock(), count)
        self._sync()
        return count

    def complete(
        self, study_uid: str, *, is_waiting: bool = True, deed: Deed | None = None
    ) -> Completed | None:
        """End a study's quiet period now; None: there is no such study.

        Its open readings are waited for, unless told otherwise.
        """
        with self._writes.begin() as connection:
            done = completing.complete(connection, study_uid, self._clock(), is_waiting=is_waiting)
            if done is not None:
                write_down(deed, connection, self._clock())
            self._notifier.notify_in(connection, ("assemble",))
        self._sync()
        self._notifier.notify(("assemble",))
        return done

    def beat(
        self, name: str, role: str, pid: int, *, started_at: float, is_ready: bool, detail: str = ""
    ) -> bool:
        """A process says that it lives, and whether it can do its work.

        False: the last one to say so under its name was another.
        """
        alive = {
            "role": role,
            "host": _HOST,
            "pid": pid,
            "started_at": started_at,
            "is_ready": is_ready,
            "detail": detail,
        }
        alive["beat_at"] = self._clock()
        with self._writes.begin() as connection:
            if _BEAT_AGAIN.write(connection, {**alive, "who": name, "since": started_at}):
                return True
            if _BEAT.write(connection, {**alive, "who": name}):
                return False
            connection.execute(insert(process), {**alive, "name": name})
            return True

    def forget_processes(self, names: Collection[str]) -> None:
        """Remove the heartbeats of processes that are gone for good."""
        with self._writes.begin() as connection:
            connection.execute(process.delete().where(process.c.name.in_(names)))

    def silent(self, seconds: float) -> list[tuple[str, int]]:
        """Processes of this host, name and process id, that have not said for so long that they live: nor since its clock was set back."""
        now = self._clock()
        quiet = and_(
            process.c.host == _HOST, ~process.c.beat_at.between(now - seconds, now + seconds)
        )
        with self._reads.begin() as connection:
            return [
                (row.name, row.pid)
                for row in connection.execute(select(process.c.name, process.c.pid).where(quiet))
            ]

    def clock_ahead_seconds(self) -> float:
        """How far our clock, by which all moments here are taken, is ahead of the database's (PostgreSQL), see `ahead_seconds`."""
        return ahead_seconds(self._reader, self._clock)

    def reschedule_after_clock_step(self, stage: str, longest_seconds: float) -> int:
        """Make due what waits for longer than that, as only a clock that was set back explains.

        How many rows of the stage.
        """
        with self._writes.begin() as connection:
            return clock_recovery.free(connection, stage, longest_seconds, self._clock())

    def listen(self, stage: str) -> Subscription:
        """A subscription that is notified when rows of this stage may be due."""
        return self._notifier.listen(stage)


def _until_ours(write: Callable[[], T]) -> T:
    """Somebody else may insert the same UIDs at once (PostgreSQL).

    The next try finds the other one's rows. Raises IntegrityError.
    """
    for _ in range(_TRIES - 1):
        with contextlib.suppress(IntegrityError):
            return write()
    return write()


def _place(lease: Lease, job: Job | None) -> tuple[str, int]:
    """In the order of locks: studies by their UIDs, all else by rows."""
    return job.study.study_instance_uid if isinstance(job, StudyJob) else "", lease.row_id


def _stages_of_record(
    arrivals: Sequence[Arrival], outcomes: Sequence[RecordOutcome]
) -> tuple[str, ...]:
    """No study with a reading to come can be assembled: its last reading notifies.

    What is decided of a known image may end the wait.
    """
    is_read = all(arrival.releases for arrival in arrivals) and all(
        outcome is RecordOutcome.NEW for outcome in outcomes
    )
    return ("analyse",) if is_read else ("analyse", "assemble")
