"""Where a picture file enters a specification, and that nothing else enters there."""

from __future__ import annotations

import numpy as np
import pytest

from hilum_preprocessing import (
    RECIPES,
    ImageInput,
    InputSpec,
    NotAnalysable,
    Reason,
    SpecError,
    decode,
    prepare,
)
from hilum_preprocessing.levels.picture_entry import picture_spec
from hilum_preprocessing.pictures.mark import is_picture
from tests.support.objects.picture_files import jpeg_file, png
from tests.support.objects.radiograph import scene, spec

PICTURE = scene(300, 260, 8).astype(np.uint8)
FILE = ImageInput(png(PICTURE))
# The published files of CheXpert and MIMIC-CXR-JPG are equalised; jfhealthcare does it once more.
SKIPPED = {
    "chexpert_320": 3,
    "mimic_cxr_jpg_320": 3,
    "jfhealthcare_512": 3,
    "chexzero_320": 3,
    "chexzero_224": 3,
}


def operations(given: InputSpec, bits: int = 8) -> list[str]:
    return [op.op for op in picture_spec(given, bits).intensity]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_skips_what_made_its_training_files(recipe):
    whole = [op.op for op in spec(recipe).intensity]
    skipped = SKIPPED.get(recipe, 0)
    expected = ["maxval", "to_uint8", *whole[skipped:]] if skipped else whole
    assert operations(spec(recipe)) == expected


@pytest.mark.parametrize("recipe", RECIPES)
def test_no_window_of_a_recipe_applies(recipe):
    assert picture_spec(spec(recipe), 8).source.voi == "none"


def test_the_end_of_jfhealthcare_s_own_loader_stays():
    assert operations(spec("jfhealthcare_512"))[-1] == "equalize_hist"


def test_a_specification_says_where_files_enter():
    given = spec("biovil_448")
    assert operations(given) == ["minmax", "to_uint8"]
    fields = {**given.to_mapping(), "picture_entry": 2}
    assert operations(InputSpec.from_mapping(fields)) == ["maxval", "to_uint8"]


@pytest.mark.parametrize("entry", [1, 3, -1, "first", True])
def test_an_entry_that_is_not_behind_whole_gray_levels_is_refused(entry):
    fields = {**spec("biovil_448").to_mapping(), "picture_entry": entry}
    with pytest.raises(SpecError, match="picture_entry"):
        InputSpec.from_mapping(fields)


def test_the_field_changes_no_version_until_it_is_used():
    fields = spec("biovil_448").to_mapping()
    assert fields.pop("picture_entry") == "auto"
    assert InputSpec.from_mapping(fields).version == spec("biovil_448").version
    other = InputSpec.from_mapping({**fields, "picture_entry": 2})
    assert other.version != spec("biovil_448").version


@pytest.mark.parametrize(
    "first", [{"op": "maxval", "of": 4095.0}, {"op": "clamp", "low": -1000.0, "high": 1000.0}]
)
def test_operations_on_the_units_of_dicom_values_are_no_guess(first):
    given = spec(
        "torchxrayvision_224",
        intensity=[first, {"op": "scale", "multiply": 0.5}, {"op": "clamp", "low": 0, "high": 1}],
    )
    with pytest.raises(NotAnalysable) as refused:
        prepare(FILE, given)
    assert refused.value.reason is Reason.UNSUPPORTED_PIXEL_FORMAT
    assert "input.picture_entry" in refused.value.detail


@pytest.mark.parametrize(
    "source",
    [
        {"voi": "fixed", "fixed_window": {"centre": 30.0, "width": 10.0}},
        {"voi": "first_window", "missing_voi": "reject"},
        {"voi": "first_window", "missing_voi": "minmax"},
        {"voi": "explanation", "window_explanation": "NORMAL"},
        {"monochrome1": "reject"},
        {"padding": "replace_min"},
    ],
)
def test_no_choice_of_a_source_changes_a_file(source):
    given = spec("vit_imagenet_224", source=source)
    found = prepare(FILE, given).tensor
    assert np.array_equal(found.numpy(), prepare(FILE, spec("vit_imagenet_224")).tensor.numpy())


