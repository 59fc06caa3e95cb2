"""The analyser's process: decode processes, batches, and the watch over the models."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping

from hilum import telemetry
from hilum.analyse.analyser import Analyser
from hilum.analyse.decode_pool import DecodePool
from hilum.analyse.gateway import TritonGateway
from hilum.domain import Release
from hilum.errors import Retry
from hilum.models.canary import Canary, read_canary
from hilum.pipeline import STAGES, StageLoop
from hilum.settings import Settings
from hilum.store.archive import Archive
from hilum.store.ledger import Ledger
from hilum.wiring.charge import Charge, process_name
from hilum.wiring.heartbeat import Heartbeat
from hilum.wiring.releases import active_releases
from hilum.wiring.serving import run_async, serve

_NICE = 5  # ingest must win on a small machine: inference gives way to the listener
log = telemetry.logger("wiring")


def run(charge: Charge, settings: Settings, ledger: Ledger, stop: threading.Event) -> None:
    """Decode, prepare and infer."""
    os.nice(_NICE)
    run_async(stop, lambda stopping: _analyse(charge, settings, ledger, stopping))


async def _analyse(charge: Charge, settings: Settings, ledger: Ledger, stopping: asyncio.Event) -> None:
    releases = active_releases(settings)
    archive = Archive(settings.archive_dir)
    gateway = TritonGateway(charge.triton_url, settings.analyse.deadline_seconds)
    pool = DecodePool(settings.analyse.decode_processes, settings.analyse.decode_seconds)
    canaries = CanaryWatch(gateway, releases, settings)
    analyser = Analyser(settings.analyse, releases, gateway, pool, lambda instance: archive.locate(instance.path))
    loop = StageLoop(STAGES["analyse"], ledger, settings.pipeline, process_name("analyser", os.getpid()), analyser.handle)
    with Heartbeat(ledger, "analyser", canaries.readiness):
        await pool.start()
        await serve([loop], stopping, [analyser.serve_batches(), canaries.run()])
        await pool.stop()
        await gateway.close()


class CanaryWatch:
    """A known image through each release, again and again: Triton calls a model READY whose process is dead."""

    def __init__(self, gateway: TritonGateway, releases: Mapping[str, Release], settings: Settings) -> None:
        self._gateway, self._releases, self._settings = gateway, releases, settings
        self._problems: dict[str, str] = dict.fromkeys(releases, "the first canary inference has not finished")

    def readiness(self) -> tuple[bool, str]:
        """Whether every release gave its known answer, and what is wrong where not."""
        return not self._problems, "; ".join(self._problems.values())[:500]

    async def run(self) -> None:
        """Check for ever; a release that Triton has not loaded is loaded."""
        canaries = {name: read_canary(release, self._settings.built_dir) for name, release in self._releases.items()}
        while True:
            for name, release in self._releases.items():
                self._note(name, await self._check(release, canaries[name]))
            await asyncio.sleep(1.0 if self._problems else self._settings.analyse.canary_seconds)

    async def _check(self, release: Release, canary: Canary) -> str | None:
        try:
            if not await self._gateway.is_loaded(release):
                await self._gateway.load(release)
        except Retry as error:
            return error.detail
        return await self._gateway.check_canary(release, canary)

    def _note(self, name: str, problem: str | None) -> None:
        telemetry.CANARY_READY.labels(name).set(problem is None)
        if problem is None:
            if self._problems.pop(name, None) is not None:
                log.info("release_ready", release=name)
        elif self._problems.get(name) != problem:
            log.warning("release_not_ready", release=name, problem=problem)
            self._problems[name] = problem
