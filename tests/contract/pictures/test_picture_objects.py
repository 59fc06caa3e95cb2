"""Objects of picture files as other programs read them: dciodvfy of dicom3tools, and DCMTK."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from pydicom import dcmread

from hilum.retrieve.files.picture_object import picture_object
from hilum_preprocessing import ImageInput, decode
from tests.support.objects.picture_files import jpeg_file, png
from tests.support.objects.radiograph import scene
from tests.support.peers.peers import require_program

PICTURE = scene(61, 47, 8).astype(np.uint8)
FILES = {
    "png 8": png(PICTURE),
    "png 16": png(scene(48, 61, 16)),
    "jpeg baseline": jpeg_file(PICTURE),
    "jpeg progressive": jpeg_file(PICTURE, progressive=True),
}
UIDS = ("1.2.3", "1.2.3.4", "1.2.3.4.5")
KNOWN = {"view": "PA", "study_date": "20190102", "patient_id": "subject 7"}


def saved(folder: Path, name: str, **values: str) -> Path:
    path = folder / "picture.dcm"
    path.write_bytes(picture_object(FILES[name], *UIDS, **values))
    return path


def ran(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("values", [KNOWN, {}], ids=["all known", "nothing known"])
@pytest.mark.parametrize("name", FILES)
def test_dciodvfy_finds_no_error(tmp_path, name, values):
    program = require_program("dciodvfy", "dicom3tools")

    said = ran(program, str(saved(tmp_path, name, **values)))

    assert "SCImage" in said.splitlines()
    assert "Error" not in said


@pytest.mark.parametrize("name", FILES)
def test_dcmtk_reads_the_pixels_of_the_file(tmp_path, name):
    program = require_program("dcmdjpeg", "dcmtk")
    path = saved(tmp_path, name)
    native = tmp_path / "native.dcm"

    said = ran(program, str(path), str(native))

    assert native.exists(), said
    assert np.array_equal(
        dcmread(native).pixel_array, decode(ImageInput(FILES[name]).data_set()).array
    )
