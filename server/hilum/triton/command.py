"""tritonserver's command line, the socket on which it listens, and whether it does."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

# A batch of 16 images of 224 x 224 fp16 and its outputs fit without growing; Docker's default
# /dev/shm holds a dozen such models.
_REGION_BYTES: Final = 4 << 20
# Triton joins address and port by a colon, and gRPC takes `unix:<path>`: the file is `grpc:1`.
ADDRESS: Final = "unix:grpc"
PORT: Final = 1
_FILE: Final = f"{ADDRESS.partition(':')[2]}:{PORT}"
_PATH_BYTES: Final = 107  # unix(7): sun_path, without the NUL at its end


def url(folder: Path) -> str:
    """The address, for gRPC clients, of a server that was started in this folder."""
    return f"unix:{quote(str(folder / _FILE), safe='/:')}"  # gRPC reads it as a URI


def fits(folder: Path) -> bool:
    """Whether the kernel takes the name of a socket there."""
    return len(bytes(folder / _FILE)) <= _PATH_BYTES


def is_ready(folder: Path) -> bool:
    """Whether it listens. Triton opens its socket once every model is loaded.

    A dead stub does not change it: readiness to work rests on the canary.
    """
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(2)
        try:
            asking.connect(str(folder / _FILE))
        except OSError:
            return False
    return True


def arguments(
    repository: Path,
    triton_names: Sequence[str],
    backends: Path,
    caches: Path,
    region_prefix: str,
    exit_timeout_seconds: float,
    traces_to: str = "",
    address: str = ADDRESS,
    port: int = PORT,
) -> Iterator[str]:
    """Everything after the program's name. No model but the named ones is loaded.

    `traces_to`: where spans are posted (OTLP over HTTP). `address`: by default a Unix socket in the
    working folder.
    """
    yield from (
        "--model-repository",
        str(repository),
        "--model-control-mode",
        "explicit",
        "--disable-auto-complete-config",
    )
    for name in triton_names:
        yield from ("--load-model", name)
    yield from (
        "--backend-directory",
        str(backends),
        "--cache-directory",
        str(caches),
        "--log-format",
        "ISO8601",
    )
    # HTTP and metrics would be TCP ports. Every local account and every web page reaches those.
    yield from (
        "--allow-http",
        "false",
        "--allow-metrics",
        "false",
        "--grpc-address",
        address,
        "--grpc-port",
        str(port),
    )
    # Without a GPU this only prints errors.
    yield from ("--pinned-memory-pool-byte-size", "0")
    yield from ("--exit-timeout-secs", str(max(1, round(exit_timeout_seconds))))
    for setting in (
        f"region-prefix-name={region_prefix}",
        f"default-byte-size={_REGION_BYTES}",
        f"growth-byte-size={_REGION_BYTES}",
    ):
        yield from ("--backend-config", f"python,shm-{setting}")
    if traces_to:
        # Rate 0: only requests that come with a `traceparent`, and of those every one.
        for setting in ("mode=opentelemetry", "level=TIMESTAMPS", "rate=0"):
            yield from ("--trace-config", setting)
        for setting in (f"url={traces_to}", "resource=service.name=hilum-triton"):
            yield from ("--trace-config", f"opentelemetry,{setting}")
