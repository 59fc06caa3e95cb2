"""The real tritonserver reads the profiles whose backends it lacks, and misses nothing but the backend."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hilum.errors import ConfigurationError
from hilum.models.build import build
from hilum.triton.server import EmbeddedTriton
from tests.support.models.releases import Tiny

pytestmark = pytest.mark.usefixtures("embedded_triton")


def _refusal(repository: Path) -> str:
    """What tritonserver says when it starts on `<repository>/embedded/tiny__1`."""
    server = EmbeddedTriton(
        repository,
        repository / "state",
        ["tiny__1"],
        start_timeout_seconds=60,
        exit_timeout_seconds=5,
    )
    with pytest.raises(ConfigurationError) as caught:
        server.start()
    server.stop()
    return str(caught.value)


@pytest.mark.parametrize(
    ("profile", "accelerator"),
    [("onnxruntime", name) for name in build.ACCELERATORS] + [("tensorrt", "none")],
    ids="-".join,
)
def test_triton_misses_the_backend_and_nothing_else(
    tiny: Tiny, tmp_path: Path, profile: str, accelerator: str
) -> None:
    build.build(
        ["tiny@1"],
        tiny.manifests_dir,
        tmp_path,
        profile,
        progress=lambda _: None,
        accelerator=accelerator,
    )
    tree = tmp_path / "embedded/tiny__1"  # where this server looks
    shutil.copytree(tmp_path / profile / "tiny__1", tree)
    assert f"unable to find backend library for backend '{profile}'" in _refusal(tmp_path)


def test_a_configuration_with_a_mistake_is_refused_for_that(tiny: Tiny, tmp_path: Path) -> None:
    build.build(["tiny@1"], tiny.manifests_dir, tmp_path, "tensorrt", progress=lambda _: None)
    tree = tmp_path / "embedded/tiny__1"
    shutil.copytree(tmp_path / "tensorrt/tiny__1", tree)
    config = (tree / "config.pbtxt").read_text()
    (tree / "config.pbtxt").write_text(config.replace("graph_spec {", "graph_specs {"))
    assert "unable to find backend library" not in _refusal(tmp_path)