def test_statistics_after_the_resize_are_taken_of_the_resized_file():
    given = spec(
        "torchxrayvision_224",
        order="resize_first",
        source={"padding": "keep", "voi": "first_window", "missing_voi": "reject"},
        intensity=[{"op": "minmax"}, {"op": "scale", "multiply": 2048, "add": -1024}],
    )
    found = prepare(FILE, given).tensor
    assert float(found.min()) == -1024
    assert float(found.max()) == 1024


# --- data sets that are no picture files
# -----------------------------------------------------------------------------


def marked():
    dataset = FILE.data_set()
    assert is_picture(dataset)
    return dataset


CHANGES = {
    "SecondaryCaptureDeviceManufacturer": "Vendor",
    "SecondaryCaptureDeviceManufacturerModelName": "Frame grabber",
    "ConversionType": "SI",
    "PhotometricInterpretation": "MONOCHROME1",
    "SOPClassUID": "1.2.840.10008.5.1.4.1.1.1",
}


@pytest.mark.parametrize("keyword", CHANGES)
def test_a_mark_that_is_changed_or_missing_makes_an_ordinary_object(keyword):
    changed = marked()
    setattr(changed, keyword, CHANGES[keyword])
    missing = marked()
    delattr(missing, keyword)

    assert not is_picture(changed)
    assert not is_picture(missing)
    assert not decode(changed).is_picture


def test_an_ordinary_secondary_capture_is_equalised_as_before():
    ordinary = marked()
    del ordinary.SecondaryCaptureDeviceManufacturerModelName
    ordinary.Modality = "CR"

    found = prepare(ordinary, spec("chexpert_320"))

    assert "picture_file" not in found.flags
    assert not np.array_equal(
        found.tensor.numpy(), prepare(FILE, spec("chexpert_320")).tensor.numpy()
    )


def test_an_ordinary_secondary_capture_without_a_modality_is_refused_as_before():
    ordinary = marked()
    del ordinary.SecondaryCaptureDeviceManufacturer
    with pytest.raises(NotAnalysable) as refused:
        prepare(ordinary, spec())
    assert refused.value.reason is Reason.WRONG_MODALITY


def test_a_marked_object_keeps_no_window_padding_or_lut():
    dataset = marked()
    dataset.WindowCenter = "10"
    dataset.WindowWidth = "4"
    dataset.RescaleSlope = "-1"
    dataset.RescaleIntercept = "255"
    dataset.PixelPaddingValue = 0

    found = prepare(dataset, spec("vit_imagenet_224")).tensor

    assert np.array_equal(found.numpy(), prepare(FILE, spec("vit_imagenet_224")).tensor.numpy())


# --- the words of a result
# -----------------------------------------------------------------------------


def test_a_file_says_what_it_does_not_state():
    found = prepare(FILE, spec())
    assert found.view == "UNKNOWN"
    assert found.flags == ("view_unknown", "body_part_unknown", "picture_file")


def test_the_view_of_a_list_is_the_view():
    found = prepare(ImageInput(FILE.data, "PA"), spec())
    assert found.view == "PA"
    assert "view_unknown" not in found.flags


@pytest.mark.parametrize("view", ["LL", "LATERAL", "RL"])
def test_a_lateral_file_is_refused_by_a_frontal_release(view):
    with pytest.raises(NotAnalysable) as refused:
        prepare(ImageInput(FILE.data, view), spec())
    assert refused.value.reason is Reason.LATERAL_NOT_SUPPORTED


def test_a_jpeg_file_says_that_detail_is_lost():
    assert "lossy_compressed" in prepare(ImageInput(jpeg_file(PICTURE)), spec()).flags


def test_a_file_of_one_level_is_no_picture():
    with pytest.raises(NotAnalysable) as refused:
        prepare(ImageInput(png(np.full((64, 64), 7, np.uint8))), spec())
    assert refused.value.reason is Reason.CONSTANT_IMAGE
