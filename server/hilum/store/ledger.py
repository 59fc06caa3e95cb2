"""The ledger: durable rows of images, readings, results, reports and deliveries.

Verbs: record, claim, advance, retry, requeue. Thread-safe. Each verb is one transaction, but for
`reject` and `requeue` of many rows, and survives any crash of a process. Rows that the outside may
rely on survive a power cut too, as soon as the verb has returned: received objects, rejections,
documents, decisions of a person. Leases, readings, results and deliveries are not synced: after a
power cut they would be made again, and the same.
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
    AskedCommitment,
    AssociationRecord,
    CommitmentJob,
    CommitmentRequest,
    CommitmentVerdict,
    Host,
    HostFacts,
    Instance,
    Job,
    KnownStudy,
    Lease,
    RecordedReport,
    Rejection,
    StudyJob,
    WorklistAnswer,
)
from hilum.settings import Destination
from hilum.store.admin import operator
from hilum.store.admin.operator import Completed, Forgotten
from hilum.store.audit.log import Deed, write_down
from hilum.store.campaigns import expected_images
from hilum.store.database.clocks import ClockReading, moment_in, read_clock
from hilum.store.database.engines import Transactions, begin_part, error_text, open_engine, sync_of
from hilum.store.database.prepared import PreparedStatement
from hilum.store.installation import digest_seed, epoch, heartbeats, serial
from hilum.store.intake import known_images, missing_files
from hilum.store.intake import record as recording
from hilum.store.intake.known_images import KnownImage
from hilum.store.intake.missing_files import Quarantined
from hilum.store.intake.received import Arrival
from hilum.store.intake.record import ImageChanged, RecordOutcome
from hilum.store.intake.studies import StudyDecided
from hilum.store.notify.notifier import Subscription, notifier_for
from hilum.store.queries import associations
from hilum.store.queries.activation_maps import activation_maps
from hilum.store.queue import asked_commitments, clock_recovery, commitments, destination_lease
from hilum.store.queue import claim as claiming
from hilum.store.queue import complete as advancing
from hilum.store.queue import rejections as rejecting
from hilum.store.queue import requeue as requeueing
from hilum.store.queue import resend as resending
from hilum.store.queue import worklist as worklists
from hilum.store.queue.asked_commitments import AskedScp
from hilum.store.queue.claim import Claim
from hilum.store.queue.commitments import LeaseOwner
from hilum.store.queue.hand_off import HandOff, Reservation
from hilum.store.queue.jobs import jobs_of
from hilum.store.queue.live_share import LiveShare
from hilum.store.queue.queues import QUEUES
from hilum.store.queue.resend import Resent
from hilum.store.schema import codec
from hilum.store.schema.tables import (
    WORK_TABLES,
    destination,
    document,
    process,
    study,
    workitem_manager,
)

__all__ = ["Arrival", "ImageChanged", "Ledger", "RecordOutcome", "StudyDecided"]

# The stages to notify when a stage's rows have advanced and left a row due. A delivery may leave
# the same report in another SOP Class due.
_NEXT = {
    "analyse": ("assemble",),
    "assemble": ("report",),
    "compare": (),
    "report": ("deliver",),
    "deliver": ("deliver",),
    "commit": (),
}
# Stages whose decisions follow from the rows before them. A lost delivery sends the same bytes
# under the same UID again.
_MADE_AGAIN = frozenset({"analyse", "assemble", "compare", "deliver"})
_ITS_ROW = update(process).where(process.c.name == bindparam("who"))
_BEAT = PreparedStatement(_ITS_ROW)
_BEAT_AGAIN = PreparedStatement(_ITS_ROW.where(process.c.started_at == bindparam("since")))
_KNOWN_STUDIES = PreparedStatement(
    select(
        *(
            study.c[name]
            for name in (
                "study_instance_uid",
                "calling_ae_title",
                "called_ae_title",
                "peer_address",
                "rule",
                "rules_digest",
                "rule_effect",
            )
        )
    ).where(study.c.study_instance_uid.in_(bindparam("uids", expanding=True))),
    "uids",
)
_HOST = socket.gethostname()
_TRIES = 3
_REJECTED_AT_ONCE = 500  # images of one transaction: PostgreSQL has room for some thousand locks

T = TypeVar("T")


class Ledger:
    """Rows of one installation, at an SQLAlchemy URL.

    The schema must be there already (`hilum.store.migrations.migrate`).
    """

    def __init__(
        self, url: str, clock: Callable[[], float] = time.time, direct_url: str = ""
    ) -> None:
        """`direct_url`: the same database without a pooler, for notifications; empty: `url`."""
        self.url = url
        self._clock = clock
        # The sync comes after a transaction (`_sync`), never inside: SQLite has one writer at a
        # time.
        self._engine = open_engine(url, is_synced=False)
        self._sync = sync_of(url)
        # Readers must not wait for the writer.
        self._reader = (
            open_engine(url, read_only=True)
            if self._engine.dialect.name == "sqlite"
            else self._engine
        )
        self._writes = Transactions(self._engine)
        self._reads = Transactions(self._reader)
        self._notifier = notifier_for(url, direct_url)
        self._share = LiveShare()

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
            return serial.namespace(connection)

    def begin_epoch(self) -> str:
        """The epoch in the UIDs of new documents, drawn if needed (see `installation/epoch`)."""
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
        """A number that tells this installation from others of the same make.

        Device Serial Number (0018,1000) of its documents.
        """
        return serial.serial_of(self.namespace)

    def record(
        self, arrivals: Sequence[Arrival], *, is_compared: bool = False
    ) -> list[RecordOutcome]:
        """Record files that are durable already, and return the outcome of each, in order.

        Safe to repeat after any crash. `is_compared`: files of known images must have been
        compared, or ImageChanged is raised; else digests decide.
        """
        return _until_ours(lambda: self._record(arrivals, is_compared=is_compared))

    def _record(self, arrivals: Sequence[Arrival], *, is_compared: bool) -> list[RecordOutcome]:
        with self._writes.begin() as connection:
            outcomes = recording.record(
                connection, arrivals, self._clock(), is_compared=is_compared
            )
            self._notifier.notify_in(connection, notified := _stages_of_record(arrivals, outcomes))
        self._notifier.notify(notified)  # an image may be read during the sync
        self._sync()
        return outcomes

    def known_images(self, uids: Sequence[str]) -> Mapping[str, KnownImage]:
        """Rows of these images, by SOP Instance UID; unknown images are left out."""
        with self._reads.begin() as connection:
            return known_images.known_images(connection, uids)

    def paths_of(self, same: Sequence[Instance]) -> dict[str, str]:
        """The `path` of each image with pixels of these very bytes, by SOP Instance UID."""
        with self._reads.begin() as connection:
            return missing_files.paths_of(connection, same)

    def not_read(self, uids: Collection[str]) -> set[str]:
        """Those of these SOP Instance UIDs of which a reading ended without numbers."""
        with self._reads.begin() as connection:
            return missing_files.not_read(connection, uids)

    def give_up_files(self, paths: Mapping[str, str], damaged: Collection[str] = ()) -> None:
        """Write down that the archive has lost the pixels of these images.

        `paths`: the path that was looked for, by SOP Instance UID. `damaged`: images whose file is
        there, but useless.
        """
        with self._writes.begin() as connection:
            missing_files.give_up(connection, paths, damaged, self._clock())

    def quarantined(self, same: Sequence[Instance]) -> list[Quarantined]:
        """Conflicts of the very bytes of these images with a file in quarantine."""
        with self._reads.begin() as connection:
            return missing_files.quarantined(connection, same)

    def take_place_in_quarantine(self, lost: Sequence[Quarantined]) -> None:
        """Make the received files those of conflicts whose files the archive has lost.

        Recorded again, each goes to quarantine.
        """
        with self._writes.begin() as connection:
            missing_files.take_place(connection, lost)

    def record_associations(
        self,
        records: Sequence[AssociationRecord],
        counted: Sequence[tuple[int | None, AssociationRecord]] = (),
    ) -> list[int]:
        """Write associations: the sender, its objects, and the refusals.

        `counted`: with the id of the row, if there is one. Returns the ids of the rows of
        `counted`, in the same order.
        """
        with self._writes.begin() as connection:
            row_ids = associations.write(connection, records, counted)
        self._sync()
        return row_ids

    def reject(self, rejections: Sequence[Rejection]) -> int:
        """Take images out of results, also images that have not come yet.

        Returns how many are out that were not before. Their studies are due again.
        """
        starts = range(0, len(rejections), _REJECTED_AT_ONCE)
        parts = [rejections[start : start + _REJECTED_AT_ONCE] for start in starts]
        count = sum(_until_ours(partial(self._reject, part)) for part in parts)
        self._sync()
        self._notifier.notify(("assemble",))
        return count

    def count_of_others(self, rejections: Sequence[Rejection]) -> int:
        """The number of these images that stay in results, because another sender sent them."""
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
        """Record a request for storage commitment, which owes its requester a report.

        With a `holder` the caller reports and gets the job; else a claim does. The same request
        again begins it anew.
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
        """The SOP Class UID of each of these objects that is kept, by SOP Instance UID.

        Then the objects of which this sender has sent other pixels.
        """
        with self._reads.begin() as connection:
            disputed = commitments.disputed(connection, sop_instance_uids, calling_ae_title)
            return commitments.kept(connection, sop_instance_uids), disputed

    def promise(self, sop_instance_uids: Collection[str]) -> None:
        """Mark images before storage commitment promises to keep them.

        Durable. Images that are not there are left out.
        """
        with self._writes.begin() as connection:
            commitments.promise(connection, sop_instance_uids, self._clock())
        self._sync()

    def seconds_to_commitment(self, name: str) -> float | None:
        """Seconds until this destination is to be asked to keep a document; None: there is none."""
        with self._reads.begin() as connection:
            return asked_commitments.seconds_to_next(connection, name, self._clock())

    def begin_commitment(self, scp: AskedScp, seconds: float) -> AskedCommitment | None:
        """Write down a request for the documents that are due; None: there are none.

        Durable, because the report to it may come to any host at any time. They are due again after
        so many seconds, unless `commitment_asked` says that it was taken.
        """
        with self._writes.begin() as connection:
            request = asked_commitments.begin(connection, scp, self._clock(), seconds)
        if request is not None:
            self._sync()
        return request

    def commitment_asked(self, transaction_uid: str, seconds: float) -> None:
        """Note that a request of ours was taken; its report is awaited for so many seconds."""
        with self._writes.begin() as connection:
            now = self._clock()
            asked_commitments.asked(connection, transaction_uid, now, now + seconds)

    def put_off_commitment(
        self, transaction_uid: str, detail: str, seconds: float, *, was_sent: bool
    ) -> None:
        """Ask again after so many seconds, with another request.

        It counts as a try if it `was_sent`.
        """
        with self._writes.begin() as connection:
            due_at = self._clock() + seconds
            asked_commitments.put_off(
                connection, transaction_uid, detail, due_at, was_sent=was_sent
            )

    def give_up_commitments(self, scp: AskedScp, unanswered: str) -> int:
        """End documents that this destination was asked for often enough: see `give_up`.

        `unanswered`: the detail of those without a report.
        """
        with self._writes.begin() as connection:
            return asked_commitments.give_up(connection, scp, unanswered, self._clock())

    def record_commitment_report(
        self,
        transaction_uid: str,
        ae_title: str,
        verdict: CommitmentVerdict,
        tries: Mapping[str, int],
    ) -> RecordedReport | None:
        """Write down the report to a request of ours: see `asked_commitments.record_report`.

        Durable: it is not sent again.
        """
        with self._writes.begin() as connection:
            done = asked_commitments.record_report(
                connection, transaction_uid, ae_title, verdict, tries, self._clock()
            )
            notified = ("deliver",) if done is not None and done.resent else ()
            self._notifier.notify_in(connection, notified)
        self._sync()
        self._notifier.notify(notified)
        return done

    def forget_commitments_of_others(self, names: Collection[str]) -> int:
        """Ask no destination but these to keep documents, and return the number of documents."""
        with self._writes.begin() as connection:
            return asked_commitments.forget_others(connection, names)

    def is_own_document(self, sop_instance_uid: str) -> bool:
        """Whether this SOP Instance UID is that of a document of ours."""
        with self._reads.begin() as connection:
            query = select(document.c.id).where(document.c.sop_instance_uid == sop_instance_uid)
            return connection.execute(query).first() is not None

    def known_studies(self, study_uids: Collection[str]) -> dict[str, KnownStudy]:
        """The sender of the first image of each of these studies, and the decision by it.

        Studies without an image are left out.
        """
        with self._reads.begin() as connection:
            rows = _KNOWN_STUDIES.all(connection, {"uids": list(study_uids)})
        return {
            row.study_instance_uid: KnownStudy(
                row.calling_ae_title,
                row.called_ae_title,
                row.peer_address,
                codec.decision_of(row),
            )
            for row in rows
        }

    def take_worklist_answer(self, study_uid: str, answer: WorklistAnswer) -> WorklistAnswer | None:
        """Write the answer of a modality worklist; work of the study that waits becomes urgent.

        Returns the answer as it was written; None: there is no such study.
        """
        with self._writes.begin() as connection:
            return worklists.take_answer(connection, study_uid, answer)

    def campaigns_of(self, sop_instance_uids: Collection[str]) -> dict[str, dict[str, int]]:
        """The campaigns that wait for these images: by SOP Instance UID, then by release.

        Ended campaigns count, too: an image may be late.
        """
        with self._reads.begin() as connection:
            return expected_images.campaigns_of(connection, sop_instance_uids)

    def has_campaigns(self) -> bool:
        """Whether any campaign has begun and is not over."""
        with self._reads.begin() as connection:
            return expected_images.are_any(connection)

    def campaign_delivers(self, campaign_id: int) -> bool:
        """Whether documents of this campaign go to the destinations; False for one that is gone."""
        with self._reads.begin() as connection:
            return expected_images.delivers(connection, campaign_id)

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
        """Claim up to `limit` jobs of a stage for `owner`, oldest first within the first priority.

        `is_idle`: the worker holds no item, so it may take a lapsed one, which comes alone: if that
        item kills workers, it shall take no neighbour along. Items that lapsed too often fail here.
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
        """As `claim`; then seconds until more can be claimed, seen in the same transaction.

        None: there is no open row.
        """
        now = self._clock()
        notified: tuple[str, ...] = ()
        claim = Claim(stage, limit, owner, now, now + lease_seconds, destination_name)
        with self._writes.begin() as connection:
            # There are three cases. (1) Rows that lapsed too often fail here.
            lapsed = claiming.lapsed_row(connection, claim)
            if lapsed is not None:
                notified = self._fail_exhausted(connection, claim, maximum_lapses)
                lapsed = claiming.lapsed_row(connection, claim)
            # (2) No row has lapsed: claim due ones.
            if lapsed is None:
                rows = claiming.claim_due(connection, claim, self._share.due(connection, claim))
            # (3) A lapsed row comes first, and alone; no other is claimed before it.
            else:
                rows = claiming.take(connection, claim, [lapsed]) if is_idle else []
            jobs = advancing.without_superseded(connection, jobs_of(connection, stage, rows), now)
            seconds = claiming.seconds_to_next(connection, stage, now, destination_name)
        if notified:
            self._notifier.notify(notified)
        if stage == "deliver" and jobs:
            # A document may be claimed before its writer has synced it.
            self._sync_before_sending(jobs)
        return jobs, seconds

    def _sync_before_sending(self, jobs: Sequence[Job]) -> None:
        """Sync before jobs are sent that a power cut could undo.

        If the sync fails, the deliveries are due again and no job is returned.
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
        """Seconds until the next row of a stage can be claimed, at most `at_most`.

        0: one can be claimed now. Takes no write lock.
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
        """Maps of a study's analysed images by one release, by SOP Instance UID."""
        with self._reads.begin() as connection:
            return activation_maps(connection, study_uid, release)

    def advance(self, stage: str, decided: Sequence[tuple[Lease, Advance]]) -> list[bool]:
        """Write decisions and the rows that follow from them, all in one commit.

        False marks a lost lease: its decision is not written.
        """
        return self._advance(stage, [(lease, item, None) for lease, item in decided], {})[0]

    def advance_and_hand_off(
        self,
        stage: str,
        decided: Sequence[tuple[Job, Advance]],
        reservations: Mapping[str | None, Reservation],
    ) -> tuple[list[bool], list[Job]]:
        """As `advance`; then jobs for the reservations (`HandOff`), leased as by a claim.

        Reservations are by destination, where there are several.
        """
        return self._advance(stage, [(job.lease, item, job) for job, item in decided], reservations)

    def _advance(
        self,
        stage: str,
        decided: Sequence[advancing.Decided],
        reservations: Mapping[str | None, Reservation],
    ) -> tuple[list[bool], list[Job]]:
        try:
            return self._write(stage, decided, reservations, at_once=len(decided) > 1)
        except advancing.LeaseLost:
            return self._write(stage, decided, reservations, at_once=False)

    def _write(
        self,
        stage: str,
        decided: Sequence[advancing.Decided],
        reservations: Mapping[str | None, Reservation],
        *,
        at_once: bool,
    ) -> tuple[list[bool], list[Job]]:
        with self._writes.begin() as connection:
            following = HandOff(
                now := self._clock(), destination_lease.held_by(connection, reservations, now)
            )
            ordered = _in_lock_order(decided)
            if stage == "commit":
                ordered = [
                    (lease, commitments.without_erased(connection, lease, item), job)
                    for lease, item, job in ordered
                ]
            written = advancing.advance_rows(
                connection, QUEUES[stage], ordered, following, at_once=at_once
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
        """Count a lapse of an item that is known to have killed its worker.

        It is due again in `after_seconds`, beside others. False: as `lapse`.
        """
        with self._writes.begin() as connection:
            due_at = self._clock() + after_seconds
            return claiming.release(
                connection, QUEUES[stage], lease, detail, due_at, counts=True, lapses=1
            )

    def lapse(self, stage: str, lease: Lease) -> bool:
        """End the lease now as if its worker had died, counted as a lapse.

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
        """End all leases of a process that stopped (clean) or died, and return their number.

        Clean: due again, not counted. Died: lapsed now. `counts`, after a clean stop: the tries may
        have had an effect, so they stay counted.
        """
        with self._writes.begin() as connection:
            now = self._clock()
            count = sum(
                claiming.expire(connection, table, owner, now, is_clean=is_clean, counts=counts)
                for table in WORK_TABLES.values()
            )
            for table in (destination, workitem_manager):
                connection.execute(
                    update(table).where(table.c.owner == owner).values(owner=None, owned_until=None)
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
        """Make ended items of a stage due again, and return their number.

        Chosen by reason, study or destination. `among`: the configured destinations; None: any.
        Deliveries to others would never be sent. A withheld delivery becomes due only where `among`
        shows that its cause is gone (`queries/withheld`). Many items take several transactions.
        Each is safe, and a repetition after a crash does the rest.
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
        """Requeue one part, and return the number of items.

        `before`: the number in earlier parts, which the last part writes with the `deed`.
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
        """Send the delivered documents of a study again: see `resend.resend`.

        Writes nothing if there is nothing to send.
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

    def pause(
        self,
        name: str,
        *,
        is_paused: bool,
        deed: Deed | None = None,
        is_repeatable: bool = True,
    ) -> bool:
        """Stop or resume deliveries to a destination, also one that was never used.

        Deliveries in progress are finished. Returns whether it was otherwise before; unless
        `is_repeatable`, nothing is written where it was not.
        """
        with self._writes.begin() as connection:
            has_changed = destination_lease.pause(connection, name, is_paused=is_paused)
            if not (has_changed or is_repeatable):
                return False
            write_down(deed, connection, self._clock())
            self._notifier.notify_in(connection, ("deliver",))
        self._sync()
        self._notifier.notify(("deliver",))
        return has_changed

    def forget_destination(self, name: str, deed: Deed | None = None) -> Forgotten:
        """Give up deliveries to a destination that is no longer in the settings.

        The caller has checked that it is not.
        """
        with self._writes.begin() as connection:
            done = operator.forget(connection, name, self._clock())
            write_down(deed, connection, self._clock(), done.cancelled)
        self._sync()
        return done

    def forget_commitments(self, calling_ae_title: str, deed: Deed | None = None) -> int:
        """Delete the dead storage commitment reports for this AE Title, and return their number."""
        with self._writes.begin() as connection:
            count = operator.forget_commitments(connection, calling_ae_title)
            write_down(deed, connection, self._clock(), count)
        self._sync()
        return count

    def complete(
        self, study_uid: str, *, is_waiting: bool = True, deed: Deed | None = None
    ) -> Completed | None:
        """End a study's quiet period now; None: there is no such study.

        `is_waiting`: its open readings are waited for.
        """
        with self._writes.begin() as connection:
            done = operator.complete(connection, study_uid, self._clock(), is_waiting=is_waiting)
            if done is not None:
                write_down(deed, connection, self._clock())
            self._notifier.notify_in(connection, ("assemble",))
        self._sync()
        self._notifier.notify(("assemble",))
        return done

    def beat(
        self,
        name: str,
        role: str,
        pid: int,
        *,
        started_at: float,
        is_ready: bool,
        detail: str = "",
        facts: HostFacts | None = None,
    ) -> bool:
        """Write a heartbeat: the process lives, and whether it can do its work.

        `facts`: a supervisor's, of its host. False: the last heartbeat under its name was another
        process's.
        """
        alive: dict[str, str | float | bool] = {
            "role": role,
            "host": _HOST,
            "pid": pid,
            "started_at": started_at,
            "is_ready": is_ready,
            "detail": detail,
        }
        alive["beat_at"] = self._clock()
        if facts is not None:
            alive["facts"] = facts.dump()
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
        """Processes of this host without a heartbeat for so long, as (name, process id).

        A heartbeat in the future counts as none: the clock was set back.
        """
        now = self._clock()
        quiet = and_(
            process.c.host == _HOST, ~process.c.beat_at.between(now - seconds, now + seconds)
        )
        with self._reads.begin() as connection:
            return [
                (row.name, row.pid)
                for row in connection.execute(select(process.c.name, process.c.pid).where(quiet))
            ]

    def hosts(self) -> list[Host]:
        """Servers with a heartbeat, by host, with the facts in it."""
        with self._reads.begin() as connection:
            return heartbeats.hosts(connection, moment_in(connection, self._clock))

    def clock_reading(self) -> ClockReading | None:
        """Compare our clock, the source of all moments here, with the database's (PostgreSQL)."""
        return read_clock(self._reader, self._clock)

    def clock_ahead_seconds(self) -> float:
        """Seconds by which our clock is certainly ahead of the database's; negative: behind."""
        reading = self.clock_reading()
        return 0.0 if reading is None else reading.certain_seconds

    def reschedule_after_clock_step(self, stage: str, longest_seconds: float) -> int:
        """Make rows due that wait longer than that, as after a clock was set back.

        Returns how many rows of the stage.
        """
        with self._writes.begin() as connection:
            return clock_recovery.free(connection, stage, longest_seconds, self._clock())

    def reschedule_commitments_after_clock_step(self, longest_seconds: float) -> int:
        """Ask destinations for documents that wait longer than that, and return their number."""
        with self._writes.begin() as connection:
            return asked_commitments.free(connection, longest_seconds, self._clock())

    def listen(self, stage: str) -> Subscription:
        """A subscription that is notified when rows of this stage may be due."""
        return self._notifier.listen(stage)


def _until_ours(write: Callable[[], T]) -> T:
    """Repeat a write while another process inserts the same UIDs (PostgreSQL).

    The next try finds the other's rows. Raises IntegrityError.
    """
    for _ in range(_TRIES - 1):
        with contextlib.suppress(IntegrityError):
            return write()
    return write()


def _in_lock_order(decided: Sequence[advancing.Decided]) -> list[advancing.Decided]:
    """Decisions in the order of locks of `record`: studies by their UIDs, all else by rows.

    Two transactions that name the same rows would wait for each other (PostgreSQL).
    """

    def place(one: advancing.Decided) -> tuple[str, int]:
        lease, _, job = one
        return job.study.study_instance_uid if isinstance(job, StudyJob) else "", lease.row_id

    return sorted(decided, key=place)


def _stages_of_record(
    arrivals: Sequence[Arrival], outcomes: Sequence[RecordOutcome]
) -> tuple[str, ...]:
    """Stages with work after `record`.

    A study with open readings cannot be assembled: its last reading notifies. The outcome for a
    known image may end a study's wait.
    """
    is_read = all(arrival.releases for arrival in arrivals) and all(
        outcome is RecordOutcome.NEW for outcome in outcomes
    )
    return ("analyse",) if is_read else ("analyse", "assemble")
