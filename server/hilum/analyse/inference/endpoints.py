"""One Triton or several, as one gateway.

A batch goes to the fit endpoint with the least in flight, and once to another when that one is
away. An endpoint that does not respond, or not as its release requires, gets no batches. It is
probed once a second until it gives the known results again. While no endpoint is fit, images wait
in the ledger.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from hilum.analyse.credentials import Credentials
from hilum.analyse.inference.answers import InferenceResult, KnownAnswer, TritonUnavailable
from hilum.analyse.inference.endpoint import Endpoint
from hilum.analyse.inference.shared_memory import Batch
from hilum.domain import Release
from hilum.errors import Retry
from hilum.settings import is_loopback

_PROBE_SECONDS: Final = 1.0
# until an image whose release is out is tried again, while others are served
_UNSERVED_SECONDS: Final = 5.0


class Endpoints:
    """The gateway of an analyser. Make it inside the event loop.

    `urls`: the name of each endpoint in metrics, and its gRPC address. `shares_memory`: batches go
    by shared memory to endpoints at a Unix socket or a loopback address.
    """

    def __init__(
        self,
        urls: Mapping[str, str],
        deadline_seconds: float,
        *,
        shares_memory: bool = True,
        credentials: Credentials | None = None,
    ) -> None:
        self._endpoints = [
            Endpoint(
                name,
                url,
                deadline_seconds,
                shares_memory=shares_memory and _is_here(url),
                credentials=credentials,
            )
            for name, url in urls.items()
        ]
        self._known: dict[str, tuple[Release, KnownAnswer]] = {}
        self._mending: dict[str, asyncio.Task[None]] = {}
        self._turns = itertools.count(1)
        self._last_turn = dict.fromkeys(urls, 0)

    def has_room(self) -> bool:
        """Return whether any endpoint serves any release.

        If none does, claimed work can only be given back.
        """
        return any(endpoint.is_fit for endpoint in self._endpoints)

    def require(self, release_id: str) -> None:
        """Raise Retry when no endpoint serves the release now; call it before work on an image.

        A release that was never checked passes.
        """
        release = self._known[release_id][0] if release_id in self._known else None
        if release is not None and not self._fit(release):
            raise TritonUnavailable(self._why_not(release), _UNSERVED_SECONDS)

    def problems(self) -> list[str]:
        """Return the problems of each endpoint, for people. Any thread may call it."""
        return [
            f"Triton {endpoint.name} is out: {endpoint.problem}"
            for endpoint in self._endpoints
            if endpoint.problem
        ]

    def warnings(self) -> list[str]:
        """Return conditions to look at although every release is served. Any thread may call it."""
        return [
            f"Triton {each.name} {foreign_in_words(each.foreign)}"
            for each in self._endpoints
            if each.foreign
        ]

    async def look_for_foreign(self, ours: Collection[str]) -> None:
        """Note models that are loaded and are not in `ours`, at every endpoint."""
        await asyncio.gather(*(endpoint.look_for_foreign(ours) for endpoint in self._endpoints))

    async def infer(self, release: Release, batch: Batch) -> InferenceResult:
        """Return (B, L) logits for (B, C, H, W), or (C, H, W) of each image, in the wire dtype.

        An inference may be repeated, so a lost batch is sent again, once.

        Raises Retry when it may work later, at once when no endpoint serves the release;
        WrongAnswer as the gateway.
        """
        chosen = self._fit(release)
        if not chosen:
            raise TritonUnavailable(self._why_not(release))
        try:
            return await self._ask(chosen[0], release, batch)
        except TritonUnavailable:
            others = [endpoint for endpoint in self._fit(release) if endpoint is not chosen[0]]
            if not others:
                raise
        return await self._ask(others[0], release, batch)

    async def is_loaded(self, release: Release) -> bool:
        """Return whether every responding endpoint has the release; False when none responds."""
        asked = self._answering()
        return bool(asked) and all(
            await asyncio.gather(*(endpoint.gateway.is_loaded(release) for endpoint in asked))
        )

    async def load(self, release: Release) -> None:
        """Load the release at every responding endpoint.

        Raises Retry when it worked at no endpoint.
        """
        await self._everywhere(lambda endpoint: endpoint.load(release))

    async def unload(self, release: Release) -> None:
        """Unload the release at every responding endpoint, and stop checking it.

        Raises Retry when it worked at no endpoint.
        """
        self._known.pop(release.id, None)
        for endpoint in self._endpoints:
            endpoint.forget(release)
        await self._everywhere(lambda endpoint: endpoint.gateway.unload(release))

    async def reload(self, release: Release) -> None:
        """Unload and load at every responding endpoint.

        Raises Retry when it worked at no endpoint.
        """
        await self._everywhere(lambda endpoint: endpoint.gateway.reload(release))

    async def check_canary(self, release: Release, canary: KnownAnswer) -> str | None:
        """Return the problem, for people; None: at least one endpoint gives the known result.

        That endpoint serves the release from now on. The release is loaded where it is missing. An
        endpoint that fails gets no batch of it until it passes.
        """
        self._known[release.id] = (release, canary)
        problems = await asyncio.gather(
            *(self._check(endpoint, release, canary) for endpoint in self._endpoints)
        )
        return None if None in problems else "; ".join(str(problem) for problem in problems)

    async def close(self) -> None:
        """Stop the probes, and close every channel."""
        mending = list(self._mending.values())
        for task in mending:
            task.cancel()
        await asyncio.gather(*mending, return_exceptions=True)
        await asyncio.gather(*(endpoint.gateway.close() for endpoint in self._endpoints))

    def _why_not(self, release: Release) -> str:
        return "; ".join(self.problems()) or f"no Triton has proved {release.id} yet"

    def _answering(self) -> list[Endpoint]:
        return [endpoint for endpoint in self._endpoints if not endpoint.is_open]

    def _fit(self, release: Release) -> list[Endpoint]:
        """Return the endpoints that serve the release, the best first.

        The best has the least in flight, then the longest time since its last turn.
        """
        fit = [endpoint for endpoint in self._endpoints if endpoint.serves(release)]
        return sorted(
            fit, key=lambda endpoint: (endpoint.in_flight, self._last_turn[endpoint.name])
        )

    async def _ask(self, endpoint: Endpoint, release: Release, batch: Batch) -> InferenceResult:
        self._last_turn[endpoint.name] = next(self._turns)
        try:
            return await endpoint.infer(release, batch)
        except TritonUnavailable:
            self._mend(endpoint)
            raise

    async def _check(self, endpoint: Endpoint, release: Release, canary: KnownAnswer) -> str | None:
        problem = endpoint.problem if endpoint.is_open else await endpoint.check(release, canary)
        if problem is not None:
            self._mend(endpoint)
        return problem

    async def _everywhere(self, verb: Callable[[Endpoint], Awaitable[None]]) -> None:
        asked = self._answering()
        failures = list[Retry]()
        for endpoint in asked:
            try:
                await verb(endpoint)
            except Retry as error:
                failures.append(error)
                self._mend(endpoint)
        if len(failures) == len(asked):
            raise failures[0] if failures else TritonUnavailable("; ".join(self.problems()))

    def _mend(self, endpoint: Endpoint) -> None:
        """Probe the endpoint until it gives every known result again; the first time at once."""
        if endpoint.name not in self._mending:
            self._mending[endpoint.name] = asyncio.create_task(self._probe(endpoint))

    async def _probe(self, endpoint: Endpoint) -> None:
        try:
            while True:
                if await self._gives_known_answers(endpoint):
                    return
                await asyncio.sleep(_PROBE_SECONDS)
        finally:
            # in the turn of the last result: a later problem starts a new task
            del self._mending[endpoint.name]

    async def _gives_known_answers(self, endpoint: Endpoint) -> bool:
        if not await endpoint.probe():
            return False
        problems = [
            await endpoint.check(release, canary) for release, canary in list(self._known.values())
        ]
        return not any(problems)


def foreign_in_words(models: Collection[str]) -> str:
    """Return the words after "Triton ... "."""
    return f"has loaded models that are not ours: {', '.join(models)}"


def _is_here(url: str) -> bool:
    return url.startswith("unix:") or is_loopback(url.rpartition(":")[0])
