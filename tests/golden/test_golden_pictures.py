"""Each recipe on PNG and JPEG files against the code that read them for the training.

`load_tests/bench/picture_authors.py`, with scikit-image, OpenCV and Pillow as readers.
"""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from hilum.retrieve.files.picture_object import picture_object
from hilum_preprocessing import RECIPES, ImageInput, InputSpec, NotAnalysable, decode, prepare
from load_tests.bench.authors import chexpert_jpg, nominal_uint8, shown_uint8
from load_tests.bench.golden_cases import data_set, framed
from load_tests.bench.golden_cases import scene as golden_scene
from load_tests.bench.goldens import Difference, between
from load_tests.bench.picture_authors import PICTURE_AUTHORS
from tests.support.objects.picture_files import jpeg_file, png

FROM_CHEXPERT = ("chexpert_320", "mimic_cxr_jpg_320", "jfhealthcare_512", "chexzero_320")
FROM_NIH = ("chexnet_nih_224", "chexnet_nih_256_224", "nih_pil_bicubic_224")
FROM_SHOWN = ("vit_imagenet_half_224", "vit_imagenet_224", "medgemma_896", "medsiglip_448")

FILES = {
    "png 8 bits": png(golden_scene(601, 487, 8)),
    "png 8 bits, framed": png(framed(golden_scene(383, 450, 8))),
    "png 8 bits, a part of the range": png(golden_scene(384, 401, 8) // 3 + 40),
    "png 16 bits": png(golden_scene(521, 640, 16)),
    "png of three channels": png(golden_scene(411, 388, 8), "RGB"),
    "jpeg baseline": jpeg_file(golden_scene(487, 601, 8)),
    "jpeg progressive": jpeg_file(golden_scene(450, 383, 8), progressive=True),
    "jpeg of three channels": jpeg_file(golden_scene(388, 411, 8), "RGB"),
}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def spec(name: str) -> InputSpec:
    return InputSpec.from_mapping({"recipe": name})


def agrees(recipe: str, found: Difference) -> bool:
    """As with DICOM: 0.01 of +-1024 before the wire, half a step on it; grey levels to the bit."""
    return (
        found.wire < 1e-9
        if spec(recipe).wire_dtype == "uint8"
        else found.before <= 0.01 and found.wire <= 0.26
    )


def difference(recipe: str, data: bytes) -> Difference | None:
    """None: both refuse the file."""
    given = spec(recipe)
    try:
        expected = PICTURE_AUTHORS[recipe](data)
    except ValueError:
        with pytest.raises(NotAnalysable):
            prepare(ImageInput(data), given)
        return None
    wire = prepare(ImageInput(data), given).tensor.numpy().astype(np.float64)
    return between(decode(ImageInput(data).data_set()), wire, expected, given)


def test_every_recipe_has_its_authors_reading_of_a_file():
    assert set(PICTURE_AUTHORS) == set(RECIPES)


@pytest.mark.parametrize("recipe", RECIPES)
def test_files_give_the_authors_tensors(recipe):
    found = {name: difference(recipe, data) for name, data in FILES.items()}

    refused = {name for name, item in found.items() if item is None}
    assert refused == ({"png 16 bits"} if "rsna" in recipe else set())
    assert {n: item for n, item in found.items() if item and not agrees(recipe, item)} == {}


def test_a_skipped_step_too_few_is_noticed():
    """The comparison can fail: the file of 8 bits is not equalised once more."""
    data = FILES["png 8 bits"]
    fields = spec("chexpert_320").to_mapping()
    whole = InputSpec.from_mapping({**fields, "picture_entry": 0})

    found = prepare(ImageInput(data), whole).tensor.numpy().astype(np.float64)
    expected = PICTURE_AUTHORS["chexpert_320"](data)

    assert between(decode(ImageInput(data).data_set()), found, expected, whole).wire > 10


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", FILES)
def test_the_object_of_a_file_gives_the_same_tensor_to_the_bit(tmp_path, recipe, name):
    data = FILES[name]
    path = tmp_path / "picture.dcm"
    path.write_bytes(picture_object(data, "1.2.3", "1.2.3.4", "1.2.3.4.5"))
    if "rsna" in recipe and "16" in name:
        with pytest.raises(NotAnalysable):
            prepare(path, spec(recipe))
        return

    of_object = prepare(path, spec(recipe))
    of_file = prepare(ImageInput(data), spec(recipe))

    assert np.array_equal(of_object.tensor.numpy(), of_file.tensor.numpy())
    assert of_object.flags == of_file.flags
    assert of_object.view == of_file.view == "UNKNOWN"


# --- the file that its authors made of an object, and the object itself
# -----------------------------------------------------------------------------


DATA_SETS = {
    "12 bits": data_set(golden_scene(601, 487, 12), 12),
    "MONOCHROME1": data_set(
        golden_scene(513, 640, 10), 10, PhotometricInterpretation="MONOCHROME1"
    ),
}


@pytest.mark.parametrize("name", DATA_SETS)
@pytest.mark.parametrize(
    ("recipe", "made"),
    [
        *((recipe, chexpert_jpg) for recipe in (*FROM_CHEXPERT, "chexzero_224")),
        *((recipe, nominal_uint8) for recipe in FROM_NIH),
        *((recipe, shown_uint8) for recipe in FROM_SHOWN),
    ],
)
def test_a_file_that_was_made_of_an_object_gives_the_object_s_tensor(recipe, made, name):
    """Without the loss of JPEG: the steps that are skipped are those that made the file."""
    dataset = DATA_SETS[name]

    of_file = prepare(ImageInput(png(made(dataset))), spec(recipe)).tensor

    assert np.array_equal(of_file.numpy(), prepare(dataset, spec(recipe)).tensor.numpy())


# --- with the shared data: real radiographs
# -----------------------------------------------------------------------------


REAL = ("00000574_000", "00001524_000", "00000100_000")  # the last is RGBA


@pytest.mark.parametrize("recipe", RECIPES)
def test_nih_files_give_the_authors_tensors(test_data, recipe):
    for name in REAL:
        data = (test_data / "nih_png" / f"{name}.png").read_bytes()
        if recipe == "biovil_448" and name == REAL[-1]:
            continue  # its authors' range is that of all four channels
        found = difference(recipe, data)
        assert found is not None
        assert agrees(recipe, found), name


def test_all_nih_files_give_the_recorded_tensors(test_data):
    """The hashes of the reference model's input, of the files as they are."""
    with (test_data / "expected" / "mobilenetv3_int8_reference.csv").open() as lines:
        recorded = {
            Path(row["input"]).name: row["input_tensor_sha256"] for row in csv.DictReader(lines)
        }
    paths = sorted((test_data / "nih_png").glob("*.png"))
    assert len(paths) == 66
    for path in paths:
        grey = prepare(ImageInput(path.read_bytes()), spec("nih_pil_bicubic_224")).tensor[0]
        tensor = ((grey.numpy().astype(np.float32) / 255 - 0.485) / 0.229)[None, None]
        assert (
            hashlib.sha256(np.ascontiguousarray(tensor).tobytes()).hexdigest()
            == (recorded[path.name])
        )


@pytest.mark.parametrize("recipe", FROM_CHEXPERT)
def test_a_real_object_and_its_published_file_differ_by_the_loss_of_jpeg(test_data, recipe):
    """The file as CheXpert's authors made them: quality 95 after the histogram."""
    path = test_data / "dicom" / "chest" / "cr_mono1_10bit_fuji.dcm"
    with_jpeg = cv2.imencode(".jpg", _published(path), [cv2.IMWRITE_JPEG_QUALITY, 95])[1].tobytes()

    of_file = prepare(ImageInput(with_jpeg), spec(recipe)).tensor.double()
    of_object = prepare(path, spec(recipe)).tensor.double()

    assert 0 < float((of_file - of_object).abs().mean()) < 1.5


def _published(path):
    from pydicom import dcmread

    return chexpert_jpg(dcmread(path))
