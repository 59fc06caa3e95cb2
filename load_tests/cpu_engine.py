"""The release of a measurement: the fastest that this CPU can run, in a tree whose engine counts its own CPU."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import openvino

from hilum.domain import Release
from hilum.models.build import build, tree_of
from hilum.models.catalogue import load_catalogue
from load_tests import counting_model
from load_tests.serving import REPOSITORY

# The logits of untrained weights are large: bf16 moves them by 0.5, twice what a release of trained ones may.
_BF16 = 'precision = "bf16"\ntolerance = 1.0'
_ORIGINAL = REPOSITORY / "model_repository/densenet121_untrained@1/manifest.toml"


@dataclass(frozen=True, slots=True)
class Built:
    """A release, the folder of its manifest and that of its trees."""

    release: Release
    manifests_dir: Path
    built_dir: Path


def build_fastest(folder: Path) -> Built:
    """The bundled DenseNet-121, at bf16 where this CPU has it: a copy of its manifest below `folder`, built once."""
    has_bf16 = "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    name = f"densenet121_{'bf16' if has_bf16 else 'f32'}"
    text = _ORIGINAL.read_text(encoding="utf-8").replace('name = "densenet121_untrained"', f'name = "{name}"')
    manifest = folder / "manifests" / f"{name}@1" / "manifest.toml"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(text.replace('precision = "f32"', _BF16) if has_bf16 else text, encoding="utf-8")
    build([f"{name}@1"], folder / "manifests", folder / "built", progress=print)
    return Built(load_catalogue(folder / "manifests")[f"{name}@1"], folder / "manifests", folder / "built")


def count_engine(built: Built) -> None:
    """Have the built tree count the CPU of its engine; what it answers stays the same."""
    shutil.copyfile(counting_model.__file__, tree_of(built.release, built.built_dir) / "1/model.py")
