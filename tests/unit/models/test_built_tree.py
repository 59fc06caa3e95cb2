"""A built tree that somebody touched is refused by `models check`, in words that say what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hilum.models.build import build, built_tree
from hilum.models.manifest import catalogue
from tests.support.models.releases import Tiny, make_tiny


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    made = make_tiny(tmp_path_factory.mktemp("tiny"))
    for profile in ("onnxruntime", "tensorrt"):
        build.build(
            ["tiny@1"], made.manifests_dir, made.built_dir, profile, progress=lambda _: None
        )
    return made


def _problems(tiny: Tiny, tree: Path, profile: str) -> str:
    manifest = catalogue.load_manifests(tiny.manifests_dir)["tiny@1"]
    return "\n".join(built_tree.problems(manifest, tree, profile))


@pytest.mark.parametrize("profile", build.PROFILES)
def test_a_tree_as_it_was_built_is_in_order(tiny: Tiny, profile: str) -> None:
    assert _problems(tiny, tiny.built_dir / profile / "tiny__1", profile) == ""


def _edited(name: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(tree: Path) -> None:
        text = (tree / name).read_text()
        assert old in text
        (tree / name).write_text(text.replace(old, new))

    return edit


def _smaller_profile(tree: Path) -> None:
    record = json.loads((tree / "build.json").read_text())
    record["optimization_profile"]["max"][0] = 2
    (tree / "build.json").write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("profile", "harm", "says"),
    [
        (
            "embedded",
            lambda tree: (tree / "1/model.onnx").unlink(),
            "is not the file that was built",
        ),
        (
            "embedded",
            lambda tree: (tree / "1/model.onnx").write_bytes(b"other"),
            "is not the file that was built",
        ),
        ("embedded", _edited("1/model.py", "numpy", "numpie"), "model.py is not this Hilum's"),
        ("embedded", lambda tree: (tree / "config.pbtxt").unlink(), "config.pbtxt: No such file"),
        ("embedded", _edited("config.pbtxt", "dims: [3]", "dims: [4]"), "tensor 'logits'"),
        (
            "onnxruntime",
            _edited("config.pbtxt", "max_batch_size: 4", "max_batch_size: 64"),
            "max_batch_size is 64",
        ),
        ("tensorrt", _smaller_profile, "takes 1 to 2 images; 1 to 4 are sent"),
        (
            "tensorrt",
            lambda tree: (tree / "1/model.plan").write_bytes(b"of another GPU"),
            "its plan was built from another ONNX file",
        ),
    ],
)
def test_a_tree_that_somebody_touched_is_refused(
    tiny: Tiny, tmp_path: Path, profile: str, harm: Callable[[Path], None], says: str
) -> None:
    tree = tmp_path / "tiny__1"
    shutil.copytree(tiny.built_dir / profile / "tiny__1", tree)
    harm(tree)
    assert says in _problems(tiny, tree, profile)
