"""The releases that one analyser reads with: as the settings and the rollouts want them, each watched by known images."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

from hilum import telemetry
from hilum.domain import ReadingJob, Reason, Release
from hilum.errors import NotAnalysed, Retry
from hilum.one_thread import OneThread
from hilum.settings import Settings
from hilum.store.database import AWAY
from hilum.store.rollouts import CannotRollOut, Rollouts
from hilum.wiring.fleet_plan import Plan, plan_of
from hilum.wiring.proving import Engines, Pixels, Prover
from hilum.wiring.releases import Catalogue, triton_names

_FOLLOW_SECONDS: Final = 1.0
_LOADING_SECONDS: Final = 1.0  # until a reading whose release is being loaded is tried again
_BEHIND_SECONDS: Final = 15.0  # the same, of one that another host's settings name
_NEVER_CHECKED: Final = "the first canary inference has not finished"
log = telemetry.logger("wiring")


class Readers(Protocol):
    """The analyser: what reads with releases that come and go."""

    @property
    def releases(self) -> Collection[str]:
        """Those that are there."""

    def add(self, release: Release) -> None:
        """One more."""

    def remove(self, name: str) -> None:
        """One fewer."""


class Fleet:
    """Follows the rollouts, loads what they want beside the rest, proves it, and unloads what nobody waits for any more."""

    def __init__(
        self,
        settings: Settings,
        catalogue: Catalogue,
        rollouts: Rollouts,
        engines: Engines,
        pixels: Pixels,
        who: str,
        patience_seconds: float = 30.0,
    ) -> None:
        self._settings, self._catalogue, self._rollouts, self._who = settings, catalogue, rollouts, who
        self._engines = engines
        self._prover, self._patience_seconds = Prover(engines, pixels, settings.built_dir), patience_seconds
        self._plan = plan_of(settings.active_releases, ())
        self._asked: set[str] = set()
        self._missed: set[str] = set()
        self._problems: dict[str, str] = dict.fromkeys(self._plan.all, _NEVER_CHECKED)
        self._finishing: set[str] = set()
        self._loaded: dict[str, Release] = {}
        self._failing_since: dict[str, float] = {}
        self._watching, self._over = OneThread("rollouts"), threading.Event()

    def readiness(self) -> tuple[bool, str]:
        """Whether every release that somebody waits for gave its known answer, and what is wrong where not."""
        problems = [problem for name, problem in dict(self._problems).items() if self._is_needed(name)]
        return not problems, "; ".join(dict.fromkeys(problems))[:500]

    async def explain(self, job: ReadingJob) -> NotAnalysed | Retry:
        """What becomes of a reading by a release that is not here: it is loaded if it was chosen for the study."""
        name = job.release
        if not await self._is_chosen(job):
            return await self._not_chosen(name)
        if not await asyncio.to_thread(self._catalogue.__contains__, name):
            return NotAnalysed(Reason.RELEASE_NOT_AVAILABLE, f"{name} has no manifest any more; put it back and requeue")
        self._asked.add(name)
        return Retry(f"{name} is being loaded", after_seconds=_LOADING_SECONDS, is_outage=True)

    async def _not_chosen(self, name: str) -> NotAnalysed | Retry:
        """Over for good, unless a host whose settings name it has recorded the image: while settings are rolled, some hosts are behind."""
        if not await self._ask(self._rollouts.is_named, name):
            return NotAnalysed(Reason.RELEASE_NOT_AVAILABLE, f"{name} is not among models.releases")
        if name not in self._missed:
            self._missed.add(name)
            advice = "its readings wait: give this host the same settings and restart it"
            log.warning("settings_differ", release=name, problem="another server's settings name it, and this one's do not", advice=advice)
        return Retry(f"{name} is in the settings of another host only", after_seconds=_BEHIND_SECONDS, is_outage=True)

    async def begin(self, readers: Readers) -> None:
        """Read the rollouts, so that the first readings find their releases; close those that the settings have overtaken."""
        for item in await asyncio.to_thread(self._rollouts.close_stale, self._settings.active_releases):
            log.warning("rollout_closed", alias=item.alias, reason=item.problem)
        await self.follow(readers)

    async def run(self, readers: Readers) -> None:
        """Follow and check, for ever."""
        check_at = float("-inf")
        try:
            while True:
                has_changed = await self.follow(readers)
                if has_changed or self._is_troubled() or time.monotonic() >= check_at:
                    await self.check(readers)
                    check_at = time.monotonic() + self._settings.analyse.canary_seconds
                if self._is_troubled():
                    await asyncio.sleep(_FOLLOW_SECONDS)
                else:
                    await self._watching.call(functools.partial(self._await_change, readers, check_at))
        finally:
            self._over.set()

    def _await_change(self, readers: Readers, until: float) -> None:
        """Return when something else is wanted than what is there. In a thread: an event loop would be woken twice for each look."""
        while (seconds := until - time.monotonic()) > 0 and not self._over.wait(min(seconds, _FOLLOW_SECONDS)):
            with contextlib.suppress(Retry, *AWAY):
                plan, wanted = self._found(list(readers.releases))
                if plan != self._plan or not self._are_here(plan, wanted, readers):
                    return

    def _are_here(self, plan: Plan, wanted: Iterable[Release], readers: Readers) -> bool:
        """Whether all that is wanted is loaded, and as it is by now."""
        here = set(readers.releases)
        return (plan.all | self._asked) <= here and all(self._loaded.get(release.id) == release for release in wanted)

    def _is_troubled(self) -> bool:
        return bool(self._problems or self._plan.proving)

    def _is_needed(self, name: str) -> bool:
        """Whether images that shall be reported wait for it."""
        return name in self._plan.required or name in self._finishing

    async def _is_chosen(self, job: ReadingJob) -> bool:
        # Of the settings also what two rollouts have replaced: a study from before them was assigned to nobody.
        if job.release in {*self._plan.all, *self._asked, *self._settings.active_releases}:
            return True
        return await self._ask(self._rollouts.is_assigned, job.instance.study_instance_uid, job.release)

    async def _ask(self, question: Callable[..., bool], *about: str) -> bool:
        try:
            return await asyncio.to_thread(question, *about)
        except AWAY as error:
            raise Retry("the ledger does not answer", is_outage=True) from error

    async def follow(self, readers: Readers) -> bool:
        """Read with what settings and rollouts want by now; whether that has changed. While the ledger is away, it has not."""
        try:
            found, wanted = await asyncio.to_thread(self._found, list(readers.releases))
        except (Retry, *AWAY):
            return False
        has_changed, self._plan = found != self._plan, found
        for release in wanted:
            if release.id in readers.releases and self._loaded.get(release.id, release) != release:
                await self._unload(readers, release.id)  # it was started again with another manifest
            self._loaded[release.id] = release
            if release.id not in readers.releases:
                self._problems[release.id] = _NEVER_CHECKED
                readers.add(release)
                has_changed = True
        return has_changed or not (found.all | self._asked) <= set(readers.releases)

    def _found(self, here: Collection[str]) -> tuple[Plan, list[Release]]:
        """What the ledger says by now, and the releases that this takes: one thread to be woken each second, and not two."""
        plan = plan_of(self._settings.active_releases, self._rollouts.all())
        return plan, self._wanted(plan, here)

    def _wanted(self, plan: Plan, here: Collection[str]) -> list[Release]:
        """What is new to this analyser, and what is here: a candidate may be something else than it was, and proved elsewhere as that."""
        found = [self._catalogue.get(name) for name in sorted(plan.all | self._asked | set(here))]
        return [release for release in found if release is not None]

    async def check(self, readers: Readers) -> None:
        """Unload what nobody waits for any more, and send known images through everything else."""
        await self._tidy_up(readers)
        for name in sorted(self._plan.all | set(readers.releases)):
            problem = await self._check(name)
            if name in self._plan.proving:
                await self._judge(self._plan.proving[name], name, problem)
            else:
                self._note(name, problem)
        await self._engines.look_for_foreign(triton_names(self._settings, {*self._catalogue, *self._loaded}))

    async def _check(self, name: str) -> str | None:
        if name not in self._loaded:
            return f"{name} has no manifest in {self._settings.manifests_dir}"
        problem = await self._prover.check(self._loaded[name])
        edited = None if problem is None else await asyncio.to_thread(self._catalogue.edited, self._loaded[name])
        return "; ".join(filter(None, (problem, edited))) or None

    async def _judge(self, alias: str, name: str, problem: str | None) -> None:
        """Let a candidate in, or refuse it when its time is over; traffic is untouched until then."""
        try:
            if problem is None:
                done = await asyncio.to_thread(self._rollouts.confirm, alias, name, self._who, self._loaded[name].digest)
                log.info("rollout_candidate_passed", alias=alias, release=name, state=done.state.value)
                self._note(name, None)
            elif self._is_hopeless(name):
                await asyncio.to_thread(self._rollouts.refuse, alias, name, problem, self._who)
                log.error("rollout_candidate_refused", alias=alias, release=name, problem=problem)
        except (CannotRollOut, *AWAY):
            return  # another analyser, or a person, was faster; or the ledger is away, and the next round tries again

    def _is_hopeless(self, name: str) -> bool:
        since = self._failing_since.setdefault(name, time.monotonic())
        if time.monotonic() - since < self._patience_seconds:
            return False
        del self._failing_since[name]
        return True

    async def _tidy_up(self, readers: Readers) -> None:
        """Unload what neither settings nor rollouts want, once no image waits for it."""
        unwanted = sorted(set(readers.releases) - self._plan.all)
        self._finishing = {name for name in unwanted if await self._is_waited_for(name)}
        for name in unwanted:
            if name not in self._finishing:
                await self._unload(readers, name)

    async def _is_waited_for(self, name: str) -> bool:
        try:
            return await asyncio.to_thread(self._rollouts.has_open_readings, name)
        except AWAY:
            return True

    async def _unload(self, readers: Readers, name: str) -> None:
        readers.remove(name)  # first: a late image that comes now has it loaded again
        self._asked.discard(name)
        self._problems.pop(name, None)
        self._failing_since.pop(name, None)
        if problem := await self._prover.unload(self._loaded.pop(name)):
            log.warning("release_not_unloaded", release=name, problem=problem)
        telemetry.CANARY_READY.labels(name).set(1)  # nobody waits for it, so nobody shall be called for it
        log.info("release_unloaded", release=name)

    def _note(self, name: str, problem: str | None) -> None:
        # For a shadow, or a release that is kept for the way back, nobody shall be called.
        telemetry.CANARY_READY.labels(name).set(problem is None or not self._is_needed(name))
        if problem is None:
            self._failing_since.pop(name, None)
            if self._problems.pop(name, None) is not None:
                log.info("release_ready", release=name)
        elif self._problems.get(name) != problem:
            log.warning("release_not_ready", release=name, problem=problem)
            self._problems[name] = problem
