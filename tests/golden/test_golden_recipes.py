"""Each recipe against the code that it comes from.

Load_tests/authors.py, written with scikit-image, OpenCV, Pillow and numpy alone.
"""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from pydicom import dcmread
from pydicom.dataset import Dataset

from hilum_preprocessing import RECIPES, InputSpec, NotAnalysable, Reason, decode, read_file
from hilum_preprocessing.prepare import prepare
from load_tests.bench.authors import AUTHORS
from load_tests.bench.golden_cases import data_set
from load_tests.bench.golden_cases import scene as golden_scene
from load_tests.bench.goldens import Difference, compared, denormalised, difference, on_the_wire
from tests.support.objects.radiograph import radiograph, scene

Array = NDArray[Any]


def spec(name: str) -> InputSpec:
    return InputSpec.from_mapping({"recipe": name})


@pytest.fixture(autouse=True)
def one_thread():
    """Pictures are small: several threads would wait for each other, and for the rest of a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def agrees(recipe: str, found: Difference) -> bool:
    """0.01 of +-1024 before the wire, half a step of fp16 on it; whole grey levels to the bit."""
    return (
        found.wire < 1e-9
        if spec(recipe).wire_dtype == "uint8"
        else found.before <= 0.01 and found.wire <= 0.26
    )


def test_every_recipe_has_its_authors_code_and_no_other():
    assert set(AUTHORS) == set(RECIPES)


@pytest.mark.parametrize("recipe", RECIPES)
def test_synthetic_pictures_give_the_authors_tensors(recipe):
    """Traps 2, 10, 28, 30 and 31, too.

    Whatever step a recipe missed, misplaced or added would show here.
    """
    found = dict(compared(recipe))
    assert len(found) >= (2 if "rsna" in recipe else 8), "pictures that neither side refuses"
    assert {name: item for name, item in found.items() if not agrees(recipe, item)} == {}


@pytest.mark.parametrize("recipe", ["torchxrayvision_224", "chexpert_320"])
def test_a_full_size_picture_gives_the_authors_tensor(recipe):
    found = difference(
        recipe, data_set(golden_scene(2500, 2048, 12), 12, PhotometricInterpretation="MONOCHROME1")
    )
    assert found is not None
    assert agrees(recipe, found)


@pytest.mark.parametrize(
    ("recipe", "other"),
    [("torchxrayvision_224", "torchxrayvision_xinario_224"), ("chexzero_320", "chexpert_320")],
)
def test_another_recipe_is_noticed(recipe, other):
    """The comparison can fail: what differs in nothing but the resizer or the mean is not the same."""
    dataset = data_set(golden_scene(601, 487, 12), 12)
    theirs = denormalised(AUTHORS[other](dataset), spec(other))
    ours = on_the_wire(decode(dataset), spec(recipe))
    assert ours is not None
    assert np.abs(ours - theirs).max() > 1


def test_the_vit_recipe_shows_what_the_object_s_window_shows():
    """PS3.3 C.11.2.1.2.1 between the stored values and Pillow."""
    stored = scene(512, 480)
    windowed = np.clip((stored.astype(np.float64) - 2199.5) / 1499 + 0.5, 0, 1)
    expected = np.asarray(
        Image.fromarray(np.rint(windowed * 255).astype(np.uint8)).resize(
            (224, 224), Image.Resampling.BILINEAR
        )
    )
    dataset = radiograph(stored, 12, WindowCenter="2200", WindowWidth="1500")
    found = prepare(dataset, spec("vit_imagenet_half_224")).tensor[0].numpy()
    assert np.abs(found.astype(int) - expected).max() <= 1
    assert not np.array_equal(
        found, prepare(radiograph(stored, 12), spec("vit_imagenet_half_224")).tensor[0].numpy()
    )


def test_a_ramp_keeps_its_mean():
    """Trap 29: a wrong rounding is a bias of half a level, which no maximum shows."""
    stored = np.linspace(0, 4095, 512 * 512).round().astype(np.uint16).reshape(512, 512)
    for recipe in ("nih_pil_bicubic_224", "vit_imagenet_half_224"):
        found = prepare(radiograph(stored, 12), spec(recipe)).tensor.double().mean()
        assert abs(float(found) - 127.5) < 0.1


# --- with the shared data: real radiographs
# -----------------------------------------------------------------------------


def recorded_hashes(test_data: Path) -> dict[str, str]:
    with (test_data / "expected" / "mobilenetv3_int8_reference.csv").open() as lines:
        return {
            Path(row["input"]).name: row["input_tensor_sha256"] for row in csv.DictReader(lines)
        }


def model_input(grey: Array) -> Array:
    """(1, 1, 224, 224) float32, by the reference model's own words."""
    return ((np.asarray(grey, np.float32) / 255 - 0.485) / 0.229)[None, None]


def sha256(tensor: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(tensor).tobytes()).hexdigest()


def check_against_pillow(dataset: Dataset, image: Image.Image, recorded: str) -> None:
    expected = np.asarray(image.convert("L").resize((224, 224)))
    assert sha256(model_input(expected)) == recorded, (
        "Pillow here is not the Pillow of the reference"
    )
    found = prepare(dataset, spec("nih_pil_bicubic_224")).tensor[0].numpy()
    assert sha256(model_input(found)) == recorded


