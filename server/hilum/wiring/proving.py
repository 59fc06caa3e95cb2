"""A release is proved by known images: its canary again and again, its pixels and its golden cases once after it was loaded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path
from typing import Protocol

from hilum.analyse.answers import Array, Inference, KnownAnswer, WrongAnswer, canary_problem
from hilum.domain import Release
from hilum.errors import ConfigurationError, Retry
from hilum.models.canary import Canary, read_canary
from hilum.models.golden import read_goldens


class Engines(Protocol):
    """The ways to Triton, as the fleet needs them. Each raises Retry when it may work later."""

    async def infer(self, release: Release, batch: Array) -> Inference:
        """(B, C, H, W) → logits."""

    async def is_loaded(self, release: Release) -> bool:
        """Whether batches of it may come."""

    async def load(self, release: Release) -> None:
        """Beside what is loaded."""

    async def unload(self, release: Release) -> None:
        """Take it out."""

    async def check_canary(self, release: Release, canary: KnownAnswer) -> str | None:
        """None: it gives the known answer. Else what is wrong."""

    async def look_for_foreign(self, ours: Collection[str]) -> None:
        """Note the models that are loaded and have none of these names."""


Pixels = Callable[[Release], Awaitable[str | None]]
"""Whether known pictures give the tensors that they should, where tensors are prepared; else what is wrong."""


class Prover:
    """Loads releases where they are not loaded, and asks what is known."""

    def __init__(self, engines: Engines, pixels: Pixels, built_dir: Path) -> None:
        self._engines, self._pixels, self._built_dir = engines, pixels, built_dir
        self._known: dict[str, tuple[Canary, tuple[Canary, ...]]] = {}
        self._proved: set[str] = set()

    async def check(self, release: Release) -> str | None:
        """None: it gives the known answers. Else what is wrong, for people."""
        try:
            canary, goldens = self._known_answers(release)
            if not await self._engines.is_loaded(release):
                await self._engines.load(release)
            return await self._engines.check_canary(release, canary) or await self._prove(release, goldens)
        except ConfigurationError as error:
            return "; ".join(error.problems)
        except Retry as error:
            return error.detail

    async def unload(self, release: Release) -> str | None:
        """Take it out, and forget what was proved. None: it is out. Else why not."""
        self._proved.discard(release.id)
        self._known.pop(release.id, None)
        try:
            await self._engines.unload(release)
        except Retry as error:
            return error.detail
        return None

    def _known_answers(self, release: Release) -> tuple[Canary, tuple[Canary, ...]]:
        if release.id not in self._known:
            self._known[release.id] = read_canary(release, self._built_dir), read_goldens(release, self._built_dir)
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
