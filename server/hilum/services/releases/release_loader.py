"""The releases that one analyser reads with.

Settings and rollouts choose them. Each is checked by known images.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

from hilum.domain import ReadingJob, Release, ServerReason
from hilum.errors import NotAnalysed, Retry
from hilum.observability import telemetry
from hilum.one_thread import OneThread
from hilum.services.releases.release_plan import ReleasePlan, plan_of
from hilum.services.releases.releases import Catalogue, triton_names
from hilum.services.releases.verify_release import Engines, Pixels, ReleaseVerifier
from hilum.settings import Settings
from hilum.store.database.engines import AWAY
from hilum.store.rollouts.rollouts import CannotRollOut, Rollouts

_FOLLOW_SECONDS: Final = 1.0
_LOADING_SECONDS: Final = 1.0  # until a reading whose release is being loaded is tried again
_BEHIND_SECONDS: Final = 15.0  # the same, for a release that only another host's settings name
_NEVER_CHECKED: Final = "the first canary inference has not finished"
log = telemetry.logger("services")


class LoadedReleases(Protocol):
    """The analyser: it reads with releases that are added and removed."""

    @property
    def releases(self) -> Collection[str]:
        """The releases that are there."""

    def add(self, release: Release) -> None:
        """Add a release."""

    def remove(self, name: str) -> None:
        """Remove a release."""


class CampaignReleases(Protocol):
    """The releases of campaigns."""

    def releases(self) -> frozenset[str]:
        """The releases of campaigns that run or are paused."""

    def is_read_by(self, release: str) -> bool:
        """Whether any campaign, also an ended one, reads by this release."""


class ReleaseLoader:
    """The loader of releases: it follows the rollouts.

    It loads their releases beside the others, verifies them, and unloads releases that no image
    waits for.
    """

    def __init__(
        self,
        settings: Settings,
        catalogue: Catalogue,
        rollouts: Rollouts,
        engines: Engines,
        pixels: Pixels,
        who: str,
        patience_seconds: float = 30.0,
        campaigns: CampaignReleases | None = None,
    ) -> None:
        self._settings = settings
        self._catalogue = catalogue
        self._rollouts = rollouts
        self._campaigns = campaigns
        self._who = who
        self._engines = engines
        self._prover = ReleaseVerifier(engines, pixels, settings.built_dir)
        self._patience_seconds = patience_seconds
        self._plan = plan_of(settings.active_releases, ())
        self._asked: set[str] = set()
        self._missed: set[str] = set()
        self._problems: dict[str, str] = dict.fromkeys(self._plan.all, _NEVER_CHECKED)
        self._finishing: set[str] = set()
        self._loaded: dict[str, Release] = {}
        self._failing_since: dict[str, float] = {}
        self._watching = OneThread("rollouts")
        self._over = threading.Event()

    def readiness(self) -> tuple[bool, str]:
        """Return whether every required release passed its canary, and the problems."""
        problems = [
            problem for name, problem in dict(self._problems).items() if self._is_needed(name)
        ]
        return not problems, "; ".join(dict.fromkeys(problems))[:500]

    async def explain(self, job: ReadingJob) -> NotAnalysed | Retry:
        """Return the outcome of a reading by a release that is not here.

        The release is loaded if it was chosen for the study.
        """
        name = job.release
        if not await self._is_chosen(job):
            return await self._not_chosen(name)
        if not await asyncio.to_thread(self._catalogue.__contains__, name):
            return NotAnalysed(
                ServerReason.RELEASE_NOT_AVAILABLE,
                f"{name} has no manifest any more; put it back and requeue",
            )
        self._asked.add(name)
        return Retry(f"{name} is being loaded", after_seconds=_LOADING_SECONDS, is_outage=True)

    async def _not_chosen(self, name: str) -> NotAnalysed | Retry:
        """Return a final outcome, or a Retry if a host whose settings name the release exists.

        While settings are rolled out, some hosts are behind.
        """
        if not await self._ask(self._rollouts.is_named, name):
            return NotAnalysed(
                ServerReason.RELEASE_NOT_AVAILABLE, f"{name} is not among models.releases"
            )
        if name not in self._missed:
            self._missed.add(name)
            advice = "its readings wait: give this host the same settings and restart it"
            log.warning(
                "settings_differ",
                release=name,
                problem="another server's settings name it, and this one's do not",
                advice=advice,
            )
        return Retry(
            f"{name} is in the settings of another host only",
            after_seconds=_BEHIND_SECONDS,
            is_outage=True,
        )

    async def begin(self, loaded: LoadedReleases) -> None:
        """Read the rollouts for the first readings, and close those that the settings supersede."""
        for item in await asyncio.to_thread(
            self._rollouts.close_stale, self._settings.active_releases
        ):
            log.warning("rollout_closed", alias=item.alias, reason=item.problem)
        await self.follow(loaded)

    async def run(self, loaded: LoadedReleases) -> None:
        """Follow and check, forever."""
        check_at = float("-inf")
        try:
            while True:
                has_changed = await self.follow(loaded)
                if has_changed or self._is_troubled() or time.monotonic() >= check_at:
                    await self.check(loaded)
                    check_at = time.monotonic() + self._settings.analyse.canary_seconds
                if self._is_troubled():
                    await asyncio.sleep(_FOLLOW_SECONDS)
                else:
                    await self._watching.call(
                        functools.partial(self._await_change, loaded, check_at)
                    )
        finally:
            self._over.set()

    def _await_change(self, loaded: LoadedReleases, until: float) -> None:
        """Return when the wanted releases differ from the loaded ones.

        It runs in a thread: an event loop would be woken twice for each look.
        """
        while (seconds := until - time.monotonic()) > 0 and not self._over.wait(
            min(seconds, _FOLLOW_SECONDS)
        ):
            with contextlib.suppress(Retry, *AWAY):
                plan, wanted = self._found(list(loaded.releases))
                if plan != self._plan or not self._are_here(plan, wanted, loaded):
                    return

    def _are_here(
        self, plan: ReleasePlan, wanted: Iterable[Release], loaded: LoadedReleases
    ) -> bool:
        """Return whether all wanted releases are loaded in their current version."""
        here = set(loaded.releases)
        return (plan.all | self._asked) <= here and all(
            self._loaded.get(release.id) == release for release in wanted
        )

    def _is_troubled(self) -> bool:
        return bool(self._problems or self._plan.proving)

    def _is_needed(self, name: str) -> bool:
        """Return whether images that are to be reported wait for the release."""
        return name in self._plan.required or name in self._finishing

    async def _is_chosen(self, job: ReadingJob) -> bool:
        # The settings' releases count even if two rollouts have replaced them: a study from before
        # them has no assignment.
        if job.release in {*self._plan.all, *self._asked, *self._settings.active_releases}:
            return True
        if await self._ask(
            self._rollouts.is_assigned, job.instance.study_instance_uid, job.release
        ):
            return True
        return self._campaigns is not None and await self._ask(
            self._campaigns.is_read_by, job.release
        )

    async def _ask(self, question: Callable[..., bool], *about: str) -> bool:
        try:
            return await asyncio.to_thread(question, *about)
        except AWAY as error:
            raise Retry("the ledger does not answer", is_outage=True) from error

    async def follow(self, loaded: LoadedReleases) -> bool:
        """Load the releases of settings and rollouts; return whether they have changed.

        While the ledger is away, there is no change.
        """
        try:
            found, wanted = await asyncio.to_thread(self._found, list(loaded.releases))
        except (Retry, *AWAY):
            return False
        has_changed = found != self._plan
        self._plan = found
        for release in wanted:
            if release.id in loaded.releases and self._loaded.get(release.id, release) != release:
                # it was started again with another manifest
                await self._unload(loaded, release.id)
            self._loaded[release.id] = release
            if release.id not in loaded.releases:
                self._problems[release.id] = _NEVER_CHECKED
                loaded.add(release)
                has_changed = True
        return has_changed or not (found.all | self._asked) <= set(loaded.releases)

    def _found(self, here: Collection[str]) -> tuple[ReleasePlan, list[Release]]:
        """Return the plan of the ledger, and its releases.

        Both are read in one thread, so that one thread is woken each second and not two.
        """
        wanted = frozenset[str]() if self._campaigns is None else self._campaigns.releases()
        plan = plan_of(self._settings.active_releases, self._rollouts.all(), wanted)
        return plan, self._wanted(plan, here)

    def _wanted(self, plan: ReleasePlan, here: Collection[str]) -> list[Release]:
        """Return the new releases of this analyser, and the loaded ones.

        A candidate's content may have changed, and another analyser may have verified it.
        """
        found = [self._catalogue.get(name) for name in sorted(plan.all | self._asked | set(here))]
        return [release for release in found if release is not None]

    async def check(self, loaded: LoadedReleases) -> None:
        """Unload unused releases, and send known images through all others."""
        await self._tidy_up(loaded)
        for name in sorted(self._plan.all | set(loaded.releases)):
            problem = await self._check(name)
            if name in self._plan.proving:
                await self._judge(self._plan.proving[name], name, problem)
            else:
                self._note(name, problem)
        await self._engines.look_for_foreign(
            triton_names(self._settings, {*self._catalogue, *self._loaded})
        )

    async def _check(self, name: str) -> str | None:
        if name not in self._loaded:
            return f"{name} has no manifest in {self._settings.manifests_dir}"
        problem = await self._prover.check(self._loaded[name])
        edited = (
            None
            if problem is None
            else await asyncio.to_thread(self._catalogue.edited, self._loaded[name])
        )
        return "; ".join(filter(None, (problem, edited))) or None

    async def _judge(self, alias: str, name: str, problem: str | None) -> None:
        """Let a candidate in, or refuse it when its time is over.

        Traffic is unchanged until then.
        """
        try:
            if problem is None:
                done = await asyncio.to_thread(
                    self._rollouts.confirm, alias, name, self._who, self._loaded[name].digest
                )
                log.info(
                    "rollout_candidate_passed", alias=alias, release=name, state=done.state.value
                )
                self._note(name, None)
            elif self._is_hopeless(name):
                await asyncio.to_thread(self._rollouts.refuse, alias, name, problem, self._who)
                log.error("rollout_candidate_refused", alias=alias, release=name, problem=problem)
        except (CannotRollOut, *AWAY):
            # another analyser, or a person, was faster; or the ledger is away, and the next round
            # tries again
            return

    def _is_hopeless(self, name: str) -> bool:
        since = self._failing_since.setdefault(name, time.monotonic())
        if time.monotonic() - since < self._patience_seconds:
            return False
        del self._failing_since[name]
        return True

    async def _tidy_up(self, loaded: LoadedReleases) -> None:
        """Unload releases that neither settings nor rollouts want, once no image waits for them."""
        unwanted = sorted(set(loaded.releases) - self._plan.all)
        self._finishing = {name for name in unwanted if await self._is_waited_for(name)}
        for name in unwanted:
            if name not in self._finishing:
                await self._unload(loaded, name)

    async def _is_waited_for(self, name: str) -> bool:
        try:
            return await asyncio.to_thread(self._rollouts.has_open_readings, name)
        except AWAY:
            return True

    async def _unload(self, loaded: LoadedReleases, name: str) -> None:
        loaded.remove(name)  # first, so that a late image that comes now has it loaded again
        self._asked.discard(name)
        self._problems.pop(name, None)
        self._failing_since.pop(name, None)
        if problem := await self._prover.unload(self._loaded.pop(name)):
            log.warning("release_not_unloaded", release=name, problem=problem)
        # no image waits for it, so it must raise no alert
        telemetry.CANARY_READY.labels(name).set(1)
        log.info("release_unloaded", release=name)

    def _note(self, name: str, problem: str | None) -> None:
        # A shadow, or a release kept for rollback, must raise no alert.
        telemetry.CANARY_READY.labels(name).set(problem is None or not self._is_needed(name))
        if problem is None:
            self._failing_since.pop(name, None)
            if self._problems.pop(name, None) is not None:
                log.info("release_ready", release=name)
        elif self._problems.get(name) != problem:
            log.warning("release_not_ready", release=name, problem=problem)
            self._problems[name] = problem
