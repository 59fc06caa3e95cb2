"""A real TensorRT builder, without a GPU.

Both precisions of what is laid ready parse, keep their tensors and become engines.

NVIDIA's library is proprietary, so it is nobody's dependency: `HILUM_TENSORRT_RTX=1` lets this test
install it into a folder of its own.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hilum.errors import ConfigurationError
from hilum.models.build import build, tensorrt_rtx
from tests.support.models.ensembles import make_trio
from tests.support.models.releases import REPOSITORY, make_tiny


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> None:
    if os.environ.get("HILUM_TENSORRT_RTX") != "1":
        pytest.skip(
            "HILUM_TENSORRT_RTX is not 1: TensorRT for RTX (95 MB, NVIDIA's licence) is not"
            " installed unasked"
        )
    if all(
        importlib.util.find_spec(name) is None for name in ("tensorrt_rtx", "tensorrt_rtx_bindings")
    ):
        folder = tmp_path_factory.mktemp("rtx")
        wanted = (
            "--no-deps",
            "--require-hashes",
            "--target",
            str(folder),
            "-r",
            str(REPOSITORY / "deploy/lock/tensorrt-rtx.txt"),
        )
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", *wanted], check=True)
        sys.path.append(str(folder))
        importlib.invalidate_caches()


def _engines(built_dir: Path, name: str) -> list[tensorrt_rtx.Engine]:
    return list(tensorrt_rtx.build_engines(built_dir / "tensorrt" / name))


@pytest.mark.usefixtures("library")
def test_one_network_becomes_an_engine_in_both_precisions(tmp_path: Path) -> None:
    tiny = make_tiny(tmp_path)
    build.build(["tiny@1"], tiny.manifests_dir, tiny.built_dir, "tensorrt", progress=lambda _: None)
    engines = _engines(tiny.built_dir, "tiny__1")
    assert [engine.precision for engine in engines] == ["fp32", "fp16"]
    for engine in engines:
        assert engine.tensors == ("image UINT8 (-1, 1, 32, 32)", "logits FLOAT (-1, 3)")
        assert engine.size_bytes > 1000


@pytest.mark.usefixtures("library")
def test_the_rule_of_an_ensemble_is_something_that_tensorrt_knows(tmp_path: Path) -> None:
    trio = make_trio(tmp_path)
    build.build(["trio@1"], trio.manifests_dir, trio.built_dir, "tensorrt", progress=lambda _: None)
    assert all(
        "member_logits FLOAT (-1, 3, 3)" in engine.tensors
        for engine in _engines(trio.built_dir, "trio__1")
    )


@pytest.mark.usefixtures("library")
def test_a_network_that_does_not_parse_and_a_profile_that_does_not_fit_are_refused(
    tmp_path: Path,
) -> None:
    tiny = make_tiny(tmp_path)
    build.build(["tiny@1"], tiny.manifests_dir, tiny.built_dir, "tensorrt", progress=lambda _: None)
    tree = tiny.built_dir / "tensorrt/tiny__1"
    request = json.loads((tree / "request.json").read_text())
    request["optimization_profile"]["min"] = [1, 1, 16, 16]
    (tree / "request.json").write_text(json.dumps(request))
    with pytest.raises(ConfigurationError, match="no engine"):
        _engines(tiny.built_dir, "tiny__1")
    (tree / "1/model.onnx").write_bytes(b"no network")
    with pytest.raises(ConfigurationError, match=r"model\.onnx"):
        _engines(tiny.built_dir, "tiny__1")


def test_without_the_library_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tensorrt_rtx", "tensorrt_rtx_bindings"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigurationError, match=r"deploy/lock/tensorrt-rtx\.txt"):
        list(tensorrt_rtx.build_engines(Path("nowhere")))
