"""Each recipe against the code that it comes from, written down here once more with scikit-image, Pillow and numpy alone."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from pydicom.dataset import Dataset
from skimage.transform import resize as skimage_resize

from hilum_preprocessing import InputSpec, NotAnalysable, Reason, decode, prepare_stored, read_file
from hilum_preprocessing.geometry import apply
from hilum_preprocessing.grayscale import level_table
from hilum_preprocessing.prepare import prepare
from tests.support.radiograph import radiograph, scene

Array = NDArray[Any]

SHAPES = [(512, 512), (601, 487), (487, 601), (224, 224), (150, 180), (2500, 2048)]
SCENES = [
    pytest.param(shape, bits, photometric, id=f"{shape[0]}x{shape[1]}-{bits}bit-{photometric[-1]}")
    for shape in SHAPES
    for bits, photometric in ((8, "MONOCHROME2"), (12, "MONOCHROME1"), (16, "MONOCHROME2"))
    if shape != (2500, 2048) or bits == 12
]


def stored_scene(shape: tuple[int, int], bits: int) -> Array:
    return scene(*shape, bits).astype(np.uint8 if bits == 8 else np.uint16)


def spec(name: str) -> InputSpec:
    return InputSpec.from_mapping({"recipe": name})


def torchxrayvision(stored: Array, bits: int, photometric: str) -> Array:
    """utils.read_xray_dcm, utils.normalize, datasets.XRayCenterCrop and datasets.XRayResizer(224) of torchxrayvision 1.5.7."""
    largest = 2**bits - 1
    picture = stored.astype(np.float64)
    if photometric == "MONOCHROME1":
        picture = largest - picture
    picture = (2 * (picture / largest) - 1.0) * 1024
    rows, columns = picture.shape
    side = min(rows, columns)
    top, left = rows // 2 - side // 2, columns // 2 - side // 2
    cropped = picture[top : top + side, left : left + side]
    return skimage_resize(cropped[None], (1, 224, 224), mode="constant", preserve_range=True)[0]


def eight_bits(stored: Array, bits: int, photometric: str) -> Image.Image:
    """The picture that an 8-bit recipe is given: the nominal range as 0..255."""
    largest = 2**bits - 1
    picture = largest - stored.astype(np.float64) if photometric == "MONOCHROME1" else stored.astype(np.float64)
    return Image.fromarray(np.rint(picture / largest * 255).astype(np.uint8))


def nih(stored: Array, bits: int, photometric: str) -> Array:
    return np.asarray(eight_bits(stored, bits, photometric).convert("L").resize((224, 224)))


def vit(stored: Array, bits: int, photometric: str) -> Array:
    """ViTImageProcessor: an RGB picture, resample 2."""
    return np.asarray(eight_bits(stored, bits, photometric).convert("RGB").resize((224, 224), Image.Resampling.BILINEAR))[..., 0]


@pytest.mark.parametrize(("shape", "bits", "photometric"), SCENES)
def test_torchxrayvision(shape, bits, photometric):
    stored = stored_scene(shape, bits)
    expected = torchxrayvision(stored, bits, photometric)
    given = spec("torchxrayvision_224")
    values = decode(radiograph(stored, bits, PhotometricInterpretation=photometric))
    table = level_table(values, given)
    levels = table.values[values.array.astype(int) - table.first].astype(np.float32)
    import torch

    before_fp16 = apply(torch.from_numpy(levels), given.geometry).numpy()
    assert np.abs(before_fp16 - expected).max() <= 0.01
    on_the_wire = prepare_stored(values, given)[0].numpy()
    assert np.abs(on_the_wire.astype(np.float64) - expected).max() <= 0.25 + 0.01, "fp16 has steps of 0.5 below 1024"


@pytest.mark.parametrize(("recipe", "reference"), [("nih_pil_bicubic_224", nih), ("vit_imagenet_half_224", vit)])
@pytest.mark.parametrize(("shape", "bits", "photometric"), SCENES)
def test_uint8_recipes(recipe: str, reference: Callable[..., Array], shape, bits, photometric):
    stored = stored_scene(shape, bits)
    expected = reference(stored, bits, photometric)
    found = prepare(radiograph(stored, bits, PhotometricInterpretation=photometric), spec(recipe)).tensor[0].numpy()
    difference = np.abs(found.astype(int) - expected)
    assert difference.max() <= 1
    assert (difference == 0).mean() >= 0.9
    if shape[0] <= shape[1]:
        # Pillow 13 does rows first where the height shrinks much more; elsewhere every bit is Pillow's.
        assert difference.max() == 0


def test_the_vit_recipe_shows_what_the_object_s_window_shows():
    """PS3.3 C.11.2.1.2.1 between the stored values and Pillow."""
    stored = scene(512, 480)
    windowed = np.clip((stored.astype(np.float64) - 2199.5) / 1499 + 0.5, 0, 1)
    expected = np.asarray(Image.fromarray(np.rint(windowed * 255).astype(np.uint8)).resize((224, 224), Image.Resampling.BILINEAR))
    dataset = radiograph(stored, 12, WindowCenter="2200", WindowWidth="1500")
    found = prepare(dataset, spec("vit_imagenet_half_224")).tensor[0].numpy()
    assert np.abs(found.astype(int) - expected).max() <= 1
    assert not np.array_equal(found, prepare(radiograph(stored, 12), spec("vit_imagenet_half_224")).tensor[0].numpy())


def test_a_ramp_keeps_its_mean():
    """Trap 29: a wrong rounding is a bias of half a level, which no maximum shows."""
    stored = np.linspace(0, 4095, 512 * 512).round().astype(np.uint16).reshape(512, 512)
    for recipe in ("nih_pil_bicubic_224", "vit_imagenet_half_224"):
        found = prepare(radiograph(stored, 12), spec(recipe)).tensor.double().mean()
        assert abs(float(found) - 127.5) < 0.1


# --- with the shared data: real radiographs -----------------------------------------------------------------------------


def recorded_hashes(test_data: Path) -> dict[str, str]:
    with (test_data / "expected" / "mobilenetv3_int8_reference.csv").open() as lines:
        return {Path(row["input"]).name: row["input_tensor_sha256"] for row in csv.DictReader(lines)}


def model_input(grey: Array) -> Array:
    """(1, 1, 224, 224) float32, by the reference model's own words."""
    return ((np.asarray(grey, np.float32) / 255 - 0.485) / 0.229)[None, None]


