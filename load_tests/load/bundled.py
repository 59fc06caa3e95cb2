"""The models of a load test."""

from __future__ import annotations

from typing import Any

from testing.serving import REPOSITORY

BUNDLED = "bundled"
_FOLDER = REPOSITORY / "state" / "bench-cpu"  # shared with `make bench-cpu`: built once


def models_of(release: str) -> dict[str, Any]:
    """The settings' section `models` for a release.

    `bundled` is DenseNet-121 with untrained weights, at what this CPU does best.
    """
    if release != BUNDLED:
        return {"releases": [release]}
    from load_tests.bench.cpu_engine import build_fastest  # noqa: PLC0415 - OpenVINO and torch, for this release only

    built = build_fastest(_FOLDER)
    return {
        "manifests": str(built.manifests_dir),
        "built": str(built.built_dir),
        "releases": [built.release.id],
    }
