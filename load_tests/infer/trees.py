"""What is served in `make bench-infer`.

Models that answer at once, one a wire type, and the bundled networks in each engine.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import openvino
from google.protobuf import text_format  # type: ignore[import-untyped]  # protobuf ships no types
from tritonclient.grpc import model_config_pb2

from hilum.domain import Release
from hilum.models.build import build
from hilum.models.formats import triton_model
from hilum.models.manifest import catalogue
from load_tests.infer import null_model
from testing.serving import BUILT_MODELS, REPOSITORY

Array = np.ndarray[Any, np.dtype[Any]]
MAX_BATCH: Final = 16
MANIFESTS: Final = REPOSITORY / "model_repository"
DENSENET = "densenet121_untrained@1"
VIT = "vit_b16_untrained@1"
_TYPES: Final = {"fp16": "TYPE_FP16", "uint8": "TYPE_UINT8", "fp32": "TYPE_FP32"}
_DTYPES: Final = {"TYPE_FP16": np.float16, "TYPE_UINT8": np.uint8, "TYPE_FP32": np.float32}


@dataclass(frozen=True, slots=True)
class Served:
    """A release in a tree of the bench.

    `engine` is what its own process would call, without any server.
    """

    name: str
    release: Release
    wire_type: str
    tree: Path

    def engine(self) -> triton_model.Engine:
        """The engine as Triton's stub opens it."""
        config = read_config(self.tree)
        pinned = {key: value.string_value for key, value in config.parameters.items()}
        artefact = self.tree / "1" / pinned["artefact"]
        return triton_model.open_engine(
            artefact, pinned["engine"], pinned["precision"], pinned["optimisation"]
        )

    def batch(self, size: int) -> Array:
        """(size, 1, 224, 224) in the wire type: the same every time, never constant."""
        image = read_config(self.tree).input[0]
        levels = np.random.default_rng(size).integers(0, 256, (size, *image.dims))
        return levels.astype(_DTYPES[model_config_pb2.DataType.Name(image.data_type)])


def make_nulls(folder: Path) -> dict[str, Served]:
    """A null model for each wire type, with the tensors of the bundled DenseNet-121 otherwise."""
    original = _built(DENSENET)
    return {wire_type: _null(original, folder, wire_type) for wire_type in _TYPES}


def make_variants(folder: Path, *, is_quick: bool = False) -> list[Served]:
    """The bundled networks in every engine that this CPU has, and every built release of int8 weights; quick: the first of all these."""
    if is_quick:
        return [_variant(_built(DENSENET), folder, "openvino", "f32")]
    releases = [_built(DENSENET), _built(VIT)]
    made = [
        _variant(release, folder, engine, precision)
        for release in releases
        for engine, precision in _engines()
    ]
    return [*made, *(_copy(release, folder, release.triton_name) for release in _built_int8())]


def read_config(tree: Path) -> model_config_pb2.ModelConfig:
    """A tree's config.pbtxt."""
    return text_format.Parse(
        (tree / "config.pbtxt").read_text(encoding="utf-8"), model_config_pb2.ModelConfig()
    )


def _engines() -> Iterator[tuple[str, str]]:
    yield "openvino", "f32"
    if "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        yield "openvino", "bf16"
    yield "onnxruntime", "f32"


def _built(release_id: str) -> Release:
    build.build([release_id], MANIFESTS, BUILT_MODELS)
    return catalogue.load_catalogue(MANIFESTS)[release_id]


def _built_int8() -> Iterator[Release]:
    for release in catalogue.load_catalogue(MANIFESTS).values():
        if release.precision == "int8" and build.is_built(release, BUILT_MODELS):
            yield release


def _copy(release: Release, folder: Path, triton_name: str) -> Served:
    """The built tree below another name; engine and weights stay."""
    tree = folder / "embedded" / triton_name
    shutil.copytree(build.tree_of(release, BUILT_MODELS), tree, dirs_exist_ok=True)
    served = dataclasses.replace(
        release, name=triton_name, triton_name=triton_name, max_batch=MAX_BATCH
    )
    wire_type = next(word for word, kind in _TYPES.items() if _kind(tree) == kind)
    _write(tree, read_config(tree), triton_name)
    return Served(
        f"{release.name.removesuffix('_untrained')}, {release.engine} {release.precision}",
        served,
        wire_type,
        tree,
    )


def _variant(release: Release, folder: Path, engine: str, precision: str) -> Served:
    made = _copy(
        dataclasses.replace(release, engine=engine, precision=precision),
        folder,
        f"{release.name}_{engine}_{precision}",
    )
    config = read_config(made.tree)
    config.parameters["engine"].string_value = engine
    config.parameters["precision"].string_value = precision
    _write(made.tree, config, made.release.triton_name)
    return made


def _null(release: Release, folder: Path, wire_type: str) -> Served:
    made = _copy(release, folder, f"null_{wire_type}")
    replace_model(made.tree, Path(null_model.__file__))
    config = read_config(made.tree)
    config.input[0].data_type = model_config_pb2.DataType.Value(_TYPES[wire_type])
    _write(made.tree, config, made.release.triton_name)
    return dataclasses.replace(made, name=f"null, {wire_type}", wire_type=wire_type)


def replace_model(tree: Path, source: Path) -> None:
    """Have a built tree run this model, which imports the embedded one.

    The stub's own Python has no Hilum: the module that it imports is laid beside the model.
    """
    shutil.copyfile(source, tree / "1/model.py")
    beside = tree / "1" / Path(*triton_model.__name__.split(".")).with_suffix(".py")
    beside.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(triton_model.__file__, beside)


def _kind(tree: Path) -> str:
    return str(model_config_pb2.DataType.Name(read_config(tree).input[0].data_type))


def _write(tree: Path, config: model_config_pb2.ModelConfig, triton_name: str) -> None:
    config.name = triton_name
    config.max_batch_size = MAX_BATCH
    del config.dynamic_batching.preferred_batch_size[:]
    config.dynamic_batching.preferred_batch_size.extend([MAX_BATCH // 2, MAX_BATCH])
    (tree / "config.pbtxt").write_text(text_format.MessageToString(config), encoding="utf-8")
