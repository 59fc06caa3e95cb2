"""Which studies are traced, under which ids, and what a span says of how work ended."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilum.analyse.inference.batcher import Batcher
from hilum.domain import Advance, ImageReason, Job, Priority, ReadingState
from hilum.errors import NotAnalysed, Retry
from hilum.observability import telemetry, tracing
from hilum.observability.otlp import SpanWriter
from hilum.settings import Pipeline
from hilum.store.ledger import Ledger
from hilum.store.migrations.migrate import migrate
from tests.support.ledger.stage_loop import fill, run_until, states
from tests.support.models.engine import RELEASE, Engine, image
from tests.support.peers.collector import Collector

NAMESPACE = uuid.UUID(int=7)


class Kept:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.spans: list[tracing.FinishedSpan] = []

    def write(self, span: tracing.FinishedSpan) -> None:
        self.spans.append(span)

    def close(self) -> None:
        """Nothing to send."""


@pytest.fixture
def kept() -> Iterator[Kept]:
    writer = Kept()
    tracing.begin(writer, 1.0, NAMESPACE)
    yield writer
    tracing.close()


def test_nothing_is_traced_by_default() -> None:
    assert not tracing.is_on()
    assert tracing.of_study("1.2.3") is None
    with tracing.work("analyse", "1.2.3", {}) as work:
        work.ends("analysed")
        assert tracing.request_headers() is None


def test_every_process_finds_the_same_ids_and_another_installation_others() -> None:
    found = []
    for namespace in (NAMESPACE, NAMESPACE, uuid.UUID(int=8)):
        tracing.begin(Kept(), 1.0, namespace)
        found.append(tracing.of_study("1.2.3"))
    tracing.close()
    assert found[0] == found[1] != found[2]
    assert found[0] is not None
    assert 0 < found[0].id < 2**128
    assert 0 < found[0].root < 2**64


def test_a_share_of_studies_is_traced_and_all_agree_which() -> None:
    def chosen(share: float) -> set[int]:
        tracing.begin(Kept(), share, NAMESPACE)
        return {number for number in range(2000) if tracing.of_study(f"1.2.{number}") is not None}

    quarter, half = chosen(0.25), chosen(0.5)
    assert chosen(0.25) == quarter < half
    tracing.close()
    assert 400 < len(quarter) < 600
    assert 900 < len(half) < 1100


def test_an_association_is_shown_in_each_of_its_studies(kept: Kept) -> None:
    association = tracing.AssociationSpan("association")
    places = [
        association.place_in(trace)
        for uid in ("1.2.3", "1.2.4", "1.2.3")
        if (trace := tracing.of_study(uid)) is not None
    ]
    association.end({"stored": 3})
    assert len({place.trace.id for place in places if place is not None}) == 2
    assert [(span.name, span.parent == span.place.trace.root) for span in kept.spans] == [
        ("association", True)
    ] * 2
    assert {span.place for span in kept.spans} == set(places)


def test_an_association_of_very_many_studies_is_shown_in_some(kept: Kept) -> None:
    association = tracing.AssociationSpan("association")
    places = [
        association.place_in(trace)
        for number in range(300)
        if (trace := tracing.of_study(f"1.2.{number}")) is not None
    ]
    assert [place is not None for place in places] == [True] * 256 + [False] * 44
    association.end({})
    assert len(kept.spans) == 256


def test_a_late_image_hangs_below_the_first_decision(kept: Kept) -> None:
    tracing.study("1.2.3", 1.0, 2.0, {}, is_first=True)
    tracing.study("1.2.3", 1.0, 9.0, {}, is_first=False)
    first, second = kept.spans
    assert (first.parent, first.place.span) == (None, first.place.trace.root)
    assert second.parent == first.place.span != second.place.span


def test_how_a_stage_ended_is_said(kept: Kept, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'l.sqlite'}"
    migrate(url)
    ledger = Ledger(url)
    fill(ledger, 3)
    tried: list[str] = []

    async def handle(job: Job) -> Advance:
        place = tracing.here()
        assert place is not None
        assert place.traceparent == f"00-{place.trace.id:032x}-{place.span:016x}-01"
        tried.append(job.instance.sop_instance_uid)  # type: ignore[union-attr] # all are readings
        if tried[-1] == "1.2.0" and tried.count("1.2.0") == 1:
            raise Retry("Triton is loading", after_seconds=0.0, is_outage=True)
        if tried[-1] == "1.2.1":
            raise NotAnalysed(ImageReason.CHILD, "too young")
        if tried[-1] == "1.2.2":
            raise ValueError("a bug")
        return Advance(ReadingState.ANALYSED)

    once = Pipeline(
        backoff_seconds=0.01, maximum_backoff_seconds=0.02, maximum_attempts=1, poll_seconds=0.2
    )
    run_until(
        ledger,
        handle,
        lambda: all(state not in ("due", "leased") for state, _ in states(ledger)),
        once,
    )
    ledger.close()
    said = sorted(
        (span.attributes["outcome"], span.attributes["reason"] or "", span.error or "")
        for span in kept.spans
    )
    assert said == [
        ("analysed", "", ""),
        ("not_analysed", "child", ""),
        ("retry", "Triton is loading", ""),
        ("retry", "ValueError", "ValueError"),
    ]
    assert {(span.name, span.place.trace.study_instance_uid) for span in kept.spans} == {
        ("analyse", "1.2.3")
    }


def test_a_batch_is_in_the_trace_of_each_image_and_one_of_them_is_the_requests(kept: Kept) -> None:
    asked: list[dict[str, str] | None] = []

    class Asked(Engine):
        async def infer(self, release: Any, batch: Sequence[np.ndarray[Any, Any]]) -> Any:
            asked.append(tracing.request_headers())
            return await super().infer(release, batch)

    async def read(batcher: Batcher, number: int) -> tracing.SpanParent:
        with tracing.work("analyse", f"1.2.{number}", {}):
            place = tracing.here()
            await batcher.infer(image(number), Priority.LIVE)
            assert place is not None
            return place

    async def run() -> list[tracing.SpanParent]:
        engine = Asked()
        engine.open.set()
        batcher = Batcher(RELEASE, engine, 1)
        reading = [asyncio.create_task(read(batcher, number)) for number in range(3)]
        await asyncio.sleep(0)
        pump = asyncio.create_task(batcher.run())
        places = await asyncio.gather(*reading)
        pump.cancel()
        return places

    above = asyncio.run(run())
    batch = [span for span in kept.spans if span.name == "infer"]
    assert [(span.place.trace, span.parent) for span in batch] == [
        (place.trace, place.span) for place in above
    ]
    assert asked == [{"traceparent": batch[0].place.traceparent}]
    assert [tuple(span.links) for span in batch] == [(), (batch[0].place,), (batch[0].place,)]


def test_a_collector_that_hangs_holds_no_process_up() -> None:
    """Ours says nothing at all, and the process that ends gives it two seconds."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        writer = SpanWriter(f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces", "test-0")
        tracing.begin(writer, 1.0, NAMESPACE)
        tracing.study("1.2.3", 1.0, 2.0, {}, is_first=True)
        tracing.close()
        assert not tracing.is_on()
        silent.settimeout(5)
        silent.accept()[0].close()  # it had been asked


