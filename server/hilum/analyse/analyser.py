"""The analyse stage: a stored image becomes a reading, or an honest end without one.

decode → modality LUT → VOI → polarity → geometry → wire tensor, in a decode process; then a batch through Triton. An image is
decoded once for all releases that are due.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from hilum import telemetry
from hilum.analyse.batcher import Batcher, Gateway, Inferred
from hilum.analyse.decode_pool import DecodePool
from hilum.analyse.worker import Answer, NotReady, Ready, Request
from hilum.domain import Advance, Instance, Job, ReadingJob, ReadingState, Reason, Release
from hilum.errors import NotAnalysed
from hilum.settings import Analyse


class Analyser:
    """Handles claimed readings. `find` gives the file of an instance, or raises FileNotFoundError."""

    def __init__(
        self, settings: Analyse, releases: Mapping[str, Release], gateway: Gateway, pool: DecodePool, find: Callable[[Instance], Path]
    ) -> None:
        self._settings, self._releases, self._pool, self._find = settings, releases, pool, find
        self._batchers = {name: Batcher(release, gateway, settings.batches_in_flight) for name, release in releases.items()}
        self._due: dict[int, set[str]] = {}
        self._answers: dict[int, asyncio.Task[Answer]] = {}

    async def serve_batches(self) -> None:
        """Run all batchers; for ever."""
        async with asyncio.TaskGroup() as group:
            for batcher in self._batchers.values():
                group.create_task(batcher.run())

    async def handle(self, job: Job) -> Advance:
        """One reading. Raises NotAnalysed, Retry or WorkerDied."""
        assert isinstance(job, ReadingJob)
        release = self._releases.get(job.release)
        if release is None:
            raise NotAnalysed(Reason.RELEASE_NOT_AVAILABLE, f"{job.release} is not among models.releases")
        started = time.time()
        ready = await self._prepare(job)
        inferred = await self._batchers[release.id].infer(ready.tensor, job.lane)
        return Advance(ReadingState.ANALYSED, _values(release, ready, inferred, started))

    async def _prepare(self, job: ReadingJob) -> Ready:
        """This release's tensor. Jobs of one image that were claimed together share one decoding."""
        instance = job.instance
        self._due.setdefault(instance.id, set()).add(job.release)
        await asyncio.sleep(0)  # the siblings, started in the same turn of the loop, sign up now
        if instance.id in self._due:
            wanted = self._due.pop(instance.id)
            task = asyncio.create_task(self._ask(instance, wanted))
            self._answers[instance.id] = task
            task.add_done_callback(lambda done: self._forget(instance.id, done))
        answer = (await self._answers[instance.id])[job.release]
        if isinstance(answer, NotReady):
            raise NotAnalysed(Reason(answer.reason), answer.detail)
        telemetry.PREPARE_SECONDS.labels(job.release).observe(answer.prepare_seconds)
        return answer

    def _forget(self, instance_id: int, task: asyncio.Task[Answer]) -> None:
        if self._answers.get(instance_id) is task:
            del self._answers[instance_id]

    async def _ask(self, instance: Instance, wanted: set[str]) -> Answer:
        try:
            path = self._find(instance)
        except FileNotFoundError:
            return dict.fromkeys(wanted, NotReady(Reason.INSTANCE_MISSING, _why_missing(instance)))
        specs = {name: self._releases[name].input_spec for name in wanted}
        answer = await self._pool.ask(Request(path, specs, self._settings.maximum_pixels, self._settings.device))
        first = next((item for item in answer.values() if isinstance(item, Ready)), None)
        if first is not None:
            telemetry.DECODE_SECONDS.observe(first.decode_seconds)
        return answer


def _why_missing(instance: Instance) -> str:
    if instance.pixels_removed_at is None:
        return "the file is not in the archive"
    removed = datetime.fromtimestamp(instance.pixels_removed_at, UTC).isoformat(timespec="seconds")
    return f"its pixels left the archive at {removed} (retention); send the image again to have it read"


def _values(release: Release, ready: Ready, inferred: Inferred, started: float) -> dict[str, object]:
    """Columns of an analysed reading. Times in seconds."""
    return {
        "logits": [float(value) for value in inferred.logits],
        "cam": None if inferred.cam is None else np.ascontiguousarray(inferred.cam).tobytes(),
        "view": ready.view,
        "precision": release.precision,
        "preprocessing_version": ready.preprocessing_version,
        "detail": ", ".join(ready.flags) or None,
        "timings": {
            "started_at": started,
            "decode_seconds": ready.decode_seconds,
            "prepare_seconds": ready.prepare_seconds,
            "infer_seconds": inferred.seconds,
            "batch_size": inferred.batch_size,
            "finished_at": time.time(),
        },
    }
