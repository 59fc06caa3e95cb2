"""A CheXzero checkpoint, a pickle, through import and build to the real tritonserver.

The scores are the authors' softmax over two cosines, for known images and for a DICOM file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from hilum.models.build import build
from hilum.models.known_answers import canary
from hilum.models.manifest.manifest import Manifest
from hilum.scores import scores_of
from hilum.triton.server import EmbeddedTriton
from hilum_preprocessing import prepare
from tests.support.models.triton import killed_afterwards, require_triton, with_gateway
from tests.support.models.zero_shot import SmallChexzero, small_chexzero
from tests.support.objects.radiograph import radiograph, scene


@dataclass(frozen=True)
class ServedChexzero:
    """The release in a running Triton, and the network as its author had it."""

    url: str
    read: Manifest
    built_dir: Path
    theirs: SmallChexzero

    def logits(self, images: np.ndarray) -> np.ndarray:
        release = self.read.release
        return with_gateway(self.url, lambda gateway: gateway.infer(release, images)).logits


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedChexzero]:
    require_triton()
    folder = tmp_path_factory.mktemp("chexzero")
    theirs = small_chexzero(folder / "theirs")
    read = theirs.imported(folder / "releases")
    built = folder / "built"
    build.build(["cx@1"], folder / "releases", built, progress=lambda _: None)
    state = tmp_path_factory.mktemp("state")
    with killed_afterwards(
        EmbeddedTriton(built, state, [read.release.triton_name], 60, 5)
    ) as server:
        yield ServedChexzero(server.start(), read, built, theirs)


@pytest.mark.parametrize("size", [1, 5])
def test_triton_gives_the_authors_scores(served: ServedChexzero, size: int) -> None:
    images = np.concatenate(
        [canary.known_image(served.read.spec, number) for number in range(size)]
    )
    logits = served.logits(images)
    positive, negative = served.theirs.cosines(served.read, images)
    assert np.abs(logits - (positive - negative).numpy()).max() < 1e-5
    shares = torch.stack([positive, negative]).softmax(0)[0].numpy()
    scores = np.array([scores_of(row, served.read.release) for row in logits])
    assert np.abs(scores - shares).max() < 1e-5


def test_a_dicom_file_is_read_as_a_known_image_is(served: ServedChexzero) -> None:
    dataset = radiograph(scene(400, 300), ViewPosition="PA")
    image = prepare(dataset, served.read.spec).tensor.numpy()[None]
    positive, negative = served.theirs.cosines(served.read, image)
    assert np.abs(served.logits(image) - (positive - negative).numpy()).max() < 1e-5


def test_the_canary_notices_other_prompts(served: ServedChexzero) -> None:
    known = canary.read_canary(served.read.release, served.built_dir)
    assert known.tolerance == 1e-4
    swapped = np.ascontiguousarray(known.logits[:, ::-1])
    assert np.abs(swapped - known.logits).max() > 3 * known.tolerance
