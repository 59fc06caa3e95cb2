"""An OpenTelemetry collector's receiver (OTLP 1.x over HTTP) that keeps what it is sent.

It parses by OpenTelemetry's own schema, and takes protobuf, as our processes post it, and JSON, as
tritonserver does.
"""

from __future__ import annotations

import base64
import gzip
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class SeenSpan:
    """One span as it came."""

    service: str
    process: str
    trace: str
    id: str
    parent: str
    name: str
    began: float
    ended: float
    is_error: bool
    attributes: dict[str, Any]
    links: tuple[str, ...]


@dataclass
class Collector:
    """A context manager; `spans` is what came so far. `status`: what it answers."""

    status: int = 200
    spans: list[SeenSpan] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1/traces"

    def __enter__(self) -> Collector:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if collector.status == 200:
                    collector.spans += _seen(body, is_json="json" in self.headers["Content-Type"])
                self.send_response(collector.status)
                self.send_header("Content-Type", "application/x-protobuf")
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Not on standard error."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _seen(body: bytes, *, is_json: bool) -> list[SeenSpan]:
    request = ExportTraceServiceRequest()
    if is_json:
        json_format.ParseDict(_with_base64(json.loads(body)), request)
    else:
        request.ParseFromString(body)
    return [
        _span(item, resource.resource)
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for item in scope.spans
    ]


def _with_base64(value: Any) -> Any:
    """OTLP's JSON writes ids in hexadecimal digits, where protobuf's own JSON has base64 (OTLP specification, JSON Protobuf Encoding)."""
    if isinstance(value, list):
        return [_with_base64(item) for item in value]
    if not isinstance(value, dict):
        return value
    ids = {"traceId", "spanId", "parentSpanId"}
    return {
        name: base64.b64encode(bytes.fromhex(item)).decode() if name in ids else _with_base64(item)
        for name, item in value.items()
    }


def _span(item: Any, resource: Any) -> SeenSpan:
    said = _attributes(resource.attributes)
    return SeenSpan(
        service=said.get("service.name", ""),
        process=said.get("hilum.process", ""),
        trace=item.trace_id.hex(),
        id=item.span_id.hex(),
        parent=item.parent_span_id.hex(),
        name=item.name,
        began=item.start_time_unix_nano / 1e9,
        ended=item.end_time_unix_nano / 1e9,
        is_error=item.status.code == 2,
        attributes=_attributes(item.attributes),
        links=tuple(link.span_id.hex() for link in item.links),
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
