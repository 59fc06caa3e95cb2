"""The release of a measurement.

The fastest that this CPU can run, in a tree whose engine counts its own CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openvino

from hilum.domain import Release
from hilum.models.build import precision_speed
from hilum.models.build.build import build, tree_of
from hilum.models.known_answers import canary
from hilum.models.manifest.catalogue import load_catalogue, load_manifests
from load_tests.bench import counting_model
from load_tests.infer.trees import replace_model
from testing.serving import REPOSITORY

# The logits of untrained weights are large: bf16 moves them by 0.5, twice what a release of trained
# ones may.
_BF16 = 'precision = "bf16"\ntolerance = 1.0'
_ORIGINAL = REPOSITORY / "model_repository/densenet121_untrained@1/manifest.toml"
_NAMES = {precision: f"densenet121_{precision}" for precision in precision_speed.PRECISIONS}


@dataclass(frozen=True, slots=True)
class Built:
    """A release, the folder of its manifest and that of its trees.

    `cpu_milliseconds`: of an image by precision, where one was chosen by them; empty where it was given, or the CPU has one only.
    """

    release: Release
    manifests_dir: Path
    built_dir: Path
    cpu_milliseconds: Mapping[str, float] = field(default_factory=dict)

    def about_precision(self) -> dict[str, Any]:
        """For the result of a run: which, and why that."""
        return {
            "precision": self.release.precision,
            "cpu_ms_an_image_by_precision": dict(self.cpu_milliseconds),
        }


def build_fastest(folder: Path, precision: str | None = None) -> Built:
    """The bundled DenseNet-121 at the precision that costs this CPU the least, or at the given one.

    Built once, measured each time.
    """
    found = {} if precision else _measured(folder)
    chosen = precision or min(found, key=lambda name: found[name], default="f32")
    if found:
        print(
            f"{chosen}; CPU of an image:"
            f" {', '.join(f'{name} {value:.1f} ms' for name, value in found.items())}",
            flush=True,
        )
    return _built(folder, chosen, found)


def _measured(folder: Path) -> dict[str, float]:
    """CPU of an image by precision; empty: there is no choice."""
    if "BF16" not in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        return {}
    built = _built(folder, "f32", {})
    spec = load_manifests(built.manifests_dir, (built.release.id,))[built.release.id].spec
    return precision_speed.measure(
        tree_of(built.release, built.built_dir) / "1/model.onnx", canary.canary_image(spec)
    )


def _built(folder: Path, precision: str, found: Mapping[str, float]) -> Built:
    """A copy of the bundled manifest below `folder`, built if it is not."""
    name = _NAMES[precision]
    text = _ORIGINAL.read_text(encoding="utf-8").replace(
        'name = "densenet121_untrained"', f'name = "{name}"'
    )
    manifest = folder / "manifests" / f"{name}@1" / "manifest.toml"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(
        text.replace('precision = "f32"', _BF16) if precision == "bf16" else text, encoding="utf-8"
    )
    build([f"{name}@1"], folder / "manifests", folder / "built", progress=print)
    return Built(
        load_catalogue(folder / "manifests")[f"{name}@1"],
        folder / "manifests",
        folder / "built",
        found,
    )


def count_engine(built: Built) -> None:
    """Have the built tree count the CPU of its engine; what it answers stays the same."""
    tree = tree_of(built.release, built.built_dir)
    replace_model(tree, Path(counting_model.__file__))
