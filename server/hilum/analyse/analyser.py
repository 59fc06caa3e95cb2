"""The analyse stage: a stored image becomes a reading, or ends with a reason.

decode → modality LUT → VOI → polarity → geometry → wire tensor, in a decode process; then a batch
through Triton. An image is decoded once for all releases that are due.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from hilum.analyse.decode.pool import DecodePool
from hilum.analyse.decode.read_error import not_read
from hilum.analyse.decode.worker import Answer, DecodeRequest, NotReady, Ready
from hilum.analyse.inference.batcher import Batcher, Gateway, Inferred
from hilum.domain import (
    REASONS,
    Advance,
    Instance,
    Job,
    Priority,
    ReadingJob,
    ReadingState,
    Release,
    ServerReason,
)
from hilum.errors import NotAnalysed, Retry
from hilum.observability import telemetry, tracing
from hilum.one_thread import settle
from hilum.settings import Analyse, Guard
from hilum.store.archive.store_errors import StoreAway
from hilum.timestamps import iso

Explain = Callable[[ReadingJob], Awaitable[NotAnalysed | Retry]]


class FetchedFile(Protocol):
    """An object in memory, which decode processes read at `path` until it is closed."""

    path: Path

    def close(self) -> None:
        """Give the memory back."""


Fetch = Callable[[Instance], Awaitable[FetchedFile]]
Specs = dict[str, Mapping[str, object]]
"""The mapping of each release's InputSpec."""
Begin = Callable[[DecodeRequest, asyncio.Future[Answer]], None]


async def _not_configured(job: ReadingJob) -> NotAnalysed:
    return NotAnalysed(
        ServerReason.RELEASE_NOT_AVAILABLE, f"{job.release} is not among models.releases"
    )


class Analyser:
    """The handler of claimed readings. `find` gives the file of an instance, or raises OSError.

    `fetch` does so where the archive is an object store: it gives the whole object, in memory.
    `explain` returns the end of a reading by a release that is not loaded here. Releases are added
    and removed while it serves.
    """

    def __init__(
        self,
        settings: Analyse,
        releases: Mapping[str, Release],
        gateway: Gateway,
        pool: DecodePool,
        find: Callable[[Instance], Path],
        guard: Guard | None = None,
        explain: Explain = _not_configured,
        fetch: Fetch | None = None,
    ) -> None:
        self._explain = explain
        self._fetch = fetch
        self._fetches: set[asyncio.Task[None]] = set()
        self._guard = guard or Guard()
        self._settings = settings
        self._gateway = gateway
        self._pool = pool
        self._find = find
        self._releases: dict[str, Release] = {}
        self._batchers: dict[str, Batcher] = {}
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        for release in releases.values():
            self.add(release)
        self._due: dict[int, tuple[Specs, asyncio.Future[Answer]]] = {}
        self._priorities: dict[int, Priority] = {}  # of these
        self._suspects: set[int] = set()  # images of these that have broken a decode process before

    @property
    def releases(self) -> frozenset[str]:
        """The releases that are loaded now."""
        return frozenset(self._releases)

    def add(self, release: Release) -> None:
        """Read with this release from now on."""
        self._releases[release.id] = release
        self._batchers[release.id] = Batcher(
            release, self._gateway, self._settings.batches_in_flight
        )
        self._pump(release.id)

    def remove(self, name: str) -> None:
        """Stop reading with this release. Waiting images are given back."""
        del self._releases[name]
        self._batchers.pop(name).close()
        if pump := self._pumps.pop(name, None):
            pump.cancel()

    async def serve_batches(self) -> None:
        """Run all batchers, forever."""
        async with asyncio.TaskGroup() as self._group:
            for name in self._batchers:
                self._pump(name)
            await asyncio.Event().wait()

    def _pump(self, name: str) -> None:
        """Start the batcher's task if the group exists; `serve_batches` starts the others."""
        if self._group is not None:
            self._pumps[name] = self._group.create_task(self._batchers[name].run())

    async def handle(self, job: Job) -> Advance:
        """Return the outcome of one reading. Raises NotAnalysed, Retry or WorkerDied."""
        assert isinstance(job, ReadingJob)
        release = self._releases.get(job.release)
        if release is None:
            raise await self._explain(job)
        started = time.time()
        ready = await self._prepare(job, release)
        if (place := tracing.here()) is not None:
            _write_spans(place, ready, time.time())
        if release.id not in self._batchers:  # it was removed meanwhile
            raise await self._explain(job)
        inferred = await self._batchers[release.id].infer(ready.tensor, job.priority)
        return Advance(ReadingState.ANALYSED, _values(release, ready, inferred, started))

    async def _prepare(self, job: ReadingJob, release: Release) -> Ready:
        """Return this release's tensor.

        Jobs of one image that start in the same turn of the loop share one decoding, which starts
        in the next, with the highest of their priorities.
        """
        instance = job.instance
        if job.lease.lapses > 0:
            self._suspects.add(instance.id)
        known = self._priorities.get(instance.id, job.priority)
        self._priorities[instance.id] = min(known, job.priority)
        if instance.id not in self._due:
            loop = asyncio.get_running_loop()
            self._due[instance.id] = {}, loop.create_future()
            loop.call_soon(self._ask, instance)
        specs, asking = self._due[instance.id]
        is_first = not specs
        specs[release.id] = release.input_spec
        answers = await asking
        if is_first:
            _observe_decoding(answers)
        answer = answers[release.id]
        if isinstance(answer, NotReady):
            raise NotAnalysed(REASONS[answer.reason], answer.detail)
        telemetry.PREPARE_SECONDS.labels(release.id).observe(answer.prepare_seconds)
        return answer

    def _ask(self, instance: Instance) -> None:
        specs, asking = self._due.pop(instance.id)
        priority = self._priorities.pop(instance.id)
        is_suspect = instance.id in self._suspects
        self._suspects.discard(instance.id)
        begin = partial(self._pool.begin, is_suspect=is_suspect, priority=priority)
        if self._fetch is None:
            try:
                request = self._request(self._find(instance), specs)
            except Exception as error:  # noqa: BLE001 - nothing awaits a callback
                _end(asking, error, instance, specs)
            else:
                begin(request, asking)
            return
        task = asyncio.create_task(
            self._fetch_and_begin(self._fetch, instance, specs, asking, begin)
        )
        self._fetches.add(task)
        task.add_done_callback(self._fetches.discard)

    async def _fetch_and_begin(
        self,
        fetch: Fetch,
        instance: Instance,
        specs: Specs,
        asking: asyncio.Future[Answer],
        begin: Begin,
    ) -> None:
        """Fetch the object before its decode process has it: that has its own limit of seconds."""
        try:
            file = await fetch(instance)
        except Exception as error:  # noqa: BLE001 - it belongs to the readings of this image
            _end(asking, error, instance, specs)
            return
        asking.add_done_callback(lambda _: file.close())
        begin(self._request(file.path, specs), asking)

    def _request(self, path: Path, specs: Specs) -> DecodeRequest:
        return DecodeRequest(
            path=path,
            input_specs=specs,
            maximum_pixels=self._settings.maximum_pixels,
            device=self._settings.device,
            pixel_limits=self._guard.limits,
            refused_flags=self._guard.refuses,
            refused_together=self._guard.refuses_together,
            site_words=self._guard.site_words,
            is_decoded_only=self._settings.placement == "device",
            drops_page_cache=self._settings.drop_page_cache and self._fetch is None,
        )