def test_what_a_full_queue_drops_is_counted_as_lost() -> None:
    import socket

    def lost() -> float:
        return float(telemetry.TRACE_SPANS.labels("lost")._value.get())

    with socket.create_server(("127.0.0.1", 0)) as silent:
        before = lost()
        tracing.begin(
            SpanWriter(f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces", "test-0"),
            1.0,
            NAMESPACE,
        )
        for _ in range(12_000):
            tracing.study("1.2.3", 1.0, 2.0, {}, is_first=True)
        dropped = lost() - before
        tracing.close()
    assert 12_000 - 8_192 - 2 * 512 <= dropped <= 12_000 - 8_192, (
        "the queue, and what the exporter has in its hands"
    )


def test_what_is_left_is_sent_at_the_end() -> None:
    with Collector() as collector:
        tracing.begin(SpanWriter(collector.endpoint, "test-0"), 1.0, NAMESPACE)
        now = time.time()
        tracing.study("1.2.3", now - 1, now, {"images": 2, "reason": None}, is_first=True)
        tracing.close()
    (span,) = collector.spans
    assert (span.service, span.process, span.name, span.parent) == ("hilum", "test-0", "study", "")
    assert span.attributes == {"hilum.study_instance_uid": "1.2.3", "hilum.images": 2}
    assert span.ended - span.began == pytest.approx(1.0)
