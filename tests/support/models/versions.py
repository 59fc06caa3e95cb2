"""Further versions of the tiny release, built beside it."""

from __future__ import annotations

import hashlib

from hilum.models.build import build
from testing.tiny_release import TINY_WEIGHTS, Array, tiny_manifest, tiny_network, write_release
from tests.support.models.releases import Tiny


def add_version(
    tiny: Tiny, version: str, weights: Array = TINY_WEIGHTS, *, is_built: bool = True
) -> str:
    """Its id. `weights` (4, 3): what it says of the four quadrants of an image."""
    name = tiny.release.name
    network = tiny_network(tiny.manifests_dir.parent / f"{name}{version}.onnx", weights=weights)
    text = tiny_manifest(hashlib.sha256(network.read_bytes()).hexdigest(), name)
    write_release(
        tiny.manifests_dir, text.replace('version = "1"', f'version = "{version}"'), network
    )
    if is_built:
        build.build(
            [f"{name}@{version}"], tiny.manifests_dir, tiny.built_dir, progress=lambda _: None
        )
    return f"{name}@{version}"
