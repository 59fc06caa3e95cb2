"""The analyser's process: decode processes, batches, and the watch over the models."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from hilum.analyse import credentials
from hilum.analyse.analyser import Analyser, Fetch, FetchedFile
from hilum.analyse.decode.pool import DecodePool
from hilum.analyse.decode.worker import Answer, Checked, DecodedImage, DecodeRequest, SpecCheck
from hilum.analyse.inference.endpoints import Endpoints
from hilum.domain import Advance, Instance, Job, ReadingJob, Release
from hilum.errors import WorkerDied
from hilum.observability import telemetry
from hilum.pipeline import STAGES, Handler, StageLoop
from hilum.processes.heartbeat import Heartbeat, begin_life
from hilum.processes.run_stages import run_async, serve
from hilum.services.launch_spec import LaunchSpec
from hilum.services.releases.release_loader import ReleaseLoader
from hilum.services.releases.releases import Catalogue
from hilum.services.releases.verify_release import Pixels
from hilum.settings import Analyse, Settings
from hilum.store.archive.archive import Archive
from hilum.store.archive.archives import open_archive
from hilum.store.campaigns.campaigns import Campaigns
from hilum.store.ledger import Ledger
from hilum.store.rollouts.rollouts import Rollouts
from hilum_preprocessing.resize.compiled import loaded

log = telemetry.logger("processes")

_NICE = 5  # reception has priority over inference on a small machine


def run(spec: LaunchSpec, settings: Settings, ledger: Ledger, stop: threading.Event) -> None:
    """Decode, prepare and infer."""
    os.nice(_NICE)
    run_async(stop, lambda stopping: _analyse(spec, settings, ledger, stopping))


async def _analyse(
    spec: LaunchSpec, settings: Settings, ledger: Ledger, stopping: asyncio.Event
) -> None:
    rollouts = Rollouts(settings.ledger_url)
    catalogue = Catalogue(settings, rollouts.manifest)
    archive = open_archive(settings)
    urls = _urls(spec, settings)
    memory = settings.triton.shared_memory
    secured = credentials.read(settings.triton)
    gateway = Endpoints(
        urls, settings.analyse.deadline_seconds, shares_memory=memory, credentials=secured
    )
    pool = _decode_pool(settings.analyse)
    owner = begin_life(ledger, "analyser")
    loader = ReleaseLoader(
        settings,
        catalogue,
        rollouts,
        gateway,
        _pixels(pool, settings.analyse),
        owner,
        campaigns=Campaigns(settings.ledger_url),
    )
    analyser = Analyser(
        _for_each_endpoint(settings.analyse, len(urls)),
        {name: catalogue[name] for name in settings.active_releases},
        gateway,
        pool,
        lambda instance: archive.locate(instance.path),
        settings.guard,
        loader.explain,
        _fetch(archive, settings.archive.transfers),
    )
    await loader.begin(analyser)
    loop = StageLoop(
        STAGES["analyse"],
        ledger,
        settings.pipeline,
        owner,
        _unless_away(gateway, analyser.handle),
        has_room=gateway.has_room,
    )
    with Heartbeat(ledger, "analyser", lambda: _readiness(loader, gateway, loop, archive.problem)):
        warn_of_slow_resizes()
        await pool.start()
        await serve([loop], stopping, [analyser.serve_batches(), loader.run(analyser)])
        await pool.stop()
        await gateway.close()


def _fetch(archive: Archive, transfers: int) -> Fetch | None:
    """Return a reader of whole objects, in threads, if the archive is an object store."""
    if not archive.is_remote:
        return None
    threads = ThreadPoolExecutor(transfers, thread_name_prefix="fetch")

    async def fetch(instance: Instance) -> FetchedFile:
        if instance.pixels_removed_at is not None:
            raise FileNotFoundError
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(threads, archive.fetch, instance.path)

    return fetch


def warn_of_slow_resizes() -> None:
    """Log a warning if the resize is not compiled: only its speed differs, not the tensors."""
    library, how = loaded()
    if library is None:
        log.warning(
            "resize_not_compiled",
            problem=how,
            advice="install a C compiler (deploy/debian-packages.sh), then Hilum again",
        )


def _unless_away(gateway: Endpoints, handle: Handler) -> Handler:
    """Return a handler that decodes no image for a release that no Triton serves now."""

    async def handle_served(job: Job) -> Advance:
        assert isinstance(job, ReadingJob)
        gateway.require(job.release)
        return await handle(job)

    return handle_served


def _readiness(
    loader: ReleaseLoader, gateway: Endpoints, loop: StageLoop, of_archive: str
) -> tuple[bool, str]:
    """Return whether every required release passed its canary at a responding Triton.

    The second value contains the problems. That of an object store is only said: it is over with
    the next object that is read.
    """
    if loop.problem:
        return False, loop.problem
    is_ready, problem = loader.readiness()
    problems = dict.fromkeys(
        item for item in (problem, of_archive, *gateway.problems(), *gateway.warnings()) if item
    )
    return is_ready and gateway.has_room(), "; ".join(problems)[:500]


def _urls(spec: LaunchSpec, settings: Settings) -> dict[str, str]:
    """Return the gRPC address of each endpoint by name; the embedded one has a short name."""
    return {url: url for url in settings.triton.addresses} or {"embedded": spec.triton_url}


def _for_each_endpoint(settings: Analyse, endpoints: int) -> Analyse:
    return settings.model_copy(update={"batches_in_flight": settings.batches_in_flight * endpoints})


def _decode_pool(settings: Analyse) -> DecodePool:
    # A CUDA driver reserves address space when it is first used, and that is after a process has
    # started.
    uses_driver = settings.placement == "worker" and settings.device != "cpu"
    pool = DecodePool(
        settings.decode_processes,
        settings.decode_seconds,
        slot_bytes=settings.slot_bytes,
        maximum_pixels=0 if uses_driver else settings.maximum_pixels,
        prepare=_device(settings),
    )
    if settings.placement == "device" and settings.device.startswith("cuda"):
        from hilum.analyse.decode.locked_pages import lock_pages  # noqa: PLC0415 - loads torch

        lock_pages(pool.slot_pages, settings.device)
    return pool


def _pixels(pool: DecodePool, settings: Analyse) -> Pixels:
    """Return the check of known pictures, run where a release's tensors are prepared."""
    on_device: Callable[[SpecCheck], Checked] | None = None
    if settings.placement == "device":
        from hilum.analyse.decode.prepare import check_spec as on_device  # noqa: PLC0415 - loads torch

    async def check(release: Release) -> str | None:
        try:
            return (
                await pool.check(SpecCheck(release.input_spec, settings.device), on_device)
            ).problem
        except WorkerDied as error:
            return f"the decode process {error}"

    return check


def _device(settings: Analyse) -> Callable[[DecodeRequest, DecodedImage], Answer] | None:
    """Return the function that prepares tensors in this process, for decoded-only placement."""
    if settings.placement == "worker":
        return None
    from hilum.analyse.decode.prepare import prepare_decoded  # noqa: PLC0415 - loads torch

    return prepare_decoded
