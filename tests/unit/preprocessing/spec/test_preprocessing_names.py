"""The names of `hilum_preprocessing`.

Functions that share their module's name, and what `prepare` takes.
"""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pydicom import dcmread

from hilum_preprocessing import InputSpec, NotAnalysable, Reason, prepare, read_file
from testing.phantoms.phantom import make_instance, save

SPEC = InputSpec.from_mapping({"recipe": "torchxrayvision_224"})


@pytest.fixture
def file(tmp_path) -> Path:
    return save(make_instance(1, "PA", rows=300, columns=256), tmp_path / "pa.dcm")


BEFORE = (
    "",
    "import hilum_preprocessing.{name}",
    "from hilum_preprocessing.{name} import {name}",
    "import hilum_preprocessing.{name} as another",
    "from hilum_preprocessing.batch import prepare_batch",
    "import importlib; importlib.import_module('hilum_preprocessing.{name}')",
    "from hilum_preprocessing import *",
)
LOOK = """
import inspect, sys
from hilum_preprocessing import {name}
assert inspect.isfunction({name}), {name}
from hilum_preprocessing.{name} import {name} as of_module
assert of_module is {name}
import hilum_preprocessing
assert hilum_preprocessing.{name} is {name}
assert inspect.ismodule(sys.modules['hilum_preprocessing.{name}'])
"""
# What takes the time is imported once; each program then starts in a process of its own.
EACH_FORKED = """
import os, sys, torch, pydicom, imagecodecs
for program in {programs!r}:
    if (child := os.fork()) == 0:
        exec(program, {{}})
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(program)
"""


def test_the_package_gives_the_function_whatever_was_imported_before():
    programs = [
        (before + LOOK).format(name=name) for name in ("prepare", "decode") for before in BEFORE
    ]
    done = subprocess.run(
        [sys.executable, "-c", EACH_FORKED.format(programs=programs)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "given", [Path, str, dcmread, read_file], ids=["Path", "str", "dcmread", "read_file"]
)
def test_a_path_and_its_data_set_give_the_same(file, given):
    wanted = prepare(read_file(file), SPEC)
    found = prepare(given(file), SPEC)
    assert torch.equal(found.tensor, wanted.tensor)
    assert (found.view, found.flags) == (wanted.view, wanted.flags)


def test_a_path_beside_the_current_folder_is_taken(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    assert prepare(file.name, SPEC).view == "PA"


@pytest.mark.parametrize(
    ("name", "kind"), [("absent.dcm", FileNotFoundError), ("", IsADirectoryError)]
)
def test_a_path_that_cannot_be_opened_is_the_systems_own_error(tmp_path, name, kind):
    with pytest.raises(kind):
        prepare(tmp_path / name, SPEC)


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"\0" * 200, b"\x89PNG\r\n\x1a\n" + b"\0" * 300]
)
def test_a_file_that_is_not_dicom_is_not_analysable(tmp_path, content):
    file = tmp_path / "other"
    file.write_bytes(content)
    with pytest.raises(NotAnalysable) as ended:
        prepare(file, SPEC)
    assert ended.value.reason is Reason.CORRUPT_HEADER


@pytest.mark.parametrize(
    "image",
    [0, None, b"pa.dcm", io.BytesIO(b"DICM"), np.zeros((8, 8)), ["pa.dcm"]],
    ids=lambda image: type(image).__name__,
)
def test_anything_else_is_a_type_error_that_says_what_is_wanted(image):
    with pytest.raises(
        TypeError, match="a pydicom Dataset, the path of a DICOM file or an ImageInput, not "
    ):
        prepare(image, SPEC)
