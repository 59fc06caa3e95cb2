"""A real TensorRT builder without a GPU.

TensorRT for RTX parses the files of the tensorrt profile and builds engines for named GPUs. Triton
does not load those engines. They prove that the ONNX files parse, keep their tensors and fit the
optimization profile.

NVIDIA's library is proprietary and optional: docs/models/profiles.md.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from hilum.errors import ConfigurationError
from hilum.models.build import build
from hilum.models.build.tensorrt import REQUEST
from hilum.models.facts import Fact, FactVerdict, Places
from hilum.models.manifest.manifest import Manifest

GPUS: Final = ("SM89", "SM120")
"""Ada and Blackwell. TensorRT for RTX builds for no Hopper."""
_MODULES: Final = ("tensorrt_rtx", "tensorrt_rtx_bindings")
_LOCK: Final = "deploy/lock/tensorrt-rtx.txt"


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine built from an ONNX file.

    It has a size, a build time, and the tensors that the parser saw.
    """

    precision: str
    layers: int
    tensors: tuple[str, ...]
    size_bytes: int
    seconds: float
    version: str


def facts(manifest: Manifest, places: Places) -> Iterator[Fact]:
    """Yield the facts of `hilum models check --tensorrt-rtx`."""
    if not build.is_built(manifest.release, places.built_dir, "tensorrt"):
        raise ConfigurationError(
            [
                (
                    f"tensorrt-rtx: not laid ready: `hilum models build {manifest.release.id}"
                    " --profile tensorrt`"
                )
            ]
        )
    for engine in build_engines(build.tree_of(manifest.release, places.built_dir, "tensorrt")):
        size = f"{engine.size_bytes / 1e6:.1f} MB in {engine.seconds:.1f} s"
        gpus = ", ".join(GPUS)
        yield (
            FactVerdict.OK,
            (
                f"tensorrt-rtx {engine.version}: {engine.precision} engine for {gpus}:"
                f" {engine.layers} layers, {size}"
            ),
        )


def build_engines(tree: Path) -> Iterator[Engine]:
    """Yield one engine for each precision of a tree of the tensorrt profile.

    Raises ConfigurationError: not installed, not parsed, not built.
    """
    trt = _library()
    request = json.loads((tree / REQUEST).read_text(encoding="utf-8"))
    for precision, entry in request["onnx"].items():
        yield _build(trt, tree / entry["file"], precision, request["optimization_profile"])


def _library() -> ModuleType:
    for name in _MODULES:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise ConfigurationError(
        [f"TensorRT for RTX is not installed: pip install --no-deps -r {_LOCK}"]
    )


def _build(trt: Any, file: Path, precision: str, shapes: Mapping[str, Sequence[int]]) -> Engine:  # noqa: ANN401 - the library has no types
    messages: list[str] = []
    builder = trt.Builder(_logger(trt, messages))
    network = _parsed(trt, builder, file, messages)
    started = time.perf_counter()
    engine = builder.build_serialized_network(network, _config(trt, builder, shapes))
    if engine is None:
        raise ConfigurationError([f"{file}: no engine: {'; '.join(messages[-3:])}"])
    return Engine(
        precision,
        network.num_layers,
        tuple(_tensors(network)),
        engine.nbytes,
        time.perf_counter() - started,
        trt.__version__,
    )


def _parsed(trt: Any, builder: Any, file: Path, messages: list[str]) -> Any:  # noqa: ANN401 - as above
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, _logger(trt, messages))
    if not parser.parse(file.read_bytes()):
        raise ConfigurationError(
            [f"{file}: {parser.get_error(number).desc()}" for number in range(parser.num_errors)]
        )
    return network


def _config(trt: Any, builder: Any, shapes: Mapping[str, Sequence[int]]) -> Any:  # noqa: ANN401 - as above
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    profile.set_shape("image", *(tuple(shapes[name]) for name in ("min", "opt", "max")))
    config.add_optimization_profile(profile)
    config.num_compute_capabilities = len(GPUS)
    for number, name in enumerate(GPUS):
        config.set_compute_capability(getattr(trt.ComputeCapability, name), number)
    return config


def _tensors(network: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    inputs = [network.get_input(number) for number in range(network.num_inputs)]
    for tensor in (*inputs, *(network.get_output(number) for number in range(network.num_outputs))):
        yield f"{tensor.name} {tensor.dtype.name} {tuple(tensor.shape)}"


def _logger(trt: Any, said: list[str]) -> Any:  # noqa: ANN401 - as above
    """Return a logger that collects warnings and errors; the library's own would print them."""

    class Collecting(trt.ILogger):  # type: ignore[misc]  # its base class exists only where the library does
        def __init__(self) -> None:
            super().__init__()

        def log(self, severity: Any, message: str) -> None:  # noqa: ANN401 - as above
            if severity <= trt.ILogger.WARNING:
                said.append(message)

    return Collecting()
