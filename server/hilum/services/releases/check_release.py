"""`hilum models check --run` where a Triton is configured.

Known images go through every endpoint, as the analyser sends them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from hilum.analyse import credentials
from hilum.analyse.inference.gateway import TritonGateway
from hilum.domain import Release
from hilum.errors import ConfigurationError
from hilum.models.facts import FactLine, FactVerdict, refused
from hilum.models.known_answers.canary import Canary, read_canary
from hilum.models.known_answers.golden import read_goldens
from hilum.models.manifest import manifest
from hilum.settings import Settings


def ask(settings: Settings, release_id: str) -> Iterator[FactLine]:
    """Return each endpoint's results for the canary and the golden cases.

    No model is loaded: a model that is absent there is a problem.
    """
    try:
        release = manifest.read(settings.manifests_dir / release_id / manifest.FILE_NAME).release
        known = [
            read_canary(release, settings.built_dir),
            *read_goldens(release, settings.built_dir),
        ]
    except ConfigurationError as error:
        yield from (refused(release_id, problem) for problem in error.problems)
        return
    for url in settings.triton.addresses:
        problems = asyncio.run(_ask(settings, url, release, known))
        yield from (
            _line(f"Triton at {url}: {case.name}", release, problem)
            for case, problem in zip(known, problems, strict=True)
        )


def served(settings: Settings, urls: Sequence[str]) -> dict[str, list[str] | None]:
    """Return the models loaded at each address; None: it does not respond.

    Raises ConfigurationError.
    """
    return {url: asyncio.run(_served(settings, url)) for url in urls}


async def _served(settings: Settings, url: str) -> list[str] | None:
    gateway = TritonGateway(
        url, settings.analyse.deadline_seconds, credentials=credentials.read(settings.triton)
    )
    try:
        return await gateway.served()
    finally:
        await gateway.close()


async def _ask(
    settings: Settings, url: str, release: Release, known: Sequence[Canary]
) -> list[str | None]:
    gateway = TritonGateway(
        url, settings.analyse.deadline_seconds, credentials=credentials.read(settings.triton)
    )
    try:
        return [await gateway.check_canary(release, case) for case in known]
    finally:
        await gateway.close()


def _line(asked: str, release: Release, problem: str | None) -> FactLine:
    if problem is None:
        return FactLine(release.id, FactVerdict.OK, f"{asked} is answered as known")
    return FactLine(
        release.id, FactVerdict.PROBLEM, f"{asked}: {problem.removeprefix(f'{release.id}: ')}"
    )
