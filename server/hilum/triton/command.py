"""tritonserver's command line, the ports that it listens on, and its own word that it is ready."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
# A batch of 16 images of 224 x 224 fp16 and its outputs fit without growing; Docker's default /dev/shm holds a dozen such models.
_REGION_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Ports:
    """Where one server listens, on loopback."""

    http: int
    grpc: int
    metrics: int


def free_ports() -> Ports:
    """Three ports of loopback that are free now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
        for each in sockets:
            each.bind((HOST, 0))
        return Ports(*(each.getsockname()[1] for each in sockets))


def is_ready(http_port: int) -> bool:
    """Triton's own word that every model is loaded. A dead stub does not change it: readiness to work rests on the canary."""
    connection = http.client.HTTPConnection(HOST, http_port, timeout=2)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def arguments(
    repository: Path,
    triton_names: Sequence[str],
    backends: Path,
    caches: Path,
    ports: Ports,
    region_prefix: str,
    exit_timeout_seconds: float,
    traces_to: str = "",
) -> Iterator[str]:
    """Everything after the program's name. No model but the named ones is loaded. `traces_to`: where spans are posted (OTLP over HTTP)."""
    yield from ("--model-repository", str(repository), "--model-control-mode", "explicit", "--disable-auto-complete-config")
    for name in triton_names:
        yield from ("--load-model", name)
    yield from ("--backend-directory", str(backends), "--cache-directory", str(caches), "--log-format", "ISO8601")
    # Without the three addresses it listens on every interface.
    yield from ("--http-address", HOST, "--http-port", str(ports.http), "--grpc-address", HOST, "--grpc-port", str(ports.grpc))
    yield from ("--metrics-address", HOST, "--metrics-port", str(ports.metrics), "--metrics-config", "summary_latencies=true")
    # Those of the machine are read each second, for nobody.
    yield from ("--allow-cpu-metrics", "false")
    # Without a GPU these two only print errors.
    yield from ("--allow-gpu-metrics", "false", "--pinned-memory-pool-byte-size", "0")
    yield from ("--exit-timeout-secs", str(max(1, round(exit_timeout_seconds))))
    for setting in (f"region-prefix-name={region_prefix}", f"default-byte-size={_REGION_BYTES}", f"growth-byte-size={_REGION_BYTES}"):
        yield from ("--backend-config", f"python,shm-{setting}")
    if traces_to:
        # Rate 0: only requests that come with a `traceparent`, and of those every one.
        for setting in ("mode=opentelemetry", "level=TIMESTAMPS", "rate=0"):
            yield from ("--trace-config", setting)
        for setting in (f"url={traces_to}", "resource=service.name=hilum-triton"):
            yield from ("--trace-config", f"opentelemetry,{setting}")
