"""One campaign that runs: list, fetch, order readings, and follow each image to its end."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, Protocol

from hilum.domain import (
    Campaign,
    CampaignState,
    ExpectedImage,
    Priority,
    SeriesReason,
    SeriesState,
)
from hilum.observability import telemetry
from hilum.retrieve.pace.limits import Wait
from hilum.retrieve.source import (
    FetchReport,
    FetchRequest,
    ImageSource,
    IncomingPart,
    ObjectStore,
    PartOutcome,
    SourceError,
)
from hilum.services.campaigns.progress import FetchState, Step, step, step_without_list
from hilum.settings import CampaignLimits
from hilum.store.admin.reanalyse import Reanalysis, ReanalysisRequest
from hilum.store.campaigns.campaigns import Campaigns
from hilum.store.campaigns.series_queue import ImageRow, SeriesChange, SeriesQueue, SeriesRow
from hilum.store.database.engines import AWAY
from hilum.store.retention.policy import RetentionPolicy, Rule

_LOOK_SECONDS: Final = 0.5
_SHORTEST_SECONDS: Final = 0.05
_IDLE_SECONDS: Final = 5.0
_SLOW_SECONDS: Final = 30.0  # between two looks for late images
# Until an object that our store has taken is missing: it has its row when it is indexed.
_ROWS_SECONDS: Final = 30.0
# After the last reading, until pixels that cannot leave yet are left to retention.
_RELEASE_SECONDS: Final = 600.0
_SERIES_AT_ONCE: Final = 16
_THREADS: Final = 4
_NOT_FOUND: Final = ("404", "410")
_UNAVAILABLE: Final = ("OFFLINE", "UNAVAILABLE")
log = telemetry.logger("services")


class Gate(Protocol):
    """The decision whether a source may be asked now: hours, rates, rests, outages."""

    def closed(self) -> Wait | None:
        """Return the wait, or None: it may be asked."""

    def ended(self, images: int, seconds: float, *, is_outage: bool) -> None:
        """Count a request that has ended."""


@dataclass(slots=True)
class _Request:
    """The facts on a series' last request.

    `moved_at`: monotonic, when an image came last. `here`: how many images of the series are;
    `stored`: how many will be, because our store has them. `is_ours`: this process asked.
    """

    report: FetchReport | None
    moved_at: float
    here: int = 0
    stored: int = 0
    is_ours: bool = True
    refusals: dict[str, str] = field(default_factory=dict)
    availability: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RunnerParts:
    """The parts that a runner works with.

    `is_local`: the source is files or the archive, so several series are fetched at once.
    `may_follow`: images may come after the end of a request, also of one that a process made before
    this one (C-MOVE).
    `obstacle`: why nothing may be fetched now for the sake of the machine or of live images.
    """

    campaigns: Campaigns
    queue: SeriesQueue
    source: ImageSource
    store: ObjectStore
    reanalysis: Reanalysis
    retention: RetentionPolicy
    gate: Gate
    obstacle: Callable[[], str]
    is_local: bool
    may_follow: bool
    quiet_seconds: float
    request_seconds: float
    titles: frozenset[str]


class CampaignRunner:
    """The work on one campaign, on one thread.

    An image of it that is in the archive is never asked for again.
    """

    def __init__(
        self,
        campaign: Campaign,
        parts: RunnerParts,
        limits: CampaignLimits,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        assert campaign.release is not None
        self._campaign = campaign
        self._release = campaign.release
        self._parts = parts
        self._limits = limits
        self._clock = clock
        self._monotonic = monotonic
        self._requests: dict[int, _Request] = {}
        self._late_at = 0.0
        self._released_to = 0
        self._fetched_now: frozenset[int] = frozenset()
        self._closed_until = math.inf
        self._over_since: float | None = None
        self._said = campaign.detail
        self._shown = ""

    def run(self, stop: threading.Event, state: Callable[[], CampaignState]) -> None:
        """Work until the campaign is over or `stop` is set. `state`: as a person last set it."""
        with ThreadPoolExecutor(_THREADS, "campaign-fetch") as threads:
            try:
                while not stop.is_set():
                    pause = self.turn(state(), threads, stop)
                    if pause is None:
                        return
                    stop.wait(pause)
            finally:
                self._show("")  # or the gauge would stand until the process ends

    def turn(
        self, state: CampaignState, threads: ThreadPoolExecutor, stop: threading.Event
    ) -> float | None:
        """Do one round; return the seconds until the next one, None when the campaign is over."""
        unread = self._settle()
        self._release_pixels()
        if self._is_over(state):
            return None
        is_running = state is CampaignState.RUNNING and not stop.is_set()
        if not is_running:
            self._show("")
        elif self._ask(unread, threads, stop):
            return 0.0
        pause = _LOOK_SECONDS if unread else self._rest()
        return max(_SHORTEST_SECONDS, min(pause, self._closed_until - self._clock()))

    def _rest(self) -> float:
        due_at = self._parts.queue.due_at()
        until_due = _IDLE_SECONDS if due_at is None else due_at - self._clock()
        return min(_IDLE_SECONDS, max(_LOOK_SECONDS, until_due))

    def _is_over(self, state: CampaignState) -> bool:
        """End the campaign if nothing of it is left to do."""
        queue = self._parts.queue
        is_over = (
            not queue.under_way()
            if state is CampaignState.CANCELLED
            else state is CampaignState.RUNNING and queue.is_over()
        )
        if not is_over or queue.unread_of_dead():
            self._over_since = None
            return False
        self._over_since = self._over_since or self._monotonic()
        is_patient = self._monotonic() - self._over_since < _RELEASE_SECONDS
        # A result follows when its study closes: an export after the end has them all.
        if is_patient and (queue.unreleased() or queue.has_open_study()):
            return False
        self._parts.campaigns.end(self._campaign.id)
        log.info("campaign_ended", campaign=self._campaign.name)
        return True

    def _settle(self) -> int:
        """Write the progress of the series under way; return their unread images.

        A series that is fetched now is in the hands of its own thread.
        """
        queue = self._parts.queue
        found = queue.under_way() + queue.unread_of_dead()
        if self._monotonic() >= self._late_at:
            self._late_at = self._monotonic() + _SLOW_SECONDS
            found += queue.late()
        series = list({row.id: row for row in found if row.id not in self._fetched_now}.values())
        images = queue.images([row.id for row in series])
        steps = [self._step(row, images.get(row.id, [])) for row in series]
        queue.write([item.change for item in steps if item.change is not None])
        for row, item in zip(series, steps, strict=True):
            if item.change is not None and item.change.values.get("state") in _LEFT:
                self._requests.pop(row.id, None)
        self._order(list(chain.from_iterable(item.unordered for item in steps)))
        return sum(item.unread for item in steps)

    def _step(self, series: SeriesRow, images: Sequence[ImageRow]) -> Step:
        request = self._requests.get(series.id)
        if request is None:  # it was asked for by a process that has ended
            request = _Request(
                FetchReport("", may_follow=self._parts.may_follow), self._monotonic(), is_ours=False
            )
            self._requests[series.id] = request
        here = sum(image.is_here or image.is_read for image in images)
        if here != request.here:
            request.here = here
            request.moved_at = self._monotonic()
        fetch = self._fetch_state(request)
        if not request.is_ours and series.state is SeriesState.REQUESTED:
            fetch = replace(fetch, is_interrupted=True)
        return step(series, images, fetch, self._clock())

    def _quiet_seconds(self, request: _Request, report: FetchReport) -> float:
        """Return how long no image may come until those that are not here are missing."""
        if report.may_follow:
            return self._parts.quiet_seconds
        return _ROWS_SECONDS if request.here < request.stored else _LOOK_SECONDS

    def _fetch_state(self, request: _Request) -> FetchState:
        report = request.report
        if report is None:
            return FetchState(is_over=False)
        quiet = self._quiet_seconds(request, report)
        is_offline = bool(request.availability & frozenset(_UNAVAILABLE))
        reason = SeriesReason.NOT_RECEIVED
        if is_offline:
            reason = SeriesReason.OFFLINE
        elif report.status == "timed out":
            reason = SeriesReason.TIMED_OUT
        elif report.status in _NOT_FOUND:
            reason = SeriesReason.NOT_FOUND
        elif report.problem:
            reason = SeriesReason.REFUSED_BY_SOURCE
        return FetchState(
            is_over=self._monotonic() - request.moved_at >= quiet,
            refusals=request.refusals,
            reason=reason,
            detail=report.problem,
            is_nearline="NEARLINE" in request.availability,
            may_try_again=report.may_repeat and not is_offline,
        )

    def _order(self, unordered: Sequence[tuple[int, str]]) -> None:
        """Have the release read images that are in the archive without a reading."""
        if not unordered:
            return
        order = ReanalysisRequest(
            self._release,
            sop_instance_uids=tuple(uid for _, uid in unordered),
            campaign_id=self._campaign.id,
        )
        studies = sorted({study for study, _ in unordered})
        for _ in self._parts.reanalysis.begin(order, studies):
            pass

    def _release_pixels(self) -> None:
        """Let pixels go that came for this campaign and are read, once their study is finished.

        The scan goes on behind images that have to stay, such as those that a commitment keeps.
        """
        unreleased = self._parts.queue.unreleased(self._released_to)
        if not unreleased:
            self._released_to = 0
            return
        self._released_to = max(chain.from_iterable(unreleased.values()))
        rule = Rule(tuple(Priority), self._clock(), "campaign", called_ae_titles=self._parts.titles)
        freed = self._parts.retention.release_of(unreleased.keys(), rule)
        if freed:
            self._parts.retention.remove_files()
        ids = list(chain.from_iterable(unreleased.values()))
        self._parts.queue.mark_released(ids, self._parts.titles)

    def _ask(self, unread: int, threads: ThreadPoolExecutor, stop: threading.Event) -> bool:
        """Ask for the next series, if all limits permit it; return whether anything was asked."""
        self._closed_until = math.inf
        room = self._limits.maximum_unread_images - unread
        if room <= 0:
            self._show("")
            return False
        cause, wait = self._wait()
        self._show(cause)
        if wait:
            self._say(wait)
            return False
        series = self._parts.queue.next_series(_SERIES_AT_ONCE if self._parts.is_local else 1)
        if not series:
            return False
        self._say("")
        problems = self._try_all(series, threads, stop)
        for problem in filter(None, problems):
            self._say(problem)
        # A source that is away is asked again after a pause.
        return not any(problems)

    def _try_all(
        self, series: Sequence[SeriesRow], threads: ThreadPoolExecutor, stop: threading.Event
    ) -> list[str | None]:
        """Fetch series at once, and follow the others meanwhile.

        A fetch that waits for the disk may wait for the very pixels that this campaign can release.
        """
        self._fetched_now = frozenset(row.id for row in series)
        futures = [threads.submit(self._try, row, stop) for row in series]
        while wait(futures, _LOOK_SECONDS).not_done:
            with contextlib.suppress(*AWAY, OSError):  # a round that fails too says so
                self._settle()
                self._release_pixels()
                self._say(self._parts.obstacle())
        self._fetched_now = frozenset()
        return [future.result() for future in futures]

    def _wait(self) -> tuple[str, str]:
        """Return why nothing may be asked for now, as a cause and in words; empty: it may."""
        if problem := self._parts.obstacle():
            return "live", problem
        kept = self._parts.queue.bytes_kept()
        if kept > self._limits.maximum_bytes:
            return "live", (
                f"{kept >> 20} MiB of this campaign are in the archive (campaigns.maximum_bytes):"
                " they have to be read and reported first"
            )
        closed = self._parts.gate.closed()
        if closed is None:
            return "", ""
        self._closed_until = closed.until
        return closed.cause, closed.reason

    def _show(self, cause: str) -> None:
        """Set the gauge of the cause for which nothing is asked of the source."""
        source = self._campaign.source
        if cause != self._shown:
            if self._shown:
                telemetry.SOURCE_WAITING.labels(source, self._shown).set(0)
            if cause:
                telemetry.SOURCE_WAITING.labels(source, cause).set(1)
            self._shown = cause

    def _say(self, detail: str) -> None:
        if detail != self._said:
            self._said = detail
            self._parts.campaigns.note(self._campaign.id, detail)

    def _try(self, series: SeriesRow, stop: threading.Event) -> str | None:
        """List and fetch one series; return a sentence if the source is away."""
        began = self._monotonic()
        try:
            images = self._listed(series)
            if not images:
                self._nothing(series)
                self._ended(0, began, "answered")
                return None
            fetched, report = self._fetch(series, images, stop)
        except SourceError as error:
            is_away = error.is_outage or error.is_final
            self._ended(0, began, "outage" if is_away else "failed")
            return self._failed(series, error.detail, is_outage=is_away)
        is_away = report.is_outage or report.is_final
        self._ended(
            fetched, began, "outage" if is_away else "failed" if report.problem else "answered"
        )
        if is_away:
            return self._failed(series, report.problem, is_outage=True)
        return None

    def _ended(self, images: int, began: float, outcome: str) -> None:
        """Tell gate and metrics of a request that has ended.

        A refusal that a person has to mend counts as an outage for the gate: it would be repeated
        twice a second.
        """
        source = self._campaign.source
        seconds = self._monotonic() - began
        self._parts.gate.ended(images, seconds, is_outage=outcome == "outage")
        telemetry.SOURCE_REQUESTS.labels(source, outcome).inc()
        telemetry.SOURCE_IMAGES.labels(source).inc(images)
        telemetry.SOURCE_REQUEST_SECONDS.labels(source).observe(seconds)

    def _listed(self, series: SeriesRow) -> Sequence[ImageRow]:
        """Return the images of a series: as the plan has them, or as the source lists them now."""
        queue = self._parts.queue
        if not self._parts.is_local:
            listed = self._parts.source.images(
                series.study_instance_uid, series.series_instance_uid
            )
            queue.list_images(series.id, listed)
            availability = frozenset(image.availability for image in listed if image.availability)
            self._requests[series.id] = _Request(None, self._monotonic(), availability=availability)
        return queue.images([series.id]).get(series.id, [])

    def _nothing(self, series: SeriesRow) -> None:
        values = {"state": SeriesState.NOTHING_TO_READ, "finished_at": self._clock()}
        self._parts.queue.write([SeriesChange(series.id, values, {})])

    def _fetch(
        self, series: SeriesRow, images: Sequence[ImageRow], stop: threading.Event
    ) -> tuple[int, FetchReport]:
        """Ask for the images of a series that are not here; return their number, and the end."""
        wanted = [image for image in images if not (image.is_here or image.is_read)]
        request = self._requests.setdefault(series.id, _Request(None, self._monotonic()))
        request.here = len(images) - len(wanted)
        self._parts.queue.request([series], [image.id for image in wanted])
        if not wanted:
            request.report = FetchReport("0000")
            return 0, request.report
        store = _NotingStore(self._parts.store)
        report = self._parts.source.fetch(
            self._wanted(series, wanted, are_all=len(wanted) == len(images)), store, stop
        )
        request.refusals = store.refusals
        request.stored = request.here + len(
            store.stored.intersection(image.sop_instance_uid for image in wanted)
        )
        request.moved_at = self._monotonic()
        request.report = report
        if report.problem:
            log.info(
                "campaign_fetch_problem",
                campaign=self._campaign.name,
                series_instance_uid=series.series_instance_uid,
                status=report.status,
                problem=report.problem,
            )
        return len(wanted), report

    def _wanted(
        self, series: SeriesRow, images: Sequence[ImageRow], *, are_all: bool
    ) -> FetchRequest:
        return FetchRequest(
            series.study_instance_uid,
            series.series_instance_uid,
            [
                ExpectedImage(image.sop_instance_uid, image.sop_class_uid, image.origin)
                for image in images
            ],
            are_all=are_all,
            limit_seconds=self._parts.request_seconds + 5.0 * len(images),
        )

    def _failed(self, series: SeriesRow, detail: str, *, is_outage: bool) -> str | None:
        """Put a series back whose source gave no answer. An outage counts no attempt."""
        self._requests.pop(series.id, None)
        attempts = series.attempts + (0 if is_outage else 1)
        fetch = FetchState(is_over=True, reason=SeriesReason.REFUSED_BY_SOURCE, detail=detail)
        now = self._clock()
        if is_outage:
            values: Mapping[str, object] = {
                "state": SeriesState.FOUND,
                "attempts": attempts,
                "due_at": now,
                "detail": detail,
            }
            self._parts.queue.write([SeriesChange(series.id, values, {})])
            return detail
        images = self._parts.queue.images([series.id]).get(series.id, [])
        tried = replace(series, attempts=attempts)
        change: SeriesChange | None = step_without_list(tried, fetch, now)
        if images:
            change = step(tried, images, fetch, now).change
        if change is None or not change.values:
            values = {"state": SeriesState.FOUND, "due_at": now + 60.0, "detail": detail}
            change = SeriesChange(series.id, values, {})
        counted = {**change.values, "attempts": attempts}
        self._parts.queue.write([SeriesChange(series.id, counted, change.images)])
        return None


_LEFT: Final = (
    SeriesState.FOUND,
    SeriesState.READ,
    SeriesState.DEAD,
    SeriesState.NOTHING_TO_READ,
)


class _NotingStore:
    """A store that keeps the outcomes of one fetch, by SOP Instance UID."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self.refusals: dict[str, str] = {}
        self.stored: set[str] = set()

    def begin(self, origin: str = "") -> IncomingPart:
        """Begin an object."""
        return _NotingPart(self._store.begin(origin), self)

    def note(self, outcome: PartOutcome) -> None:
        """Keep that an object is stored, or the problem of one that will be refused again."""
        with self._lock:
            if not outcome.problem:
                self.stored.add(outcome.sop_instance_uid)
            elif not outcome.is_transient:
                self.refusals[outcome.sop_instance_uid] = outcome.problem


class _NotingPart:
    """A part whose outcome is noted."""

    def __init__(self, part: IncomingPart, store: _NotingStore) -> None:
        self._part = part
        self._store = store

    def write(self, piece: bytes) -> None:
        """Take the next bytes."""
        self._part.write(piece)

    def end(self) -> PartOutcome:
        """Return the outcome, which is noted."""
        outcome = self._part.end()
        self._store.note(outcome)
        return outcome

    def abandon(self) -> None:
        """Discard an object that is not whole."""
        with contextlib.suppress(SourceError):
            self._part.abandon()
