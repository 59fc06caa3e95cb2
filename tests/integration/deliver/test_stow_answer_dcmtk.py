"""Answers of STOW-RS as DCMTK writes DICOM JSON and Native DICOM Model XML."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pydicom.dataset import Dataset
from pydicom.uid import ExplicitVRLittleEndian

from hilum.deliver.stow_answer import Statement, statement_on
from tests.support.peers.peers import require_program

FORMS = {
    "application/dicom+json": ("dcm2json",),
    "application/dicom+xml": ("dcm2xml", "--native-format", "+Xn"),
}


def written(folder: Path, media_type: str) -> bytes:
    """An answer with an instance that is stored with a warning, and one that failed."""
    stored = Dataset()
    stored.ReferencedSOPInstanceUID = "1.2.3.4"
    stored.WarningReason = 0xB007
    failed = Dataset()
    failed.ReferencedSOPInstanceUID = "1.2.3.5"
    failed.FailureReason = 0xA900
    answer = Dataset()
    answer.RetrieveURL = "http://127.0.0.1/studies/1.2"
    answer.ReferencedSOPSequence = [stored]
    answer.FailedSOPSequence = [failed]
    answer.ensure_file_meta()
    answer.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    file = folder / "answer.dcm"
    answer.save_as(file)
    program, *options = FORMS[media_type]
    command = [require_program(program, "dcmtk"), *options, str(file)]
    return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout


@pytest.mark.parametrize("media_type", FORMS)
def test_both_forms_are_understood(tmp_path: Path, media_type: str) -> None:
    body = written(tmp_path, media_type)

    assert statement_on("1.2.3.4", media_type, body) == Statement(
        is_stored=True, warning=0xB007, others=1
    )
    assert statement_on("1.2.3.5", media_type, body) == Statement(
        is_failed=True, failure=0xA900, others=1
    )
    assert statement_on("1.2.3", media_type, body) == Statement(others=2)
