"""What all systems read with.

One release in the precision that this CPU does best, as Hilum's tree and as files for the peer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch

from hilum.models.build import export
from hilum.models.manifest import catalogue
from hilum.models.manifest.manifest import Manifest
from hilum.models.networks import architectures, untrained
from load_tests.bench.cpu_engine import Built, build_fastest

_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16")


@dataclass(frozen=True, slots=True)
class Material:
    """`files` holds weights.pt, model.onnx and labels.json for the peer.

    `built` is what Hilum serves.
    """

    built: Built
    files: Path

    @property
    def precision(self) -> str:
        """The bf16 or f32 of Hilum and of the informed peer."""
        return self.built.release.precision


def make(folder: Path, precision: str | None = None) -> Material:
    """Made once and kept in `folder`.

    At the precision that costs this CPU the least, or at the given one.
    """
    built = build_fastest(folder, precision)
    source = catalogue.load_manifests(built.manifests_dir)[built.release.id]
    material = Material(built, folder / "peer")
    material.files.mkdir(parents=True, exist_ok=True)
    write_labels(source, material.files / "labels.json")
    if not (material.files / "model.onnx").exists():
        unfinished = material.files / "model.onnx.part"
        export.export_as_torch_does(source, unfinished)
        unfinished.replace(material.files / "model.onnx")
    if not (material.files / "weights.pt").exists():
        write_weights(source, material.files / "weights.pt")
    return material


def write_labels(source: Manifest, path: Path) -> None:
    """Keys and codes in the order of the outputs."""
    rows = [
        {"key": label.key, "code": [label.code.value, label.code.scheme, label.code.meaning]}
        for label in source.release.labels
    ]
    path.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def write_weights(source: Manifest, path: Path) -> None:
    """The state dictionary that Hilum's builder, too, makes from the manifest's seed."""
    network = architectures.make(
        source.release.architecture, source.spec, len(source.release.labels)
    )
    assert source.weights.seed is not None
    untrained.fill(network, source.spec, source.weights.seed)
    torch.save(network.state_dict(), path)


def cpu_flags() -> list[str]:
    """What this CPU has of the instructions that decide how fast a network runs."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    words = next((line.split() for line in lines if line.startswith("flags")), [])
    return [flag for flag in _FLAGS if flag in words]
