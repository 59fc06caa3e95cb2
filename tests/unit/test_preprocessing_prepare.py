"""The whole path: what comes out, that it depends on this image alone, and that damaged input ends with a reason."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydicom.dataset import Dataset

from hilum_preprocessing import RECIPES, Flag, InputSpec, NotAnalysable, Reason, StoredValues, decode, prepare_stored, read_file
from hilum_preprocessing.prepare import prepare
from load_tests.phantom import make_instance
from tests.support.radiograph import radiograph, ramp, scene, spec

SPECS = {name: InputSpec.from_mapping({"recipe": name}) for name in RECIPES}


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("size", [(300, 260), (257, 511), (100, 90)])
def test_the_tensor_is_what_the_specification_says(name, size):
    tensor = prepare(radiograph(scene(*size), 12), SPECS[name]).tensor
    assert tensor.shape == SPECS[name].wire_shape
    assert tensor.dtype == (torch.uint8 if SPECS[name].wire_dtype == "uint8" else torch.float16)
    assert tensor.is_contiguous()
    low, high = (0, 255) if tensor.dtype == torch.uint8 else (-1024, 1024)
    assert low <= tensor.min() < tensor.max() <= high


@pytest.mark.parametrize("modality", ["DX", "CR", "SC"])
@pytest.mark.parametrize("transfer_syntax_uid", ["1.2.840.10008.1.2", "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.4.50"])
def test_phantoms_of_every_class_and_syntax(modality, transfer_syntax_uid):
    dataset = make_instance(0, modality=modality, rows=256, columns=240, transfer_syntax_uid=transfer_syntax_uid)
    for each in SPECS.values():
        prepared = prepare(dataset, each)
        assert prepared.view == "PA"
        assert (Flag.LOSSY in prepared.flags) == transfer_syntax_uid.endswith(".50")


@pytest.mark.parametrize("name", RECIPES)
def test_one_scene_stored_both_ways_gives_one_tensor(name):
    """Trap 1, through the whole path."""
    two, one = (make_instance(3, rows=256, columns=240, photometric=f"MONOCHROME{number}") for number in (2, 1))
    tensors = [prepare(dataset, SPECS[name]).tensor.float() for dataset in (two, one)]
    tolerance = 1.0  # the phantom rounds each drawing to whole stored values by itself
    assert (tensors[0] - tensors[1]).abs().max() <= tolerance
    assert tensors[0].std() > 10


@pytest.mark.parametrize("name", RECIPES)
def test_a_tensor_depends_on_its_own_image_alone(name):
    """Trap 37: alone, in any position, after any other image and release, twice."""
    pictures = [
        decode(radiograph(scene(*size, seed=seed), 12)) for seed, size in enumerate([(300, 260), (260, 300), (300, 260), (90, 700)])
    ]
    alone = [prepare_stored(picture, SPECS[name]) for picture in pictures]
    for order in ([3, 2, 1, 0], [1, 0, 3, 2], [2, 2, 0, 0]):
        for index in order:
            for other in SPECS.values():
                prepare_stored(pictures[(index + 1) % 4], other)
            assert torch.equal(prepare_stored(pictures[index], SPECS[name]), alone[index])


@pytest.mark.parametrize("name", RECIPES)
def test_stored_values_are_shared_between_releases_and_never_written_to(name):
    """Trap 40."""
    array = scene(300, 260)
    stored = StoredValues(array, 12, is_signed=False, is_monochrome1=True)
    before = array.tobytes()
    prepare_stored(stored, SPECS[name])
    assert array.tobytes() == before


def test_the_full_range_of_16_bits_fits_fp16():
    """Trap 35: 65535 is infinite in fp16; levels are not."""
    tensor = prepare(radiograph(ramp(300, 300, bits=16), 16), SPECS["torchxrayvision_224"]).tensor
    assert torch.isfinite(tensor).all()
    assert tensor.min() < -1000
    assert tensor.max() > 1000


def test_statistics_are_those_of_the_whole_picture_and_not_of_the_crop():
    picture = np.full((300, 400), 2000, np.uint16)
    picture[:, 40:60] = np.arange(300)[:, None] + 1500
    picture[100:200, 100:300] = 2500
    picture[:, :20], picture[:, -20:] = 0, 4000
    given_spec = spec(intensity=[{"op": "minmax"}])
    tensor = prepare(radiograph(picture, 12), given_spec).tensor
    assert tensor.min() > 0.3
    assert tensor.max() < 0.7


def test_an_unknown_view_is_read_and_flagged():
    prepared = prepare(radiograph(scene(64, 64), 12, ViewPosition=""), SPECS["torchxrayvision_224"])
    assert prepared.view == "UNKNOWN"
    assert prepared.flags == (Flag.VIEW_UNKNOWN,)


def test_the_tags_speak_before_the_pixels():
    """An image that nobody reads is not decoded; its reason is the tag's, not its broken pixels'."""
    dataset = radiograph(scene(64, 64), 12, BodyPartExamined="FOOT", PixelData=b"\0\0")
    with pytest.raises(NotAnalysable) as refused:
        prepare(dataset, SPECS["torchxrayvision_224"])
    assert refused.value.reason is Reason.NOT_CHEST


def test_the_limit_reaches_the_decoder():
    with pytest.raises(NotAnalysable) as refused:
        prepare(radiograph(scene(64, 64), 12), SPECS["torchxrayvision_224"], maximum_pixels=4000)
    assert refused.value.reason is Reason.TOO_LARGE


def file_content(dataset: Dataset) -> bytes:
    content = io.BytesIO()
    dataset.save_as(content, enforce_file_format=True)
    return content.getvalue()


WHOLE = [
    file_content(make_instance(1, rows=24, columns=20, **kind))
    for kind in ({}, {"modality": "CR", "photometric": "MONOCHROME1"}, {"modality": "SC", "transfer_syntax_uid": "1.2.840.10008.1.2.4.50"})
]


def tensor_or_reason(path: Path) -> torch.Tensor | NotAnalysable:
    try:
        return prepare(read_file(path), SPECS["vit_imagenet_half_224"], maximum_pixels=1_000_000).tensor
    except NotAnalysable as ended:
        return ended


damage = st.tuples(st.integers(132, 2400), st.sampled_from(["set", "cut", "insert"]), st.binary(min_size=1, max_size=4))


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.sampled_from(WHOLE), damages=st.lists(damage, min_size=1, max_size=4))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_damaged_file_gives_a_tensor_or_a_reason(tmp_path, content, damages):
    """Whatever pydicom raises on the way: never anything else."""
    broken = bytearray(content)
    for position, kind, data in damages:
        kept = {"set": len(data), "cut": len(data), "insert": 0}[kind]
        broken[position : position + kept] = b"" if kind == "cut" else data
    path = tmp_path / "x.dcm"
    path.write_bytes(broken)
    ended = tensor_or_reason(path)
    if isinstance(ended, torch.Tensor):
        assert ended.shape == (1, 224, 224)
    else:
        assert ended.reason in Reason
        assert "Phantom" not in str(ended), "a patient's name in a reason"