def test_nih_pictures_give_the_recorded_tensors(test_data):
    recorded = recorded_hashes(test_data)
    paths = sorted((test_data / "nih_png").glob("*.png"))
    assert len(paths) == 66
    for path in paths:
        with Image.open(path) as image:
            grey = image.convert("L")
        check_against_pillow(radiograph(np.asarray(grey)), grey, recorded[path.name])


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", ["rsna_pa_fake_mono1_jpeg", "cr_mono1_10bit_fuji"])
def test_real_files_give_the_authors_tensors(test_data, name, recipe):
    found = difference(recipe, dcmread(test_data / "dicom" / "chest" / f"{name}.dcm"))
    assert (found is None) == (recipe == "torchxrayvision_rsna_224" and "10bit" in name), (
        "its authors refuse more than 8 bits"
    )
    assert found is None or agrees(recipe, found)


@pytest.mark.parametrize(
    "name", ["rsna_pa_mono2_jpeg", "rsna_pa_fake_mono1_jpeg", "rsna_uao_normal2", "rsna_uao_viral2"]
)
def test_rsna_files_give_the_recorded_tensors(test_data, name):
    """The lying twin too: its header says MONOCHROME1, so it is read as a negative, as the reference did."""
    dataset = dcmread(test_data / "dicom" / "chest" / f"{name}.dcm")
    array = dataset.pixel_array
    image = Image.fromarray(
        255 - array if dataset.PhotometricInterpretation == "MONOCHROME1" else array
    )
    check_against_pillow(dataset, image, recorded_hashes(test_data)[f"{name}.dcm"])


def outcome(path: Path, given: InputSpec) -> str:
    try:
        prepare(read_file(path), given)
    except NotAnalysable as ended:
        return ended.reason.value
    return "analysed"


@pytest.mark.filterwarnings("ignore::UserWarning")  # these files are here because they break rules
def test_every_shared_file_has_its_outcome(test_data):
    """Nothing else is raised; of 53 files the five frontal chest radiographs are analysed."""
    given = spec("torchxrayvision_224")
    outcomes = {
        path.stem: outcome(path, given) for path in sorted((test_data / "dicom").rglob("*.dcm"))
    }
    assert len(outcomes) == 53
    assert {name for name, ended in outcomes.items() if ended == "analysed"} == {
        *("rsna_pa_mono2_jpeg", "rsna_pa_fake_mono1_jpeg", "rsna_uao_normal2", "rsna_uao_viral2"),
        "cr_mono1_10bit_fuji",
    }
    assert {name: outcomes[name] for name in EXPECTED} == EXPECTED
    rest = {
        name: ended
        for name, ended in outcomes.items()
        if name not in EXPECTED and ended != "analysed"
    }
    assert set(rest.values()) == {Reason.WRONG_MODALITY.value}


EXPECTED = {
    "dx_thorax_of_a_dog_mono1_inverse": "lateral_not_supported",
    "cr_chest_ja_ir87": "no_pixel_data",
    "cr_chest_ja_explicit_ir6": "no_pixel_data",
    "no_meta": "corrupt_header",
    **dict.fromkeys(
        [
            "RG3_J2KI",
            "RG3_J2KR",
            "RG3_JLSL",
            "RG3_JLSN",
            "RG3_JPLL",
            "RG3_JPLY",
            "RG3_RLE",
            "RG3_UNC",
        ],
        "not_chest",
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_stored_values_are_the_recorded_ones_or_there_is_a_reason(test_data):
    """Where a syntax is decoded here, the array is pydicom's to the bit.

    Elsewhere the reason says why not.
    """
    decoded, reasons = set(), {}
    for entry in json.loads((test_data / "manifest.json").read_text())["dicom"]:
        name = Path(entry["file"]).stem
        try:
            array = decode(read_file(test_data / entry["file"])).array
        except NotAnalysable as ended:
            reasons[name] = ended.reason.value
            continue
        if name == "RG3_JPLY":
            continue  # pydicom cannot, so that no array is recorded
        little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<")))
        assert (
            hashlib.sha256(little.tobytes()).hexdigest() == entry["pydicom"]["decoded"]["sha256_le"]
        ), name
        decoded.add(name)
    assert {
        "rsna_pa_mono2_jpeg",
        "cr_mono1_10bit_fuji",
        "RG3_UNC",
        "modality_lut_signed12",
        "overlay_2windows_mr",
        "ct_small",
    } <= decoded
    assert len(decoded) == 33
    assert {name: reasons[name] for name in DECODE_REASONS} == DECODE_REASONS


DECODE_REASONS = {
    "truncated_pixeldata": "truncated_pixel_data",
    "bad_vr": "corrupt_header",
    "no_meta": "corrupt_header",
    "meta_missing_tsyntax": "corrupt_header",
    "nested_private_sq": "corrupt_header",
    "sr_report": "no_pixel_data",
    "rgb_secondary_capture": "not_monochrome",
    "palette_rle_us": "not_monochrome",
    "multiframe10_enhanced_mr": "multi_frame",
    "seg_1bit": "unsupported_pixel_format",
    "rtdose_32bit": "multi_frame",
}
