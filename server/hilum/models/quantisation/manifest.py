"""The manifest of an int8 release: the old one with other weights, engine and version."""

from __future__ import annotations

import tomllib
from typing import Any, Final

from hilum.models.formats.toml import toml_text
from hilum.models.manifest.manifest import Manifest
from hilum.models.onnx.input_normalisation import INPUT

WEIGHTS: Final = "model_int8.onnx"
# of a logit between two CPUs: float32 sums of the last layer over features that may differ by a
# step
_TOLERANCE: Final = 0.1


def manifest_text(read: Manifest, version: str, weights_sha256: str, report: str) -> str:
    """Return the whole file; `report` is named in its first line."""
    heading = (
        f"# Made by `hilum models quantise` from {read.release.id}; {report} says how it was"
        " judged.\n"
    )
    return heading + toml_text(_content(read, version, weights_sha256))


def _content(read: Manifest, version: str, weights_sha256: str) -> dict[str, Any]:
    """Return the old content with other weights, engine and version.

    Golden cases are removed: their numbers are the old network's.
    """
    old = tomllib.loads(read.path.read_text(encoding="utf-8"))
    kept = {name: value for name, value in old.items() if name not in ("golden", "quantisation")}
    model = {
        "architecture": "onnx",
        "activation": read.release.activation,
        "max_batch": read.release.max_batch,
    }
    return {
        **kept,
        "version": version,
        "source": f"Quantised to int8 from {read.release.id}. {read.release.source}"[:1024],
        "model": model,
        "weights": {"file": WEIGHTS, "sha256": weights_sha256, "input": INPUT, "output": "logits"},
        "engine": {
            "name": "onnxruntime",
            "precision": "int8",
            "optimisation": "all",
            "tolerance": _TOLERANCE,
        },
    }
