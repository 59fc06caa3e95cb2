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

# A change of these files can change a built tree; a change of any other cannot.
_BUILDER: Final = (
    "build/artefact.py",
    "build/build.py",
    "build/export.py",
    "build/half_precision.py",
    "build/profile_checks.py",
    "build/profiles.py",
    "build/tensorrt.py",
    "formats/safetensors.py",
    "formats/triton_model.py",
    "known_answers/canary.py",
    "known_answers/exact_maps.py",
    "known_answers/golden.py",
    "known_answers/wire_image.py",
    "manifest/served.py",
    "networks/architectures.py",
    "networks/checkpoint_names.py",
    "networks/clip.py",
    "networks/clip_shape.py",
    "networks/densenet.py",
    "networks/ensemble.py",
    "networks/ensemble_rules.py",
    "networks/resnet.py",
    "networks/state_dict.py",
    "networks/untrained.py",
    "networks/vit.py",
    "networks/vit_shape.py",
    "onnx/cleanup.py",
    "onnx/contract.py",
    "onnx/output_activation.py",
    "onnx/external.py",
    "onnx/file.py",
    "onnx/input_normalisation.py",
    "onnx/nondeterminism.py",
    "onnx/pool_before_conv.py",
)


def triton_name(name: str, version: str) -> str:
    """Return the name of a release's Triton model.

    It has letters, digits and _ only, because it names a folder and a part of a URL. No two
    releases share one: a version has no _, so the part behind the last __ is the version.
    """
    return f"{name}__{version.replace('.', '_')}"


def build_key(facts: Mapping[str, Any]) -> str:
    """Return the digest of the manifest's facts that shape the built tree, and of the builder."""
    text = json.dumps({**facts, "builder": _builder_digest()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_sha256(path: Path) -> str:
    """Return the digest of a weights file or a built model, read in pieces."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def read_record(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file of a built tree; empty where it is gone or damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


@functools.cache
def _builder_digest() -> str:
    digest = hashlib.sha256()
    for name in _BUILDER:
        digest.update((Path(__file__).parents[1] / name).read_bytes())
    return digest.hexdigest()
