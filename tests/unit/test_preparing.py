"""What a decode process remembers of a release is its InputSpec as it is now: another one under the same name is another one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hilum.analyse.preparing import prepare_for_releases
from hilum.analyse.worker import Ready, Request
from hilum_preprocessing import InputSpec
from load_tests import phantom

SPECS = [{"recipe": name} for name in ("torchxrayvision_224", "torchxrayvision_512", "torchxrayvision_224")]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("preparing") / "x.dcm"
    phantom.save(phantom.make_instance(1, rows=300, columns=280), path)
    return path


def ready(image: Path, spec: dict[str, str]) -> Ready:
    answer = prepare_for_releases(Request(image, {"same@1": spec}, 1 << 24, "cpu"))["same@1"]
    assert isinstance(answer, Ready)
    return answer


def test_a_release_whose_input_spec_changes(image: Path) -> None:
    first, second, third = (ready(image, spec) for spec in SPECS)
    for answer, spec in zip((first, second, third), SPECS, strict=True):
        wanted = InputSpec.from_mapping(spec)
        assert (answer.tensor.shape, answer.preprocessing_version) == (wanted.wire_shape, wanted.version)
    assert np.array_equal(first.tensor, third.tensor)
