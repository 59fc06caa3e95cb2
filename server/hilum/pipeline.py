"""THE MAIN PATH: the stages of an image's way, in order, and the loop that serves each of them.

    receive ═ analyse ═ assemble ═ report ═ deliver

    ═ is a durable boundary: a committed row, safe to crash here

A stage claims rows by leases, works on a bounded number of them at once, and writes its decisions.
It is not a barrier: each item completes alone, and commits are grouped. Every stage is idempotent:
the same row done twice gives the same rows.

Two stages stand beside this way. `compare` compares a shadow's output with the reported one
(docs/models/rollouts.md); no study waits for it. `commit` sends the storage commitment report
(PS3.4 J.3.3) to each requester.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ParamSpec, TypeVar

from hilum.backoff import Backoff
from hilum.domain import (
    SERVER,
    Advance,
    CommitmentState,
    ComparisonJob,
    ComparisonState,
    DeliveryJob,
    DeliveryState,
    Job,
    ReadingJob,
    ReadingState,
    ReportJob,
    ResultState,
    ServerReason,
    StudyJob,
    StudyState,
)
from hilum.errors import NotAnalysed, ReceiverGone, Refused, Retry, WorkerDied
from hilum.observability import telemetry, tracing
from hilum.one_thread import OneThread
from hilum.settings import Destination, Pipeline
from hilum.store.audit.log import Deed
from hilum.store.database.engines import AWAY, DAMAGED, error_text, is_damaged
from hilum.store.ledger import Ledger
from hilum.store.notify.notifier import Subscription
from hilum.store.queue.hand_off import Reservation
from hilum.verbs import Thing, Verb

log = telemetry.logger("pipeline")


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: its queue's table, the most items that one worker holds, and their lease.

    `is_due_when_notified`: a notified item may be claimed at once, mostly not later, so the loop
    claims without looking first.
    """

    name: str
    table: str
    not_analysed: StrEnum
    failed: StrEnum
    batch: int
    lease_seconds: float
    is_due_when_notified: bool = False


STAGES: dict[str, Stage] = {
    "analyse": Stage(
        "analyse",
        "reading",
        ReadingState.NOT_ANALYSED,
        ReadingState.FAILED,
        48,
        lease_seconds=120,
        is_due_when_notified=True,
    ),
    "assemble": Stage(
        "assemble", "study", StudyState.FAILED, StudyState.FAILED, batch=32, lease_seconds=60
    ),
    "compare": Stage(
        "compare",
        "comparison",
        ComparisonState.FAILED,
        ComparisonState.FAILED,
        batch=8,
        lease_seconds=60,
    ),
    "report": Stage(
        "report", "result", ResultState.FAILED, ResultState.FAILED, batch=8, lease_seconds=120
    ),
    "deliver": Stage(
        "deliver", "delivery", DeliveryState.DEAD, DeliveryState.DEAD, batch=8, lease_seconds=180
    ),
    "commit": Stage(
        "commit",
        "commitment",
        CommitmentState.DEAD,
        CommitmentState.DEAD,
        batch=8,
        lease_seconds=180,
    ),
}

TURN_SECONDS = 60.0
"""Of a delivery's lease: a document that comes to its turn later is given back."""
_MESSAGES = 4  # of one delivery, that may each take the time limit


def delivery_stage(destination: Destination) -> Stage:
    """Return the stage of deliveries there: a lease lasts longer than a turn and a delivery."""
    stage = STAGES["deliver"]
    message_seconds = getattr(destination, "timeout_seconds", 0.0)  # a folder has none
    lease_seconds = max(stage.lease_seconds, TURN_SECONDS + _MESSAGES * message_seconds)
    return replace(stage, lease_seconds=lease_seconds)


P = ParamSpec("P")
T = TypeVar("T")
Handler = Callable[[Job], Awaitable[Advance]]
_NO_ROOM_SECONDS = 0.25
_IN_VAIN_SECONDS = 0.05
_GROUP_SECONDS = 0.005  # completions within this time share one commit, and so one sync


