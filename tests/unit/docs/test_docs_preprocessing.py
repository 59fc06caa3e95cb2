"""The notebook of docs/models/preprocessing.md runs as it stands, and gives what its comments say."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from testing.phantoms.phantom import make_instance, save
from tests.support.objects.picture_files import png
from tests.support.objects.radiograph import scene

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "models" / "preprocessing.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, view, rows in (("pa", "PA", 300), ("ap", "AP", 260), ("lateral", "LATERAL", 280)):
        save(make_instance(1, view, rows=rows, columns=256), tmp_path / f"{name}.dcm")
    (tmp_path / "pa.png").write_bytes(png(scene(300, 256, 8).astype(np.uint8)))


def test_the_notebook_runs(notebook, capsys):
    found: dict[str, object] = {}
    for block in BLOCKS:
        exec(block, found)
    prepared, batch = found["prepared"], found["batch"]
    assert prepared.tensor.shape == (1, 224, 224)
    assert prepared.tensor.dtype == torch.float16
    assert -1024 <= prepared.tensor.min() < prepared.tensor.max() <= 1024
    assert prepared.view == found["of_file"].view == "PA"
    assert found["of_file"].flags == ("body_part_unknown", "picture_file")
    assert batch.shape == (2, 1, 224, 224)
    assert torch.equal(batch[0], prepared.tensor)
    assert capsys.readouterr().out.splitlines() == [
        "lateral_not_supported",
        "vit_imagenet_half_224 (1, 224, 224) torch.uint8",
        "chexpert_320 (1, 320, 320) torch.uint8",
    ]


def test_the_notebook_needs_no_server(notebook):
    """In a process of its own: nothing of the server and none of its libraries is loaded."""
    watched = (
        "hilum",
        "pynetdicom",
        "fastapi",
        "sqlalchemy",
        "tritonclient",
        "highdicom",
        "skimage",
        "cv2",
    )
    check = (
        f"import sys; loaded = {watched!r}; assert not [name for name in loaded if name in"
        " sys.modules], 'loaded'"
    )
    subprocess.run(
        [sys.executable, "-c", "\n".join([*BLOCKS, check])], check=True, capture_output=True
    )


def imported(path: Path) -> Iterator[str]:
    """Top-level packages, wherever in the file they are imported."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def test_a_bare_installation_brings_what_the_library_imports():
    """And nothing that it does not: a notebook has this library and no server."""
    text = (ROOT / "preprocessing/pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    brought = {re.split(r"[<>=]", line)[0] for line in project["dependencies"]}
    found = {
        name
        for path in (ROOT / "preprocessing/hilum_preprocessing").rglob("*.py")
        for name in imported(path)
    }
    foreign = found - set(sys.stdlib_module_names) - {"hilum_preprocessing"}
    assert {"pillow" if name == "PIL" else name for name in foreign} == brought
