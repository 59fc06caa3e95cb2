"""Verification of a release by known images.

Its canary is checked repeatedly, its pixels and golden cases once after loading.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path
from typing import Protocol

from hilum.analyse.inference.answers import (
    Array,
    InferenceResult,
    KnownAnswer,
    WrongAnswer,
    canary_problem,
)
from hilum.domain import Release
from hilum.errors import ConfigurationError, Retry
from hilum.models.known_answers.canary import Canary, read_canary
from hilum.models.known_answers.golden import read_goldens


class Engines(Protocol):
    """The interface to the Tritons for the release loader.

    Each method raises Retry when it may work later.
    """

    async def infer(self, release: Release, batch: Array) -> InferenceResult:
        """Return logits for (B, C, H, W)."""

    async def is_loaded(self, release: Release) -> bool:
        """Return whether batches of the release may come."""

    async def load(self, release: Release) -> None:
        """Load the release beside the loaded ones."""

    async def unload(self, release: Release) -> None:
        """Unload the release."""

    async def check_canary(self, release: Release, canary: KnownAnswer) -> str | None:
        """Return the problem; None: it gives the known result."""

    async def look_for_foreign(self, ours: Collection[str]) -> None:
        """Note the loaded models that have none of these names."""


Pixels = Callable[[Release], Awaitable[str | None]]
"""Return the problem of the known pictures where tensors are prepared; None: they match."""


class ReleaseVerifier:
    """The verification of releases, which loads missing ones."""

    def __init__(self, engines: Engines, pixels: Pixels, built_dir: Path) -> None:
        self._engines = engines
        self._pixels = pixels
        self._built_dir = built_dir
        self._known: dict[str, tuple[Canary, tuple[Canary, ...]]] = {}
        self._proved: set[str] = set()

    async def check(self, release: Release) -> str | None:
        """Return the problem, for people; None: the release gives the known results."""
        try:
            canary, goldens = self._known_answers(release)
            if not await self._engines.is_loaded(release):
                await self._engines.load(release)
            return await self._engines.check_canary(release, canary) or await self._prove(
                release, goldens
            )
        except ConfigurationError as error:
            return "; ".join(error.problems)
        except Retry as error:
            return error.detail

    async def unload(self, release: Release) -> str | None:
        """Unload the release and forget its verification.

        Return the problem; None: it is unloaded.
        """
        self._proved.discard(release.id)
        self._known.pop(release.id, None)
        try:
            await self._engines.unload(release)
        except Retry as error:
            return error.detail
        return None

    def _known_answers(self, release: Release) -> tuple[Canary, tuple[Canary, ...]]:
        if release.id not in self._known:
            self._known[release.id] = (
                read_canary(release, self._built_dir),
                read_goldens(release, self._built_dir),
            )
        return self._known[release.id]

    async def _prove(self, release: Release, goldens: Iterable[Canary]) -> str | None:
        if release.id in self._proved:
            return None
        if problem := await self._pixels(release):
            return f"{release.id}: pixels are prepared wrongly here: {problem}"
        for case in goldens:
            try:
                inference = await self._engines.infer(release, case.image)
            except WrongAnswer as error:
                return str(error)
            if problem := canary_problem(release, inference, case):
                return f"{case.name}: {problem}"
        self._proved.add(release.id)
        return None
