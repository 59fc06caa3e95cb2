"""Names and digests by which a manifest, its built tree and Triton know each other.

Standard library only.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

# A change of these files can change a built tree; of the others it cannot.
_BUILDER: Final = (
    "accelerators.py",
    "architectures.py",
    "artefact.py",
    "brought_onnx.py",
    "build.py",
    "canary.py",
    "checkpoint_names.py",
    "contract.py",
    "densenet.py",
    "early_pooling.py",
    "embedded_model.py",
    "ensemble.py",
    "ensemble_rules.py",
    "exact_maps.py",
    "export.py",
    "golden.py",
    "graph_sharing.py",
    "half_precision.py",
    "onnx_ending.py",
    "onnx_file.py",
    "profile_checks.py",
    "profiles.py",
    "prologue.py",
    "resnet.py",
    "restless.py",
    "safetensors_file.py",
    "served.py",
    "state_dict.py",
    "tensorrt.py",
    "untrained.py",
    "vision_transformer.py",
    "vit.py",
    "vit_shape.py",
    "wire_image.py",
)


def triton_name(name: str, version: str) -> str:
    """A Triton model for each release.

    Letters, digits and _ only, because it names a folder and a part of a URL.

    No two releases share one: a version holds no _, so what follows the last __ is the version.
    """
    return f"{name}__{version.replace('.', '_')}"


def build_key(facts: Mapping[str, Any]) -> str:
    """Digest of the facts of a manifest that shape the built tree, and of the builder itself."""
    text = json.dumps({**facts, "builder": _builder_digest()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_sha256(path: Path) -> str:
    """Of a weights file or a built model, read in pieces."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def read_record(path: Path) -> dict[str, Any]:
    """What a JSON file of a built tree says; empty where it is gone or damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


@functools.cache
def _builder_digest() -> str:
    digest = hashlib.sha256()
    for name in _BUILDER:
        digest.update(Path(__file__).with_name(name).read_bytes())
    return digest.hexdigest()
