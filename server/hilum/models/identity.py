"""Names and digests by which a manifest, its built tree and Triton know each other. Standard library only."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

# A change of these files can change a built tree; of the others it cannot.
_BUILDER: Final = (
    "architectures.py",
    "artefact.py",
    "brought_onnx.py",
    "build.py",
    "canary.py",
    "densenet.py",
    "embedded_model.py",
    "export.py",
    "profiles.py",
    "state_dict.py",
    "untrained.py",
    "vision_transformer.py",
)


def triton_name(name: str, version: str) -> str:
    """A Triton model for each release: letters, digits and _ only, because it names a folder and a part of a URL.

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


@functools.cache
def _builder_digest() -> str:
    digest = hashlib.sha256()
    for name in _BUILDER:
        digest.update(Path(__file__).with_name(name).read_bytes())
    return digest.hexdigest()
