"""The phantom feeds most other tests: it must be valid, deterministic and what it says it is."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pydicom
import pytest
from pydicom.uid import (
    ComputedRadiographyImageStorage,
    DigitalXRayImageStorageForPresentation,
    DigitalXRayImageStorageForProcessing,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEGBaseline8Bit,
    SecondaryCaptureImageStorage,
)

from testing.phantoms.phantom import make_instance, make_study, save

SMALL = {"rows": 120, "columns": 99}
KINDS = [
    ("DX", "FOR PRESENTATION", DigitalXRayImageStorageForPresentation),
    ("DX", "FOR PROCESSING", DigitalXRayImageStorageForProcessing),
    ("CR", "FOR PRESENTATION", ComputedRadiographyImageStorage),
    ("SC", "FOR PRESENTATION", SecondaryCaptureImageStorage),
]
SYNTAXES = [ExplicitVRLittleEndian, ImplicitVRLittleEndian, JPEGBaseline8Bit]


@pytest.mark.parametrize(("modality", "intent", "sop_class"), KINDS)
@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
def test_every_kind_is_valid_dicom_and_decodes(
    modality, intent, sop_class, syntax, photometric, tmp_path: Path
):
    for dataset in make_study(
        5,
        modality,
        presentation_intent=intent,
        photometric=photometric,
        transfer_syntax_uid=syntax,
        **SMALL,
    ):
        path = save(dataset, tmp_path / "image.dcm")
        read = pydicom.dcmread(path)
        assert read.SOPClassUID == sop_class
        assert read.file_meta.TransferSyntaxUID == syntax
        assert read.pixel_array.shape == (120, 99)
        assert read.pixel_array.max() < 2**read.BitsStored
        assert _dciodvfy_errors(path) == []


def _dciodvfy_errors(path: Path) -> list[str]:
    if shutil.which("dciodvfy") is None:
        return []
    words = subprocess.run(["dciodvfy", "-new", path], capture_output=True, text=True, check=False)
    return [line for line in (words.stdout + words.stderr).splitlines() if line.startswith("Error")]


def test_monochrome1_shows_the_same_picture():
    white_high = make_instance(photometric="MONOCHROME2", **SMALL).pixel_array.astype(int)
    white_low = make_instance(photometric="MONOCHROME1", **SMALL).pixel_array.astype(int)
    assert np.abs(4095 - white_low - white_high).max() <= 1


def test_same_seed_same_bytes_other_seed_other_patient():
    first, again, other = (
        make_instance(7, **SMALL),
        make_instance(7, **SMALL),
        make_instance(8, **SMALL),
    )
    assert _bytes(first) == _bytes(again)
    assert first.StudyInstanceUID != other.StudyInstanceUID
    assert first.PatientID != other.PatientID
    assert first.PixelData != other.PixelData


def _bytes(dataset: pydicom.Dataset) -> bytes:
    buffer = io.BytesIO()
    dataset.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


def test_a_study_has_one_study_uid_and_distinct_instances():
    pa, lateral = make_study(3, **SMALL)
    assert pa.StudyInstanceUID == lateral.StudyInstanceUID
    assert (
        len(
            {
                pa.SOPInstanceUID,
                lateral.SOPInstanceUID,
                pa.SeriesInstanceUID,
                lateral.SeriesInstanceUID,
            }
        )
        == 4
    )
    assert (pa.ViewPosition, lateral.ViewPosition) == ("PA", "LL")


def test_transcoding_keeps_the_uid():
    native, jpeg = (
        make_instance(2, **SMALL),
        make_instance(2, transfer_syntax_uid=JPEGBaseline8Bit, **SMALL),
    )
    assert native.SOPInstanceUID == jpeg.SOPInstanceUID
    assert jpeg.LossyImageCompression == "01"


def test_overrides_come_last_and_none_removes():
    dataset = make_instance(
        overrides={"BodyPartExamined": "HAND", "WindowCenter": None, "PatientComments": None},
        **SMALL,
    )
    assert dataset.BodyPartExamined == "HAND"
    assert "WindowCenter" not in dataset


def test_the_picture_is_a_chest():
    """Lungs dark, heart and abdomen bright, border black, heart to the patient's left."""
    image = make_instance(rows=400, columns=400).pixel_array.astype(float) / 4095
    right_lung, left_lung = image[140:200, 90:150].mean(), image[140:200, 260:310].mean()
    heart, mirrored = image[230:280, 230:280].mean(), image[230:280, 110:150].mean()
    assert max(right_lung, left_lung) < 0.4 < image[350:380, 100:300].mean()
    assert heart > mirrored + 0.2
    assert image[:4].max() == image[-4:].max() == image[:, :4].max() == image[:, -4:].max() == 0
