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

from hilum_preprocessing import (
    RECIPES,
    Flag,
    InputSpec,
    NotAnalysable,
    Reason,
    StoredValues,
    decode,
    prepare_stored,
    read_file,
)
from hilum_preprocessing.prepare import prepare
from hilum_preprocessing.spec.operations import EqualizeHist
from testing.phantoms.phantom import make_instance
from tests.support.objects.radiograph import radiograph, ramp, scene, spec

SPECS = {name: InputSpec.from_mapping({"recipe": name}) for name in RECIPES}


OTHERS = ("torchxrayvision_224", "vit_imagenet_half_224", "chexzero_224", "jfhealthcare_512")


def bits_for(name: str) -> int:
    """RSNA's files are 8-bit JPEGs in DICOM, and its recipe refuses what is beyond 255."""
    return 8 if name == "torchxrayvision_rsna_224" else 12


def level_range(given: InputSpec) -> tuple[float, float]:
    bounds: tuple[float, float] | None = None
    for op in given.intensity:
        bounds = op.bounds(bounds)
    assert bounds is not None
    return bounds


def picture_for(name: str, rows: int, columns: int, seed: int = 0) -> StoredValues:
    bits = bits_for(name)
    return decode(
        radiograph(
            scene(rows, columns, bits, seed).astype(np.uint8 if bits == 8 else np.uint16), bits
        )
    )


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("size", [(300, 260), (257, 511), (100, 90)])
def test_the_tensor_is_what_the_specification_says(name, size):
    tensor = prepare_stored(picture_for(name, *size), SPECS[name])
    assert tensor.shape == SPECS[name].wire_shape
    assert tensor.dtype == (torch.uint8 if SPECS[name].wire_dtype == "uint8" else torch.float16)
    assert tensor.is_contiguous()
    low, high = level_range(SPECS[name])
    overshoot = 0.1 * (high - low)  # of bicubic and Lanczos
    assert low - overshoot <= tensor.min() < tensor.max() <= high + overshoot
    assert tensor.float().std() > 0.1 * (high - low)


@pytest.mark.parametrize("modality", ["DX", "CR", "SC"])
@pytest.mark.parametrize(
    "transfer_syntax_uid", ["1.2.840.10008.1.2", "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.4.50"]
)
def test_phantoms_of_every_class_and_syntax(modality, transfer_syntax_uid):
    dataset = make_instance(
        0, modality=modality, rows=256, columns=240, transfer_syntax_uid=transfer_syntax_uid
    )
    for name in OTHERS:
        prepared = prepare(dataset, SPECS[name])
        assert prepared.view == "PA"
        assert (Flag.LOSSY in prepared.flags) == transfer_syntax_uid.endswith(".50")


@pytest.mark.parametrize(
    "name", [name for name in RECIPES if SPECS[name].source.monochrome1.startswith("invert")]
)
def test_one_scene_stored_both_ways_gives_one_tensor(name):
    """Trap 1, through the whole path.

    Recipes that do not invert are not here: their training did not either.
    """
    both = (
        make_instance(
            3, rows=256, columns=240, bits=bits_for(name), photometric=f"MONOCHROME{number}"
        )
        for number in (2, 1)
    )
    two, one = (prepare(dataset, SPECS[name]).tensor.float() for dataset in both)
    # The phantom rounds each drawing to whole stored values by itself; equalizing makes several
    # levels of such a step.
    levels = 10 if any(isinstance(op, EqualizeHist) for op in SPECS[name].intensity) else 1
    low, high = level_range(SPECS[name])
    assert (two - one).abs().max() <= levels * (high - low) / 255
    assert two.std() > 0.1 * (high - low)


@pytest.mark.parametrize("name", RECIPES)
def test_a_tensor_depends_on_its_own_image_alone(name):
    """Trap 37: alone, in any position, after any other image and release, twice."""
    pictures = [
        picture_for(name, *size, seed)
        for seed, size in enumerate([(300, 260), (260, 300), (300, 260), (90, 700)])
    ]
    alone = [prepare_stored(picture, SPECS[name]) for picture in pictures]
    for order in ([3, 2, 1, 0], [1, 0, 3, 2], [2, 2, 0, 0]):
        for index in order:
            for other in OTHERS:
                prepare_stored(pictures[(index + 1) % 4], SPECS[other])
            assert torch.equal(prepare_stored(pictures[index], SPECS[name]), alone[index])


@pytest.mark.parametrize("name", RECIPES)
def test_stored_values_are_shared_between_releases_and_never_written_to(name):
    """Trap 40."""
    array = scene(300, 260, bits_for(name))
    stored = StoredValues(
        array,
        bits_for(name),
        is_signed=False,
        is_monochrome1=SPECS[name].source.monochrome1 != "reject",
    )
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
    """An image that is not to be read is not decoded.

    Its reason is the tag's, not its broken pixels'.
    """
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
    for kind in (
        {},
        {"modality": "CR", "photometric": "MONOCHROME1"},
        {"modality": "SC", "transfer_syntax_uid": "1.2.840.10008.1.2.4.50"},
    )
]


def tensor_or_reason(path: Path) -> torch.Tensor | NotAnalysable:
    try:
        return prepare(
            read_file(path), SPECS["vit_imagenet_half_224"], maximum_pixels=1_000_000
        ).tensor
    except NotAnalysable as ended:
        return ended


damage = st.tuples(
    st.integers(132, 2400),
    st.sampled_from(["set", "cut", "insert"]),
    st.binary(min_size=1, max_size=4),
)


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
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