class StageLoop:
    """Serves one stage in one process (for `deliver`: one destination) until `stop`."""

    def __init__(
        self,
        stage: Stage,
        ledger: Ledger,
        settings: Pipeline,
        owner: str,
        handle: Handler,
        destination: str | None = None,
        has_room: Callable[[], bool] = lambda: True,
        next_loops: Iterable[StageLoop] = (),
    ) -> None:
        """`has_room`: False while every claim would be in vain, as when every Triton is away.

        `next_loops`: loops of the next stage in this process. Items that are due there after an
        advance go on to them without a claim.
        """
        self._has_room = has_room
        self.destination = destination
        self._next_loops: dict[str | None, StageLoop] = {
            loop.destination: loop for loop in next_loops
        }
        self._stage = stage
        self._ledger = ledger
        self._settings = settings
        self._owner = owner
        self._handle = handle
        self._held: set[asyncio.Task[None]] = set()
        self._reserved = 0  # places for items that another loop may hand on
        self._holds_lapsed = self._is_claiming = False
        self._wants_room = False  # more could be claimed as soon as an item ends
        self._decided: list[tuple[Job, Advance]] = []
        # A bug or a damaged ledger that keeps decisions from being written. It is cleared by a
        # write, or after a time without another failure.
        self.problem = ""
        self._problem_ends = math.inf
        self._wake = asyncio.Event()
        self._stopping = False
        # One thread: the ledger's transactions of one loop are in order, and SQLite has one writer
        # anyway.
        self._ledger_thread = OneThread(f"{stage.name}-ledger")

    async def run(self) -> None:
        """Claim → handle → advance, until `stop`; then finish the held items."""
        with _subscribed(self._ledger, self._stage.name, self._wake, self._settings.poll_seconds):
            is_due = False
            while not self._stopping:
                self._wake.clear()
                if time.monotonic() > self._problem_ends:
                    self.problem = ""
                    self._problem_ends = math.inf
                jobs, pause = await self._claim(is_due=is_due)
                for job in jobs:
                    self._start(job)
                is_notified = await self._wait(pause)
                is_due = (
                    self._stage.is_due_when_notified
                    if is_notified
                    else pause < self._settings.poll_seconds
                )
        while self._held or self._reserved:
            self._wake.clear()
            await (asyncio.wait(self._held) if self._held else self._wake.wait())
        await self._flush()
        self._ledger_thread.close()

    def stop(self) -> None:
        """Claim no more. Call it in the loop's thread."""
        self._stopping = True
        self._wake.set()

    async def _claim(self, *, is_due: bool) -> tuple[list[Job], float]:
        """Claim jobs for the free places, and return the seconds to wait for the next due row.

        `is_due`: a row should be due by now.
        """
        # There are four cases. (1) The items' supplies are away: look again soon, claim nothing.
        room = self._stage.batch - len(self._held) - self._reserved
        poll = self._settings.poll_seconds
        if not self._has_room():
            return [], min(poll, _NO_ROOM_SECONDS)
        # (2) Few free places: a claim for each completed item would be a transaction for each. A
        # lapsed item is worked on alone. In both cases the end of an item wakes the loop.
        if room < max(1, self._stage.batch // 4 if self._held else 1) or self._holds_lapsed:
            self._wants_room = True
            return [], poll
        # (3) Claim. Until it has returned, no other loop may hand items on to this one.
        self._is_claiming = True
        try:
            return await self._in_ledger_thread(self._claim_now, room, is_due=is_due)
        except AWAY as error:  # (4) the ledger is away: the leases of held items go on
            log.error(
                "ledger_unavailable",
                stage=self._stage.name,
                error=error_text(error),
                advice="the stage waits and tries again",
            )
            return [], poll
        finally:
            self._is_claiming = False

    def _claim_now(self, room: int, *, is_due: bool) -> tuple[list[Job], float]:
        """Claim now; unless `is_due` look first, because a claim takes the write lock."""
        stage = self._stage
        poll = self._settings.poll_seconds
        self._wants_room = False
        if not is_due:
            pause = self._ledger.seconds_to_next(
                stage.name, poll, destination_name=self.destination
            )
            if pause > 0:
                return [], pause
        if not self._holds_destination():
            return [], poll
        jobs, next_in = self._ledger.claim_and_look(
            stage.name,
            room,
            self._owner,
            stage.lease_seconds,
            maximum_lapses=self._settings.maximum_lapses,
            is_idle=not self._reserved and not self._held,  # in this order: see `accept`
            destination_name=self.destination,
        )
        # (1) Every place is filled: there may be more rows. The end of an item wakes the loop.
        # (2) A row is due, but it lapsed, so it is claimed alone: wait for the held items.
        # (3) A row is due, and nothing is held: it failed here, or another process took it.
        # (4) Wait for the next row, or for a notification.
        is_in_vain = not jobs and next_in == 0
        self._wants_room = len(jobs) >= room or (is_in_vain and bool(self._held or self._reserved))
        if is_in_vain and not self._wants_room:
            return [], _IN_VAIN_SECONDS
        return jobs, poll if self._wants_room or next_in is None else min(poll, next_in)

    def _holds_destination(self) -> bool:
        return self.destination is None or self._ledger.acquire_destination(
            self.destination, self._owner, self._stage.lease_seconds
        )

    def _start(self, job: Job) -> None:
        telemetry.STAGE_WAIT_SECONDS.labels(self._stage.name).observe(
            max(0.0, job.lease.waited_seconds)
        )
        task = asyncio.create_task(self._complete(job))
        self._held.add(task)
        self._holds_lapsed = self._holds_lapsed or job.lease.has_lapsed
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._held.discard(task)
        self._holds_lapsed = self._holds_lapsed and bool(self._held)
        if self._wants_room:
            self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            words = (
                DAMAGED
                if (is_lasting := is_damaged(error))
                else f"unexpected {type(error).__name__}; see the log"
            )
            self.problem = f"{self._stage.name}: {words}"
            # The next try comes when the lease has lapsed. A stage without items for days would
            # never write, so the problem ends by time.
            self._problem_ends = (
                math.inf if is_lasting else time.monotonic() + 2 * self._stage.lease_seconds
            )
            log.error("stage_loop_bug", stage=self._stage.name, exc_info=error)

    async def _wait(self, seconds: float) -> bool:
        """Wait; True: there is a reason to look before the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):  # wait_for would make a task for each wait
                await self._wake.wait()
        return self._wake.is_set()

    async def _complete(self, job: Job) -> None:
        """Work on one item inside its span."""
        if not tracing.is_on():
            await self._work_on(job, tracing.UNTRACED)
            return
        attributes = {
            "attempt": job.lease.attempts,
            "waited_seconds": job.lease.waited_seconds,
            "destination": self.destination,
        }
        kind: tracing.Kind = "internal" if self.destination is None else "client"
        with tracing.work(
            self._stage.name, _study_of(job), {**attributes, "release": _release_of(job)}, kind
        ) as work:
            await self._work_on(job, work)

    async def _work_on(self, job: Job, work: tracing.Work) -> None:
        """Decide in the stage's handler, then write the decision or the verb of its error."""
        started = time.perf_counter()
        try:
            decided = await self._handle(job)
        except NotAnalysed as error:
            decided = Advance(
                self._stage.not_analysed, {"reason": error.reason.value, "detail": error.detail}
            )
        except Refused as error:
            decided = Advance(self._stage.failed, {"reason": error.reason, "detail": error.detail})
        except Retry as error:
            work.ends("retry", error.detail)
            await self._retry(job, error)
            return
        except WorkerDied as error:
            work.ends("worker_died", is_error=True)
            await self._lapse(job, error)
            return
        except Exception as error:  # the one place where a bug in a handler must not stop the loop
            log.error("stage_failed", stage=self._stage.name, row=job.lease.row_id, exc_info=error)
            work.ends("retry", type(error).__name__, is_error=True)
            await self._retry(job, Retry(f"unexpected {type(error).__name__}; see the log"))
            return
        telemetry.STAGE_SECONDS.labels(self._stage.name).observe(time.perf_counter() - started)
        work.ends(
            decided.state.value,
            decided.values.get("reason"),
            is_error=decided.state is self._stage.failed,
        )
        await self._advance(job, decided)

    async def _lapse(self, job: Job, error: WorkerDied) -> None:
        """End a lease whose worker died.

        An item that is known to kill its workers is due behind the others. An item that may have
        killed them comes again alone.
        """
        if not error.is_named:
            await self._in_ledger_thread(
                self._insist, lambda: self._ledger.lapse(self._stage.name, job.lease)
            )
            self._wants_room = True  # it can be claimed, alone
            return
        if (lapses := job.lease.lapses + 1) >= self._settings.maximum_lapses:
            values = {
                "reason": ServerReason.WORKER_CRASHED.value,
                "detail": f"{lapses} leases lapsed",
                "lapses": lapses,
            }
            await self._advance(job, Advance(self._stage.failed, values))
            return
        name = self._stage.name
        pause = back_off(lapses, self._settings)
        await self._in_ledger_thread(
            self._insist, lambda: self._ledger.set_aside(name, job.lease, "its worker died", pause)
        )
        self._wake.set()

    async def _retry(self, job: Job, error: Retry) -> None:
        lease = job.lease
        settings = self._settings
        if not error.is_outage and lease.attempts >= settings.maximum_attempts:
            values = {
                "reason": ServerReason.ATTEMPTS_EXHAUSTED.value,
                "detail": f"{lease.attempts} tries; the last: {error.detail}",
            }
            await self._advance(job, Advance(self._stage.failed, values))
            return
        if isinstance(error, ReceiverGone) and self.destination is not None:
            await self._pause(self.destination, error)
        telemetry.STAGE_RETRIES.labels(self._stage.name).inc()
        pause = (
            error.after_seconds
            if error.after_seconds is not None
            else back_off(lease.attempts, settings)
        )
        name = self._stage.name
        counts = not error.is_outage
        await self._in_ledger_thread(
            self._insist,
            lambda: self._ledger.retry(name, lease, error.detail, pause, counts=counts),
        )
        self._wake.set()  # it may be due before the row that the loop waits for

    async def _pause(self, destination: str, error: ReceiverGone) -> None:
        """Pause the destination as a person does, until a person resumes it."""

        def write() -> bool:
            # Made anew at each try: a commit of unknown outcome may have written its row.
            deed = Deed(Verb.PAUSE, SERVER, detail=error.detail)
            deed.about(Thing.DESTINATION, destination)
            return self._ledger.pause(destination, is_paused=True, deed=deed, is_repeatable=False)

        if not await self._in_ledger_thread(self._insist, write):
            return  # another document has paused it, or the ledger is away, and said so
        log.error(
            "destination_paused",
            destination=destination,
            detail=error.detail,
            advice=(
                "its documents wait; when its receiver takes them again, `hilum destinations"
                f" resume {destination}`"
            ),
        )

    async def _advance(self, job: Job, decided: Advance) -> None:
        """Queue a decision for the next commit.

        The first of a group commits for all that come within the group's time.
        """
        self._decided.append((job, decided))
        if len(self._decided) > 1:
            return
        if len(self._held) > 1:  # else no other decision can come
            await asyncio.sleep(_GROUP_SECONDS)
        await self._flush()

    async def _flush(self) -> None:
        group = self._decided
        self._decided = []
        if group:
            written = await self._write(group)
            for (_, decided), is_written in zip(
                group, written or [False] * len(group), strict=True
            ):
                self._count(decided, is_written)

    async def _write(self, group: Sequence[tuple[Job, Advance]]) -> list[bool]:
        """Write decisions; the rows that follow go on in this process as far as there are places.

        Returns whether each lease was held; empty: nothing could be written.
        """
        reservations = {
            name: self._next_loops[name].reserve(count)
            for name, count in _followers(group).items()
            if name in self._next_loops
        }
        jobs: list[Job] = []

        def write() -> tuple[list[bool], list[Job]]:
            return self._ledger.advance_and_hand_off(self._stage.name, group, reservations)

        try:
            answer = await self._in_ledger_thread(lambda: self._insist(write))
            written, jobs = ([], []) if answer is None else answer
            self.problem = ""
        finally:
            for name, reservation in reservations.items():
                self._next_loops[name].accept(
                    [job for job in jobs if _destination_of(job) == name], reservation
                )
        return written

    def reserve(self, count: int) -> Reservation:
        """Reserve places for items that another loop may hand on; `accept` frees unused ones.

        Call it in the event loop's thread. There are none while more rows are due than there was
        room for: the waiting rows may be more urgent.
        """
        is_open = (
            not (self._stopping or self._is_claiming or self._wants_room or self._holds_lapsed)
            and self._has_room()
        )
        places = min(count, self._stage.batch - len(self._held) - self._reserved) if is_open else 0
        self._reserved += places
        return Reservation(self._owner, places, self._stage.lease_seconds)

    def accept(self, jobs: Iterable[Job], reservation: Reservation) -> None:
        """Start the jobs that were handed on, then free the reserved places.

        In this order, so that a loop that gets a job never looks idle.
        """
        for job in jobs:
            self._start(job)
        self._reserved -= reservation.places
        if self._wants_room or self._stopping:
            self._wake.set()

    def _insist(self, write: Callable[[], T]) -> T | None:
        """Write decisions even if the database is away for a while.

        The work is done, and the leases still hold. None: it was away for too long. The leases
        lapse, and then the work is done again.
        """
        give_up = time.monotonic() + self._stage.lease_seconds / 2
        while True:
            try:
                return write()
            except AWAY as error:
                if time.monotonic() > give_up:
                    log.error(
                        "not_written",
                        stage=self._stage.name,
                        error=error_text(error),
                        advice="done again when the lease has lapsed",
                    )
                    return None
                time.sleep(0.5)

    def _count(self, decided: Advance, is_written: bool) -> None:
        if is_written:
            telemetry.STAGE_OUTCOMES.labels(
                self._stage.name, decided.state.value, decided.values.get("reason") or ""
            ).inc()
        else:
            telemetry.LEASES_LOST.labels(self._stage.name).inc()

    async def _in_ledger_thread(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        def run() -> T:
            with telemetry.cpu(f"{self._stage.name}_ledger"):
                return function(*args, **kwargs)

        return await self._ledger_thread.call(run)


def _followers(group: Iterable[tuple[Job, Advance]]) -> Counter[str | None]:
    """Number of items of the next stage that may follow, by destination (None: it has none)."""
    decided = [item for _, item in group]
    results = [None for item in decided for _ in item.results]
    return Counter(
        [
            *results,
            *(name for item in decided for new in item.documents for name in new.destinations),
        ]
    )


def _study_of(job: Job) -> str | None:
    """A job's Study Instance UID; None: storage commitment, which may name several."""
    match job:
        case ReadingJob():
            return job.instance.study_instance_uid
        case StudyJob() | ReportJob():
            return job.study.study_instance_uid
        case ComparisonJob():
            return job.shadow.study.study_instance_uid
        case DeliveryJob():
            return job.study_instance_uid
    return None


def _release_of(job: Job) -> str | None:
    match job:
        case ReadingJob() | ComparisonJob() | DeliveryJob():
            return job.release
        case ReportJob():
            return job.result.release
    return None


def _destination_of(job: Job) -> str | None:
    return job.destination if isinstance(job, DeliveryJob) else None


def back_off(attempts: int, settings: Pipeline) -> float:
    """Return the pause before the next try, seconds, a quarter more or less."""
    longest = settings.maximum_backoff_seconds
    return Backoff(settings.backoff_seconds, longest, jitter=0.25).after(attempts)


@contextlib.contextmanager
def _subscribed(
    ledger: Ledger, stage: str, wake: asyncio.Event, poll_seconds: float
) -> Iterator[None]:
    """Set `wake` in this thread's loop whenever the stage is notified."""
    subscription = ledger.listen(stage)
    hearing = (
        _notified_in_thread(subscription, stage, wake, poll_seconds)
        if subscription.descriptor is None
        else _notified_in_loop(subscription, subscription.descriptor, wake)
    )
    with hearing:
        yield


@contextlib.contextmanager
def _notified_in_loop(
    subscription: Subscription, descriptor: int, wake: asyncio.Event
) -> Iterator[None]:
    """Watch the subscription in the event loop: no thread is woken, and none polls."""
    loop = asyncio.get_running_loop()

    def hear() -> None:
        if subscription.wait(0):
            wake.set()

    loop.add_reader(descriptor, hear)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        subscription.close()


@contextlib.contextmanager
def _notified_in_thread(
    subscription: Subscription, stage: str, wake: asyncio.Event, poll_seconds: float
) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    is_over = threading.Event()

    def hear() -> None:
        while not is_over.is_set():
            if subscription.wait(poll_seconds) and not is_over.is_set():
                loop.call_soon_threadsafe(wake.set)

    thread = threading.Thread(target=hear, name=f"{stage}-subscription", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        subscription.close()
        thread.join(timeout=poll_seconds + 1)
