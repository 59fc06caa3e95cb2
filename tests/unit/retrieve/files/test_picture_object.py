"""A PNG or JPEG file as an object of the archive."""

from __future__ import annotations

import io

import numpy as np
import pytest
from pydicom import dcmread
from pydicom.encaps import generate_frames
from pydicom.uid import ExplicitVRLittleEndian, JPEGBaseline8Bit

from hilum.retrieve.files.picture_object import PictureRefused, picture_object
from hilum_preprocessing import ImageInput, InputSpec, prepare
from tests.support.objects.picture_files import jpeg_file, png
from tests.support.objects.radiograph import scene

PICTURE = scene(61, 47, 8).astype(np.uint8)
DEEP = scene(48, 61, 16)
UIDS = ("1.2.3", "1.2.3.4", "1.2.3.4.5")


def made(data: bytes, **values: str):
    return dcmread(io.BytesIO(picture_object(data, *UIDS, **values)))


def refusal(data: bytes, *uids: str, **values) -> str:
    with pytest.raises(PictureRefused) as refused:
        picture_object(data, *(uids or UIDS), **values)
    assert str(refused.value) == refused.value.detail
    return refused.value.detail


def test_a_png_file_is_stored_uncompressed_with_its_values():
    for array in (PICTURE, PICTURE[:, :45], DEEP):
        dataset = made(png(array))
        assert dataset.file_meta.TransferSyntaxUID == ExplicitVRLittleEndian
        assert dataset.BitsStored == dataset.BitsAllocated == 8 * array.itemsize
        assert np.array_equal(dataset.pixel_array, array)
        assert "LossyImageCompression" not in dataset


def test_jpeg_baseline_of_one_component_stays_as_it_is():
    data = jpeg_file(PICTURE)
    dataset = made(data)
    assert dataset.file_meta.TransferSyntaxUID == JPEGBaseline8Bit
    (frame,) = generate_frames(dataset.PixelData, number_of_frames=1)
    assert frame.rstrip(b"\0") == data.rstrip(b"\0")


@pytest.mark.parametrize("options", [{"progressive": True}, {"mode": "RGB"}])
def test_other_jpeg_files_are_stored_uncompressed(options):
    data = jpeg_file(PICTURE, **options)
    dataset = made(data)
    assert dataset.file_meta.TransferSyntaxUID == ExplicitVRLittleEndian
    assert np.array_equal(dataset.pixel_array, made(jpeg_file(PICTURE)).pixel_array)


def test_a_jpeg_file_says_how_far_it_was_compressed():
    data = jpeg_file(PICTURE)
    dataset = made(data)
    assert dataset.LossyImageCompression == "01"
    assert dataset.LossyImageCompressionMethod == "ISO_10918_1"
    assert float(dataset.LossyImageCompressionRatio) == pytest.approx(
        PICTURE.size / len(data), abs=0.01
    )


def test_the_object_is_a_secondary_capture_that_names_what_is_known():
    dataset = made(png(PICTURE), view="pa", study_date="20190102", patient_id="Ärzte 7")
    assert dataset.SOPClassUID.name == "Secondary Capture Image Storage"
    assert (dataset.StudyInstanceUID, dataset.SeriesInstanceUID, dataset.SOPInstanceUID) == UIDS
    assert dataset.file_meta.MediaStorageSOPInstanceUID == UIDS[2]
    assert (dataset.ViewPosition, dataset.StudyDate) == ("PA", "20190102")
    assert dataset.PatientID == "Ärzte 7"
    assert dataset.DerivationDescription.startswith("PNG file, pixels unchanged")


def test_what_is_not_known_is_empty_or_absent():
    dataset = made(png(PICTURE))
    for keyword in ("StudyDate", "PatientID", "PatientName", "AccessionNumber", "Manufacturer"):
        assert not dataset[keyword].value
    for keyword in ("ViewPosition", "BodyPartExamined", "WindowCenter", "PixelSpacing"):
        assert keyword not in dataset
    assert dataset.Modality == "OT"


@pytest.mark.parametrize("data", [png(PICTURE), jpeg_file(PICTURE)], ids=["PNG", "JPEG"])
def test_the_same_arguments_give_the_same_bytes(data):
    assert picture_object(data, *UIDS, view="AP") == picture_object(data, *UIDS, view="AP")


def test_the_object_is_read_as_the_file(tmp_path):
    path = tmp_path / "picture.dcm"
    given = InputSpec.from_mapping({"recipe": "chexpert_320"})
    for data in (png(PICTURE), jpeg_file(PICTURE)):
        path.write_bytes(picture_object(data, *UIDS, view="AP"))
        of_object = prepare(path, given)
        of_file = prepare(ImageInput(data, "AP"), given)
        assert np.array_equal(of_object.tensor.numpy(), of_file.tensor.numpy())
        assert (of_object.view, of_object.flags) == (of_file.view, of_file.flags)


# --- what is refused
# -----------------------------------------------------------------------------


def test_a_file_that_is_no_picture_is_refused():
    assert refusal(b"subject,path\n") == "undecodable: the file is neither PNG nor JPEG"


def test_damage_of_a_codestream_that_is_kept_is_refused():
    data = jpeg_file(PICTURE)
    cut = data[: len(data) // 2] + b"\xff\xd9"
    assert refusal(cut).split(":")[0] in ("undecodable", "truncated_pixel_data")


def test_more_pixels_than_the_limit_are_refused():
    assert refusal(png(PICTURE), maximum_pixels=100) == "too_large: 61 x 47 pixels, limit 100"


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("uid", ["", "1.2.x", "1.02", "1." + "2" * 64])
def test_a_text_that_is_no_uid_is_refused(at, uid):
    uids = [*UIDS]
    uids[at] = uid
    assert "is no UID" in refusal(png(PICTURE), *uids)


@pytest.mark.parametrize("day", ["2019-01-02", "190102", "20191301", "20190132", "20190102 "])
def test_a_study_date_of_another_form_is_refused(day):
    assert "YYYYMMDD" in refusal(png(PICTURE), study_date=day)


@pytest.mark.parametrize("patient_id", ["a\\b", "a\nb", "x" * 65, " a", "a "])
def test_a_patient_id_that_its_attribute_cannot_hold_is_refused_without_it(patient_id):
    detail = refusal(png(PICTURE), patient_id=patient_id)
    assert "patient id" in detail
    assert patient_id not in detail


@pytest.mark.parametrize("view", ["AP/PA", "p.a.", "POSTEROANTERIOR VIEW", "后前位"])
def test_a_view_that_is_no_code_is_refused_with_the_words_to_write(view):
    assert "write PA, AP, LL or RL" in refusal(png(PICTURE), view=view)


@pytest.mark.parametrize(
    ("view", "read"),
    [
        ("", "UNKNOWN"),
        ("pa ", "PA"),
        ("AP SUPINE", "AP"),
        ("Frontal", "UNKNOWN"),
        ("xyz", "UNKNOWN"),
    ],
)
def test_views_of_lists_are_read_as_those_of_objects(tmp_path, view, read):
    path = tmp_path / "picture.dcm"
    path.write_bytes(picture_object(png(PICTURE), *UIDS, view=view))
    given = InputSpec.from_mapping({"recipe": "torchxrayvision_224"})
    assert prepare(path, given).view == read
