"""Networks behind Triton: with CUDA in ONNX Runtime where a Triton has it, else the embedded one.

On a GPU the Triton is that of the machine (NGC's image). On `--device cpu` it is the embedded one,
with the engines of the CPU, so that the same code runs.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from hilum.analyse.inference.gateway import TritonGateway
from hilum.domain import Release
from hilum.errors import ConfigurationError
from hilum.models.build import build
from hilum.models.known_answers import canary
from hilum.models.manifest import catalogue
from hilum.triton import command, runtime
from hilum.triton.server import EmbeddedTriton
from hilum_preprocessing.spec.input_spec import InputSpec
from load_tests.gpu.outcome import GpuOutcome, GpuPlan
from load_tests.infer import loops
from load_tests.load.figures import Goal
from load_tests.load.machine import REPOSITORY

MANIFESTS: Final = REPOSITORY / "model_repository"
BUILT_ONCE: Final = REPOSITORY / "state/models"
RELEASES: Final = {"densenet121": "densenet121_untrained@1", "vit_b16": "vit_b16_untrained@1"}
_NGC: Final = Path("/opt/tritonserver/bin/tritonserver")
_BACKEND: Final = "onnxruntime"
_START_SECONDS: Final = 300.0
_DEADLINE_SECONDS: Final = 120.0
_IN_FLIGHT: Final = 2
# Hilum gives its own Triton none, because that has no GPU.
_PINNED: Final = "--pinned-memory-pool-byte-size"
_PINNED_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class ServedTrees:
    """What a Triton serves, and its address."""

    url: str
    releases: Mapping[str, Release]
    built_dir: Path


def measure(plan: GpuPlan) -> GpuOutcome:
    """Return the differences to the recorded logits, and images a second by batch."""
    on_gpu = plan.device.startswith("cuda")
    server = find_server() if on_gpu else None
    if reason := obstacle(server, on_gpu=on_gpu):
        return GpuOutcome(left_out=reason)
    with _cuda(server, plan) if server else _embedded(plan) as trees:
        rows = asyncio.run(_measured(trees, plan))
    figures = {"profile": "onnxruntime, cuda" if server else "embedded", "networks": rows}
    return GpuOutcome(figures, tuple(goals(rows)))


def find_server() -> Path | None:
    """Return a tritonserver of this machine that has the ONNX Runtime backend."""
    named = shutil.which("tritonserver")
    found = Path(named).resolve() if named else _NGC
    return found if _backends(found).joinpath(_BACKEND).is_dir() else None


def _backends(server: Path) -> Path:
    return server.parents[1] / "backends"


def obstacle(server: Path | None, *, on_gpu: bool) -> str:
    """Return why no Triton can serve here; empty: one can."""
    if on_gpu and server is None:
        return (
            f"no tritonserver with the backend {_BACKEND} in PATH or at {_NGC}; the one of"
            " nvidia-pytriton computes on the CPU"
        )
    return "" if on_gpu else "; ".join(runtime.preflight())


@contextmanager
def _embedded(plan: GpuPlan) -> Iterator[ServedTrees]:
    """The embedded Triton, over the models that this checkout has built."""
    releases = _built(plan, BUILT_ONCE, "embedded", "none")
    names = [release.triton_name for release in releases.values()]
    triton = EmbeddedTriton(BUILT_ONCE, plan.folder / "state", names)
    try:
        yield ServedTrees(triton.start(), releases, BUILT_ONCE)
    finally:
        triton.stop()


@contextmanager
def _cuda(server: Path, plan: GpuPlan) -> Iterator[ServedTrees]:
    """Triton of this machine, its ONNX Runtime on CUDA in full float32."""
    built = plan.folder / "models"
    releases = _built(plan, built, "onnxruntime", "cuda")
    names = [release.triton_name for release in releases.values()]
    with started(server, built / "onnxruntime", names, plan.folder / "tritonserver.log") as url:
        yield ServedTrees(url, releases, built)


@contextmanager
def started(server: Path, repository: Path, names: Sequence[str], log: Path) -> Iterator[str]:
    """Run this tritonserver with these models; its address. Raises ConfigurationError."""
    port = _free_port()
    words = list(
        command.arguments(
            repository,
            names,
            _backends(server),
            server.parents[1] / "caches",
            "hilum_gpu",
            exit_timeout_seconds=15.0,
            address="127.0.0.1",
            port=port,
        )
    )
    words[words.index(_PINNED) + 1] = str(_PINNED_BYTES)
    with log.open("wb") as output:
        process = subprocess.Popen([str(server), *words], stdout=output, stderr=output)
    try:
        _wait_until_ready(process, port, log)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def _built(plan: GpuPlan, folder: Path, profile: str, accelerator: str) -> dict[str, Release]:
    wanted = [RELEASES[name] for name in plan.networks]
    build.build(wanted, MANIFESTS, folder, profile, accelerator=accelerator)
    known = catalogue.load_catalogue(MANIFESTS)
    return {name: known[RELEASES[name]] for name in plan.networks}


def _free_port() -> int:
    with socket.socket() as asking:
        asking.bind(("127.0.0.1", 0))
        return int(asking.getsockname()[1])


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Triton opens its port once every model is loaded. Raises ConfigurationError."""
    ends = time.monotonic() + _START_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        with socket.socket() as asking:
            asking.settimeout(1)
            if asking.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    said = log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
    raise ConfigurationError(["tritonserver did not become ready:", *said])


async def _measured(trees: ServedTrees, plan: GpuPlan) -> list[dict[str, Any]]:
    gateway = TritonGateway(trees.url, _DEADLINE_SECONDS, shares_memory=True)
    try:
        return [
            await _network(gateway, name, release, trees.built_dir, plan)
            for name, release in trees.releases.items()
        ]
    finally:
        await gateway.close()


async def _network(
    gateway: TritonGateway, name: str, release: Release, built_dir: Path, plan: GpuPlan
) -> dict[str, Any]:
    known = canary.read_canary(release, built_dir)
    answer = await gateway.infer(release, known.image)
    spec = InputSpec.from_mapping(release.input_spec)
    sizes = [size for size in plan.batches if size <= release.max_batch]
    return {
        "network": name,
        "largest_logit_difference": float(np.abs(answer.logits - known.logits).max()),
        "tolerance": known.tolerance,
        "images_per_second": {
            str(size): await _rate(gateway, release, spec, size, plan.seconds) for size in sizes
        },
    }


async def _rate(
    gateway: TritonGateway, release: Release, spec: InputSpec, size: int, seconds: float
) -> float:
    """Images a second, two batches in flight, as the analyser sends them."""
    batch = np.concatenate([canary.known_image(spec, number) for number in range(size)])
    await gateway.infer(release, batch)

    async def ask(images: loops.Array) -> object:
        return await gateway.infer(release, images)

    window = await loops.closed(ask, batch, _IN_FLIGHT, seconds, at_least=1)
    return window.images_per_second


def goals(rows: Sequence[Mapping[str, Any]]) -> Iterator[Goal]:
    """Yield the tolerance of each release: Hilum sends no image to a Triton that misses it."""
    for row in rows:
        yield Goal(
            f"largest difference of a logit to the recorded one, Triton, {row['network']}",
            row["largest_logit_difference"],
            "",
            row["tolerance"],
        )
