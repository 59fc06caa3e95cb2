"""One Triton: the releases that it has verified, its requests in flight, and its problems.

It is a circuit breaker in two steps. A release whose request met an outage is not served until its
canary passes again. An address that does not respond gets no request at all. So a Triton that hangs
costs the requests in flight one deadline, and no others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from hilum.analyse.credentials import Credentials
from hilum.analyse.inference.answers import (
    InferenceResult,
    KnownAnswer,
    NotLoaded,
    TritonUnavailable,
    WrongAnswer,
    canary_problem,
)
from hilum.analyse.inference.gateway import TritonGateway
from hilum.analyse.inference.shared_memory import Batch
from hilum.domain import Release
from hilum.errors import Retry
from hilum.observability import telemetry

_NOBODY: Final = ""  # the key of problems of the Triton itself, beside those of its releases
log = telemetry.logger("analyse")


class Endpoint:
    """An endpoint, fit for a release that has given its known result, while it responds."""

    def __init__(
        self,
        name: str,
        url: str,
        deadline_seconds: float,
        *,
        shares_memory: bool = False,
        credentials: Credentials | None = None,
    ) -> None:
        self.name = name
        self.gateway = TritonGateway(
            url, deadline_seconds, shares_memory=shares_memory, credentials=credentials
        )
        self.foreign: tuple[str, ...] = ()
        self.in_flight = 0
        self._url = url
        self._proved: set[str] = set()
        self._problems: dict[str, str] = {}
        self._checking = asyncio.Lock()
        telemetry.TRITON_HEALTHY.labels(name).set(0)

    @property
    def is_open(self) -> bool:
        """Whether the breaker is open: the last probe got no response, so nothing is sent."""
        return _NOBODY in self._problems

    @property
    def is_fit(self) -> bool:
        """Whether it serves any release now."""
        return not self.is_open and bool(self._proved)

    @property
    def problem(self) -> str:
        """The problem of the endpoint or of its releases, for people; empty: no known problem.

        Any thread may read it.
        """
        problems = dict(self._problems)
        return problems.get(_NOBODY) or "; ".join(problems.values())

    def serves(self, release: Release) -> bool:
        """Return whether batches of this release may go there."""
        return not self.is_open and release.id in self._proved

    async def infer(self, release: Release, batch: Batch) -> InferenceResult:
        """Run the gateway's `infer` and count it.

        After an outage the release has to be verified again.
        """
        self._under_way(1)
        try:
            inference = await self.gateway.infer(release, batch)
        except (Retry, WrongAnswer) as error:
            telemetry.TRITON_REQUESTS.labels(self.name, _outcome(error)).inc()
            if isinstance(error, TritonUnavailable):
                self._settle(release, error.detail)
            raise
        finally:
            self._under_way(-1)
        telemetry.TRITON_REQUESTS.labels(self.name, "answered").inc()
        return inference

    async def probe(self) -> bool:
        """Return whether the Triton responds, and set the breaker accordingly."""
        is_live = await self.gateway.is_live()
        self._note(
            _NOBODY,
            None if is_live else f"Triton at {self._url} does not answer: is it running there?",
        )
        return is_live

    async def load(self, release: Release) -> None:
        """Load the release unless it is loaded. Raises Retry."""
        if not await self.probe():
            raise TritonUnavailable(self.problem)
        if not await self.gateway.is_loaded(release):
            await self.gateway.load(release)

    async def check(self, release: Release, canary: KnownAnswer) -> str | None:
        """Load the release where that is needed, and send its canary.

        None: the release is served from now on. Else the problem, for people.
        """
        async with self._checking:
            problem = await self._check(release, canary)
        self._settle(release, problem)
        return problem

    async def look_for_foreign(self, ours: Collection[str]) -> None:
        """Note models that are loaded and are not in `ours`. Loading a model there runs code."""
        served = None if self.is_open else await self.gateway.served()
        if served is None:
            return
        foreign = tuple(name for name in served if name not in ours)
        if foreign != self.foreign:
            log.warning(
                "foreign_models" if foreign else "foreign_models_gone",
                endpoint=self.name,
                models=list(foreign or self.foreign),
            )
        self.foreign = foreign
        telemetry.TRITON_FOREIGN_MODELS.labels(self.name).set(len(foreign))

    def forget(self, release: Release) -> None:
        """Stop serving the release."""
        self._proved.discard(release.id)
        self._note(release.id, None)

    async def _check(self, release: Release, canary: KnownAnswer) -> str | None:
        try:
            await self.load(release)
            inference = await self.infer(release, canary.image)
        except (Retry, WrongAnswer) as error:
            return str(error)
        return canary_problem(release, inference, canary)

    def _settle(self, release: Release, problem: str | None) -> None:
        if problem is None:
            self._proved.add(release.id)
        else:
            self._proved.discard(release.id)
        self._note(release.id, problem)

    def _note(self, key: str, problem: str | None) -> None:
        had_problems = bool(self._problems)
        if problem is None:
            self._problems.pop(key, None)
        else:
            self._problems[key] = problem
        telemetry.TRITON_HEALTHY.labels(self.name).set(self.is_fit and not self._problems)
        if had_problems != bool(self._problems):
            log.warning(
                "triton_unavailable" if self._problems else "triton_available",
                endpoint=self.name,
                problem=problem,
            )

    def _under_way(self, change: int) -> None:
        self.in_flight += change
        telemetry.TRITON_IN_FLIGHT.labels(self.name).set(self.in_flight)


def _outcome(error: Exception) -> str:
    """Return the metric's word for an outcome other than `answered`."""
    if isinstance(error, NotLoaded):
        return "not_loaded"
    if isinstance(error, TritonUnavailable):
        return "outage"
    return "wrong_answer" if isinstance(error, WrongAnswer) else "reloaded"
