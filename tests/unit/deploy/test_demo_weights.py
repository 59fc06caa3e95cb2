"""Trained weights of `make demo`: only the pinned file, by the importer, with advice."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from deploy import demo_weights
from deploy.demo_weights import RELEASE, TORCHXRAYVISION, NoWeights, Pinned, bring
from hilum.models.manifest import manifest
from hilum.models.networks.densenet import DenseNet121
from testing.serving import hilum_program


def command(*words: str) -> list[str]:
    return [hilum_program(), *words]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A whole module in a pickle, as torchxrayvision publishes them."""
    path = tmp_path / "theirs.pt"
    torch.save(DenseNet121(1, 18, 224, 224), path)
    return path


def pin_of(path: Path) -> Pinned:
    return Pinned(TORCHXRAYVISION.published, hashlib.sha256(path.read_bytes()).hexdigest())


def test_the_pinned_file_becomes_a_release_with_trained_weights(
    tmp_path: Path, checkpoint: Path
) -> None:
    folder = tmp_path / "weights"
    bring(str(checkpoint), folder, command, pin_of(checkpoint))
    release = manifest.read(folder / RELEASE / "manifest.toml").release
    assert release.is_trained
    assert len(release.labels) == 18


def test_a_release_that_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    (tmp_path / RELEASE).mkdir()
    (tmp_path / RELEASE / "manifest.toml").touch()

    def refuses(*words: str) -> list[str]:
        raise AssertionError(words)

    bring("torchxrayvision", tmp_path, refuses)


def test_another_file_is_refused_before_it_is_read(tmp_path: Path, checkpoint: Path) -> None:
    with pytest.raises(NoWeights, match=rf"{TORCHXRAYVISION.sha256} is pinned: another file"):
        bring(str(checkpoint), tmp_path / "weights", command)
    assert not (tmp_path / "weights").exists()


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoWeights, match=r"no such file\. WEIGHTS is torchxrayvision, or the path"):
        bring(str(tmp_path / "absent.pt"), tmp_path, command)


def test_a_failed_import_says_how_to_go_on_without_a_network(tmp_path: Path) -> None:
    """An importer that fails as it does where no name is resolved."""
    with pytest.raises(NoWeights) as raised:
        bring("torchxrayvision", tmp_path, lambda *_: ["false"])
    assert TORCHXRAYVISION.address in str(raised.value)
    assert "make demo WEIGHTS=path/of/the/file" in str(raised.value)


def test_the_advice_names_the_file_that_is_pinned() -> None:
    assert demo_weights.advice().count(TORCHXRAYVISION.address) == 1
