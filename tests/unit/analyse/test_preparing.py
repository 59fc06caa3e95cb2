"""What a decode process remembers of a release is its InputSpec as it is now.

Another one under the same name is another one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from hilum.analyse.decode.prepare import prepare_for_releases
from hilum.analyse.decode.worker import DecodeRequest, NotReady, Ready
from hilum.settings import RefusedFlag
from hilum_preprocessing import Flag, InputSpec, SpecError
from testing.phantoms import phantom
from tests.support.machine.page_cache import bytes_read, dropped

SPECS = [
    {"recipe": name}
    for name in ("torchxrayvision_224", "torchxrayvision_512", "torchxrayvision_224")
]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("preparing") / "x.dcm"
    phantom.save(phantom.make_instance(1, rows=300, columns=280), path)
    return path


def ready(image: Path, spec: dict[str, str]) -> Ready:
    answer = prepare_for_releases(DecodeRequest(image, {"same@1": spec}, 1 << 24, "cpu"))["same@1"]
    assert isinstance(answer, Ready)
    return answer


def test_a_release_whose_input_spec_changes(image: Path) -> None:
    first, second, third = (ready(image, spec) for spec in SPECS)
    for answer, spec in zip((first, second, third), SPECS, strict=True):
        wanted = InputSpec.from_mapping(spec)
        assert (answer.tensor.shape, answer.preprocessing_version) == (
            wanted.wire_shape,
            wanted.version,
        )
    assert np.array_equal(first.tensor, third.tensor)


@pytest.mark.parametrize("views", [("frontal_only",), ("frontal_only", "any")])
def test_a_lateral_view_that_is_on_the_disk_alone(tmp_path: Path, views: tuple[str, ...]) -> None:
    """Its beginning is enough to refuse it; where one release takes it, all of it is read."""
    path = phantom.save(
        phantom.make_instance(0, "LATERAL", rows=1024, columns=1024), tmp_path / "lateral.dcm"
    )
    written_out = InputSpec.from_mapping(SPECS[0]).to_mapping()
    request = DecodeRequest(
        path, {view: {**written_out, "views": view} for view in views}, 1 << 26, "cpu"
    )
    mapped = prepare_for_releases(request)
    dropped(path)
    before = bytes_read()
    read = prepare_for_releases(replace(request, drops_page_cache=True))
    assert (bytes_read() - before > path.stat().st_size / 2) == ("any" in views)
    assert isinstance(refused := mapped["frontal_only"], NotReady)
    assert refused.reason == "lateral_not_supported"
    assert read["frontal_only"] == refused
    if "any" in views:
        tensors = [
            answer["any"].tensor for answer in (mapped, read) if isinstance(answer["any"], Ready)
        ]
        assert np.array_equal(*tensors)


def test_a_refused_flag_refuses_the_releases_whose_image_has_it(tmp_path: Path) -> None:
    """One release turns the picture, and has no doubt about it.

    The other one would see it upside down.
    """
    made = phantom.make_instance(
        1, rows=300, columns=280, overrides={"PatientOrientation": ["L", "H"]}
    )
    path = phantom.save(made, tmp_path / "upside_down.dcm")
    specs = {
        "as_stored@1": SPECS[0],
        "turned@1": {**SPECS[0], "source": {"orientation": "patient"}},
    }
    request = DecodeRequest(path, specs, 1 << 24, "cpu")
    answer = prepare_for_releases(request)
    flags = {name: set(item.flags) for name, item in answer.items() if isinstance(item, Ready)}
    assert "orientation_upside_down" in flags["as_stored@1"]
    assert {"orientation_corrected", "orientation_upside_down"} & flags["turned@1"] == {
        "orientation_corrected"
    }
    refusing = prepare_for_releases(replace(request, refused_flags=("orientation_upside_down",)))
    assert refusing["as_stored@1"] == NotReady("implausible_pixels", "orientation_upside_down")
    assert isinstance(kept := refusing["turned@1"], Ready)
    assert isinstance(before := answer["turned@1"], Ready)
    assert np.array_equal(kept.tensor, before.tensor)


def test_an_error_of_ours_is_not_taken_for_the_files(tmp_path: Path) -> None:
    """Also where the file's reader asks: a specification that is none is no corrupt header."""
    path = phantom.save(phantom.make_instance(0, rows=1024, columns=1024), tmp_path / "x.dcm")
    request = DecodeRequest(path, {"a@1": {"recipe": "no such recipe"}}, 1 << 26, "cpu")
    for asked in (request, replace(request, drops_page_cache=True)):
        dropped(path)
        with pytest.raises(SpecError, match="unknown recipe"):
            prepare_for_releases(asked)


def test_every_flag_that_may_be_refused_is_one_of_the_library_s() -> None:
    assert set(get_args(RefusedFlag)) <= {flag.value for flag in Flag}