def _end(
    asking: asyncio.Future[Answer], error: Exception, instance: Instance, specs: Specs
) -> None:
    """End the readings of an image whose object was not found, or not read."""
    if isinstance(error, FileNotFoundError):
        missing = NotReady(ServerReason.INSTANCE_MISSING, _why_missing(instance))
        settle(asking, Answer(dict.fromkeys(specs, missing)))
    elif isinstance(error, StoreAway):
        settle(asking, Retry(f"{error.said}; see `hilum check`", is_outage=True))
    elif isinstance(error, OSError):
        settle(asking, not_read(error.errno or 0))
    else:
        settle(asking, error)


def _observe_decoding(answer: Answer) -> None:
    """Record the decoding time once for all releases of an image."""
    first = next((item for item in answer.values() if isinstance(item, Ready)), None)
    if first is not None:
        telemetry.DECODE_SECONDS.observe(first.decode_seconds)


def _write_spans(above: tracing.SpanParent, ready: Ready, ended: float) -> None:
    """Write the spans of decoding and preparing, which follow each other in a decode process.

    Several releases share one decoding.
    """
    prepared = ended - ready.prepare_seconds
    decoded = ended - ready.prepare_seconds - ready.decode_seconds
    for name, began, end in (("decode", decoded, prepared), ("prepare", prepared, ended)):
        tracing.write(
            tracing.FinishedSpan(tracing.new_place(above.trace), above.span, name, began, end)
        )


def _why_missing(instance: Instance) -> str:
    if instance.pixels_removed_at is None:
        return "the file is not in the archive"
    removed = iso(instance.pixels_removed_at, "seconds")
    return (
        f"its pixels left the archive at {removed} (retention); send the image again to have it"
        " read"
    )


def _values(
    release: Release, ready: Ready, inferred: Inferred, started: float
) -> dict[str, object]:
    """Return the columns of an analysed reading. Times in seconds."""
    return {
        "logits": inferred.logits.tolist(),
        **(
            {}
            if inferred.member_logits is None
            else {"member_logits": inferred.member_logits.tolist()}
        ),
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
