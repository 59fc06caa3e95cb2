"""An analyser's fleet over a real ledger and real built releases, with a hand-written fake of Triton."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hilum.analyse.inference.answers import InferenceResult, KnownAnswer, canary_problem
from hilum.domain import Instance, Lease, Priority, ReadingJob, Release, Rollout
from hilum.errors import Retry
from hilum.models.manifest import manifest
from hilum.services.releases.release_loader import ReleaseLoader
from hilum.store.rollouts.manifests import KeptManifest
from hilum.store.rollouts.rollouts import RolloutRequest
from tests.support.ledger.rolling import Rolling
from tests.support.models.releases import tiny_logits


@dataclass
class Engines:
    """Answers as the tiny network does, unless a release is `wrong`; `away`: nobody answers."""

    loaded: set[str] = field(default_factory=set)
    wrong: set[str] = field(default_factory=set)
    blurred: set[str] = field(default_factory=set)
    away: bool = False
    ours: set[str] = field(default_factory=set)

    async def infer(self, release: Release, batch: np.ndarray[Any, Any]) -> InferenceResult:
        return InferenceResult(tiny_logits(batch) + (release.id in self.wrong), None)

    async def is_loaded(self, release: Release) -> bool:
        return release.id in self.loaded

    async def load(self, release: Release) -> None:
        if self.away:
            raise Retry("Triton does not answer", is_outage=True)
        self.loaded.add(release.id)

    async def unload(self, release: Release) -> None:
        self.loaded.discard(release.id)

    async def check_canary(self, release: Release, canary: KnownAnswer) -> str | None:
        return canary_problem(release, await self.infer(release, canary.image), canary)

    async def look_for_foreign(self, ours: Collection[str]) -> None:
        self.ours = set(ours)

    async def pixels(self, release: Release) -> str | None:
        return "another precision" if release.id in self.blurred else None


@dataclass
class Readers:
    """An analyser that only remembers."""

    releases: set[str] = field(default_factory=set)

    def add(self, release: Release) -> None:
        self.releases.add(release.id)

    def remove(self, name: str) -> None:
        self.releases.remove(name)


@dataclass
class Rig:
    """An analyser's fleet over a ledger of its own."""

    rolling: Rolling
    fleet: ReleaseLoader
    engines: Engines
    readers: Readers = field(default_factory=Readers)

    def kept(self, release: str) -> KeptManifest:
        """What its manifest says."""
        read = manifest.read(self.fleet._settings.manifests_dir / release / manifest.FILE_NAME)
        return KeptManifest(release, read.release.digest, read.text)

    def start(self, candidate: str, order: RolloutRequest) -> None:
        """A person begins a rollout, whatever is built."""
        self.rolling.rollouts.start("chest@1", self.kept(candidate), order, "a person")

    def go(self, rounds: int = 1) -> None:
        """So many rounds of following and checking."""

        async def run() -> None:
            for _ in range(rounds):
                await self.fleet.follow(self.readers)
                await self.fleet.check(self.readers)

        asyncio.run(run())

    def explain(self, study: str, release: str) -> Exception:
        """What becomes of a reading whose release is not here."""
        instance = Instance(
            f"{study}.1", "1.2", study, "1.2.4", "1", "x", 1, "d", "p", 0.0, "A", "B", id=1
        )
        try:
            return asyncio.run(
                self.fleet.explain(
                    ReadingJob(Lease(1, "t", 1, 0), release, Priority.LIVE, instance)
                )
            )
        except Retry as error:
            return error

    @property
    def rollout(self) -> Rollout:
        """How the alias stands."""
        found = self.rolling.rollouts.find("chest")
        assert found is not None
        return found
