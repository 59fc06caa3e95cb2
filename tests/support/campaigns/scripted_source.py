"""A source in memory whose answers a test writes, and a campaign on it over a real ledger."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hilum.domain import (
    CAMPAIGN_AE_TITLE,
    Campaign,
    CampaignOptions,
    CampaignState,
    ExpectedImage,
    PlannedSeries,
)
from hilum.receive.indexing.arrivals import arrivals_of
from hilum.retrieve.source import (
    Answers,
    FetchReport,
    FetchRequest,
    ObjectStore,
    ProbeLine,
    Query,
    SourceError,
)
from hilum.services.campaigns.gate import OpenGate
from hilum.services.campaigns.runner import CampaignRunner, Gate, RunnerParts
from hilum.settings import CampaignLimits, Settings
from hilum.store.admin.reanalyse import Reanalysis
from hilum.store.archive.archive import Archive
from hilum.store.campaigns.campaigns import Campaigns, PlanPart
from hilum.store.campaigns.series_queue import SeriesQueue
from hilum.store.retention.policy import RetentionPolicy
from tests.support.ledger.arrivals import arrival_of
from tests.support.ledger.rolling import Rolling, kept

SUCCESS = FetchReport("0000", may_follow=True)
QUIET_SECONDS = 30.0


class NoStore:
    """A store that takes nothing: the scripted source puts images into the ledger itself."""

    def begin(self, origin: str = "") -> Any:
        """Fail: no test of a scripted source gets here."""
        raise AssertionError(origin)


@dataclass
class ScriptedSource:
    """Series with their images; `arrive` puts an image of a series into the ledger.

    `withheld`: images that it lists and never sends. `late`: those that come after its answer,
    by `send_late`. `away`: an outage. `refusal`: its answer to each list.
    """

    arrive: Callable[[str, str], None]
    series: dict[str, list[str]] = field(default_factory=dict)
    withheld: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    away: bool = False
    refusal: SourceError | None = None
    report: FetchReport = SUCCESS
    availability: str = ""
    fetched: Counter[str] = field(default_factory=Counter)
    requests: list[tuple[str, ...]] = field(default_factory=list)
    owed: list[tuple[str, str]] = field(default_factory=list)

    def probe(self) -> Sequence[ProbeLine]:
        """Return nothing."""
        return []

    def find(self, query: Query) -> Answers:
        """Return nothing: plans are written by the test."""
        del query
        return Answers(())

    def images(self, study_instance_uid: str, series_instance_uid: str) -> Sequence[ExpectedImage]:
        """Return the images that the test gave the series."""
        del study_instance_uid
        if self.away:
            raise SourceError("no answer", is_outage=True)
        if self.refusal is not None:
            raise self.refusal
        return [
            ExpectedImage(uid, availability=self.availability)
            for uid in self.series.get(series_instance_uid, [])
        ]

    def fetch(self, wanted: FetchRequest, store: ObjectStore, stop: threading.Event) -> FetchReport:
        """Send what is not withheld; claim the status of `report`."""
        del store, stop
        if self.away:
            return FetchReport("", "connection lost", is_outage=True)
        self.requests.append(tuple(image.sop_instance_uid for image in wanted.images))
        for image in wanted.images:
            uid = image.sop_instance_uid
            if uid in self.late:
                self.owed.append((uid, wanted.study_instance_uid))
            elif uid not in self.withheld:
                self.fetched[uid] += 1
                self.arrive(uid, wanted.study_instance_uid)
        return self.report

    def send_late(self) -> None:
        """Send the images that were promised."""
        for uid, study in self.owed:
            self.fetched[uid] += 1
            self.arrive(uid, study)
        self.owed.clear()

    def close(self) -> None:
        """Do nothing."""


class ScriptedCampaign:
    """A campaign by chest@2 on a scripted source, one round at a time."""

    def __init__(self, rolling: Rolling, archive: Path, stack: ExitStack) -> None:
        url = rolling.ledger.url
        self.rolling = rolling
        self.settings = Settings()
        self.campaigns = stack.enter_context(closing(Campaigns(url, rolling.clock)))
        self.source = ScriptedSource(self._arrive)
        self.limits = CampaignLimits()
        self.obstacle = ""
        self.gate: Gate = OpenGate()
        self.ticks = 0.0
        self._url = url
        self._archive = archive
        self._stack = stack
        self._threads = stack.enter_context(ThreadPoolExecutor(1))

    def plan(self, series: dict[str, list[str]]) -> Campaign:
        """Plan these series: `<study>.<series>` to SOP Instance UIDs."""
        self.source.series = series
        known = self.campaigns.create("old", "pacs", {})
        planned = [
            (PlannedSeries(uid.rpartition(".")[0], uid, "20190101", "DX", len(images)), ())
            for uid, images in series.items()
        ]
        self.campaigns.add(known.id, PlanPart("20190101", planned))
        return self.campaigns.end_plan("old")

    def run(self, *, delivers: bool = False) -> CampaignRunner:
        """Begin it, and return a runner, as a new process would have it."""
        if self.state is CampaignState.PLANNED:
            self.campaigns.run("old", "chest@2", CampaignOptions(delivers), kept("chest@2"))
        known = self.found
        parts = RunnerParts(
            campaigns=self.campaigns,
            queue=self._stack.enter_context(
                closing(SeriesQueue(self._url, known.id, "chest@2", self.rolling.clock))
            ),
            source=self.source,
            store=NoStore(),
            reanalysis=self._stack.enter_context(
                closing(Reanalysis(self._url, self.rolling.clock))
            ),
            retention=self._stack.enter_context(
                closing(RetentionPolicy(self._url, Archive(self._archive), self.rolling.clock))
            ),
            gate=self.gate,
            obstacle=lambda: self.obstacle,
            is_local=False,
            may_follow=self.source.report.may_follow,
            quiet_seconds=QUIET_SECONDS,
            request_seconds=600.0,
            titles=self.settings.campaign_titles,
        )
        return CampaignRunner(
            known, parts, self.limits, self.rolling.clock, monotonic=lambda: self.ticks
        )

    def turn(self, runner: CampaignRunner, rounds: int = 1) -> bool:
        """Do some rounds; return whether the campaign is over."""
        for _ in range(rounds):
            if runner.turn(self.state, self._threads, threading.Event()) is None:
                return True
        return False

    def pause_after_a_turn(self, runner: CampaignRunner) -> float | None:
        """Do one round; return the seconds until the next one, None at the end."""
        return runner.turn(self.state, self._threads, threading.Event())

    def pass_time(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        self.ticks += seconds
        self.rolling.clock.now += seconds

    def finish(self, runner: CampaignRunner, rounds: int = 40) -> None:
        """Fetch, read and report until the campaign is over."""
        for _ in range(rounds):
            if self.turn(runner):
                return
            self.rolling.read()
            self.rolling.close_studies()
            self.rolling.report()
            self.pass_time(QUIET_SECONDS + 1)
        raise AssertionError(f"not over after {rounds} rounds: {self.found}")

    @property
    def found(self) -> Campaign:
        """The campaign's row."""
        known = self.campaigns.find("old")
        assert known is not None
        return known

    @property
    def state(self) -> CampaignState:
        """Its state."""
        return self.found.state

    def _arrive(self, uid: str, study: str) -> None:
        """Record an image that came to the AE Title of campaigns."""
        bare = arrival_of(
            uid,
            study,
            (),
            called_ae_title=CAMPAIGN_AE_TITLE,
            calling_ae_title="PACS",
            received_at=self.rolling.clock.now,
        ).instance
        self.rolling.ledger.record(
            arrivals_of(
                [bare],
                self.settings,
                self.rolling.ledger.known_studies,
                self.rolling.ledger.campaigns_of,
            )
        )


@contextmanager
def scripted_campaign(rolling: Rolling, archive: Path) -> Iterator[ScriptedCampaign]:
    """Yield a campaign on a scripted source."""
    with ExitStack() as stack:
        yield ScriptedCampaign(rolling, archive, stack)