def sha256(tensor: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(tensor).tobytes()).hexdigest()


def check_against_pillow(dataset: Dataset, image: Image.Image, recorded: str) -> None:
    expected = np.asarray(image.convert("L").resize((224, 224)))
    assert sha256(model_input(expected)) == recorded, "Pillow here is not the Pillow of the reference"
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


@pytest.mark.parametrize("name", ["rsna_pa_mono2_jpeg", "rsna_pa_fake_mono1_jpeg", "rsna_uao_normal2", "rsna_uao_viral2"])
def test_rsna_files_give_the_recorded_tensors(test_data, name):
    """The lying twin too: its header says MONOCHROME1, so it is read as a negative, as the reference did."""
    dataset = read_file(test_data / "dicom" / "chest" / f"{name}.dcm")
    array = dataset.pixel_array
    image = Image.fromarray(255 - array if dataset.PhotometricInterpretation == "MONOCHROME1" else array)
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
    outcomes = {path.stem: outcome(path, given) for path in sorted((test_data / "dicom").rglob("*.dcm"))}
    assert len(outcomes) == 53
    assert {name for name, ended in outcomes.items() if ended == "analysed"} == {
        *("rsna_pa_mono2_jpeg", "rsna_pa_fake_mono1_jpeg", "rsna_uao_normal2", "rsna_uao_viral2"),
        "cr_mono1_10bit_fuji",
    }
    assert {name: outcomes[name] for name in EXPECTED} == EXPECTED
    rest = {name: ended for name, ended in outcomes.items() if name not in EXPECTED and ended != "analysed"}
    assert set(rest.values()) == {Reason.WRONG_MODALITY.value}


EXPECTED = {
    "dx_thorax_of_a_dog_mono1_inverse": "lateral_not_supported",
    "cr_chest_ja_ir87": "no_pixel_data",
    "cr_chest_ja_explicit_ir6": "no_pixel_data",
    "no_meta": "corrupt_header",
    "deflated_image": "transfer_syntax_not_supported",
    **dict.fromkeys(["RG3_J2KI", "RG3_J2KR", "RG3_JLSL", "RG3_JLSN", "RG3_JPLL", "RG3_JPLY", "RG3_RLE", "RG3_UNC"], "not_chest"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_stored_values_are_the_recorded_ones_or_there_is_a_reason(test_data):
    """Where a syntax is decoded here, the array is pydicom's to the bit; elsewhere the reason says why not."""
    decoded, reasons = set(), {}
    for entry in json.loads((test_data / "manifest.json").read_text())["dicom"]:
        name = Path(entry["file"]).stem
        try:
            array = decode(read_file(test_data / entry["file"])).array
        except NotAnalysable as ended:
            reasons[name] = ended.reason.value
            continue
        little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<")))
        assert hashlib.sha256(little.tobytes()).hexdigest() == entry["pydicom"]["decoded"]["sha256_le"], name
        decoded.add(name)
    assert {"rsna_pa_mono2_jpeg", "cr_mono1_10bit_fuji", "RG3_UNC", "modality_lut_signed12", "overlay_2windows_mr", "ct_small"} <= decoded
    assert len(decoded) == 18
    assert {name: reasons[name] for name in DECODE_REASONS} == DECODE_REASONS


DECODE_REASONS = {
    "truncated_pixeldata": "truncated_pixel_data",
    "bad_vr": "corrupt_header",
    "no_meta": "corrupt_header",
    "meta_missing_tsyntax": "corrupt_header",
    "nested_private_sq": "corrupt_header",
    "sr_report": "no_pixel_data",
    "RG3_JPLY": "transfer_syntax_not_supported",
    "RG3_J2KR": "transfer_syntax_not_supported",
    "bigendian_mr_signed": "transfer_syntax_not_supported",
    "rgb_secondary_capture": "not_monochrome",
    "palette_rle_us": "not_monochrome",
    "multiframe10_enhanced_mr": "multi_frame",
    "seg_1bit": "unsupported_pixel_format",
    "rtdose_32bit": "multi_frame",
}
