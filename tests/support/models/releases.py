"""Releases for tests: the tiny one, and the built trees of the real architectures, made once a machine."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from hilum.models.build import build
from testing.tiny_release import (
    SIZE,
    TINY_LABELS,
    TINY_WEIGHTS,
    Array,
    Tiny,
    make_tiny,
    tiny_logits,
    tiny_manifest,
    tiny_network,
    write_release,
)

__all__ = [
    "CACHE",
    "MANIFESTS",
    "SIZE",
    "TINY_LABELS",
    "TINY_WEIGHTS",
    "Array",
    "Tiny",
    "build_cached",
    "built_models",
    "make_tiny",
    "one_at_a_time",
    "pictures",
    "tiny",
    "tiny_logits",
    "tiny_manifest",
    "tiny_network",
    "write_release",
]

REPOSITORY = Path(__file__).resolve().parents[3]
MANIFESTS = REPOSITORY / "model_repository"
CACHE = (
    REPOSITORY / "state/models"
)  # where demo and load test build theirs, so that each release is built once


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Test runs that share a cache wait for each other."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def build_cached(*release_ids: str, weights_dir: Path | None = None) -> Path:
    """Built trees of releases of `model_repository`, kept in `state/models` until their manifest or the builder changes."""
    with one_at_a_time(CACHE.parent / "models.lock"):
        build.build(release_ids, MANIFESTS, CACHE, weights_dir=weights_dir)
    return CACHE


@pytest.fixture(scope="session")
def built_models() -> Path:
    """Folder of built trees, with densenet121_untrained@1 in it.

    The first run of a machine takes half a minute.
    """
    return build_cached("densenet121_untrained@1")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The tiny release, built once for all tests that only read it."""
    return make_tiny(tmp_path_factory.mktemp("tiny"))


def pictures(count: int, seed: int = 0) -> Array:
    """(count, 1, 32, 32) uint8, no two alike, none constant."""
    return np.random.default_rng(seed).integers(0, 256, (count, 1, SIZE, SIZE), np.uint8)
