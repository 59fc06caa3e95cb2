"""Spans to an OpenTelemetry collector, by OTLP over HTTP: the one file that knows the SDK."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from hilum import __version__
from hilum.observability import telemetry
from hilum.observability.tracing import FinishedSpan, SpanParent

_QUEUE_SPANS: Final = 8_192
_BATCH_SPANS: Final = 512
_DELAY_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 2.0
_KINDS: Final = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
}
_log = telemetry.logger("tracing")


class SpanWriter:
    """Spans of this process.

    Spans that a collector does not take in time are dropped: reports come first.
    """

    def __init__(self, endpoint: str, process: str) -> None:
        """`endpoint`: where spans are posted, path included.

        The exporter's own variables (OTEL_EXPORTER_OTLP_HEADERS …) hold.
        """
        # Its own words name the collector's answer again and again; `_Watched` says it once.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        said = {
            "service.name": "hilum",
            "service.version": __version__,
            "service.instance.id": f"{socket.gethostname()}/{os.getpid()}",
        }
        self._resource = Resource({**said, "hilum.process": process})
        self._scope = InstrumentationScope("hilum", __version__)
        self._watched = _Watched(OTLPSpanExporter(endpoint=endpoint, timeout=_ANSWER_SECONDS))
        # of which the exporter has seen some
        self._lock = threading.Lock()
        self._queued = 0
        self._processor = BatchSpanProcessor(
            self._watched,
            max_queue_size=_QUEUE_SPANS,
            schedule_delay_millis=_DELAY_SECONDS * 1000,
            max_export_batch_size=_BATCH_SPANS,
        )

    def write(self, span: FinishedSpan) -> None:
        """In any thread; it does not wait."""
        self._count()
        trace = span.place.trace
        attributes = {
            f"hilum.{name}": value for name, value in span.attributes.items() if value is not None
        }
        self._processor.on_end(
            ReadableSpan(
                span.name,
                context=_context(span.place),
                parent=None if span.parent is None else _context(SpanParent(trace, span.parent)),
                resource=self._resource,
                attributes={"hilum.study_instance_uid": trace.study_instance_uid, **attributes},
                links=[Link(_context(place)) for place in span.links],
                kind=_KINDS[span.kind],
                status=(
                    Status(StatusCode.UNSET)
                    if span.error is None
                    else Status(StatusCode.ERROR, span.error)
                ),
                start_time=round(span.began * 1e9),
                end_time=round(max(span.began, span.ended) * 1e9),
                instrumentation_scope=self._scope,
            )
        )

    def _count(self) -> None:
        """Count dropped spans: the processor drops the oldest one without a report."""
        with self._lock:
            is_full = self._queued - self._watched.seen >= _QUEUE_SPANS
            self._queued += not is_full
        if is_full:
            telemetry.TRACE_SPANS.labels("lost").inc()

    def close(self) -> None:
        """Send the remaining spans, for two seconds at most."""
        closing = threading.Thread(target=self._processor.shutdown, name="spans-close", daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)


class _Watched(SpanExporter):
    """Counts, and says when the collector goes away and comes back."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._is_away = False
        self.seen = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """In the processor's thread."""
        self.seen += len(spans)
        result = self._exporter.export(spans)
        is_lost = result is not SpanExportResult.SUCCESS
        telemetry.TRACE_SPANS.labels("lost" if is_lost else "sent").inc(len(spans))
        if is_lost and not self._is_away:
            _log.warning(
                "span_export_failed",
                advice=(
                    "is the collector of tracing.endpoint there, and does it speak OTLP over HTTP?"
                ),
            )
        if self._is_away and not is_lost:
            _log.info("span_export_recovered")
        self._is_away = is_lost
        return result

    def shutdown(self) -> None:
        """As the exporter."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """As the exporter."""
        return self._exporter.force_flush(timeout_millis)


def _context(place: SpanParent) -> SpanContext:
    return SpanContext(
        place.trace.id, place.span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)
    )
