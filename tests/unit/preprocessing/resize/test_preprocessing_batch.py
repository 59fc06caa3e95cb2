"""Batches: an image's tensor does not know who stands beside it."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from hilum_preprocessing import InputSpec, NotAnalysable, Reason, StoredValues, prepare_stored
from hilum_preprocessing.batch import prepare_batch
from tests.support.objects.radiograph import scene

ROOT = Path(__file__).parents[4]

NAMES = ("torchxrayvision_224", "vit_imagenet_half_224", "chexzero_224", "chexpert_320")
SPECS = {name: InputSpec.from_mapping({"recipe": name}) for name in NAMES}


def picture(rows: int, columns: int, seed: int, **facts: object) -> StoredValues:
    return StoredValues(
        scene(rows, columns, seed=seed),
        12,
        **{"is_signed": False, "is_monochrome1": False, **facts},
    )


PICTURES = [
    picture(300, 260, 0),
    picture(260, 300, 1, is_monochrome1=True),
    picture(700, 90, 2),
    StoredValues(scene(128, 128, 8, 3).astype(np.uint8), 8, is_signed=False, is_monochrome1=False),
    StoredValues(
        (scene(301, 257, 12, 4).astype(np.int32) - 2048).astype(np.int16),
        12,
        is_signed=True,
        is_monochrome1=False,
    ),
]


@pytest.mark.parametrize("name", NAMES)
def test_alone_in_any_position_with_any_neighbours_it_is_the_same_to_the_bit(name):
    """Trap 37."""
    alone = [prepare_stored(item, SPECS[name]) for item in PICTURES]
    for order in itertools.islice(itertools.permutations(range(len(PICTURES))), 0, 120, 23):
        batch = prepare_batch([PICTURES[index] for index in order], SPECS[name])
        assert batch.shape == (5, *SPECS[name].wire_shape)
        assert all(torch.equal(batch[place], alone[index]) for place, index in enumerate(order))
    assert torch.equal(prepare_batch(PICTURES[:1], SPECS[name])[0], alone[0])


WITHOUT_LIBRARY = """
import pathlib, sys
from hilum_preprocessing.resize import library
library.PATH = pathlib.Path("/nowhere/resize.so")
from tests.unit.preprocessing.resize.test_preprocessing_batch import require_clean_memory
require_clean_memory(sys.argv[1])
print("clean")
"""


def require_clean_memory(name: str) -> None:
    """Fails where torch's products see what the thread's working memory held before."""
    from hilum_preprocessing.resize.scratch import _OWN

    expected = prepare_batch(PICTURES, SPECS[name])
    assert _OWN.kept, "it was used"
    for kept in _OWN.kept.values():
        kept.fill_(float("nan") if kept.is_floating_point() else 2**31 - 1)
    assert torch.equal(prepare_batch(PICTURES, SPECS[name]), expected)


@pytest.mark.parametrize("name", NAMES)
def test_what_working_memory_held_before_does_not_matter(name):
    """Trap 34: 0 times infinity is no number.

    In a process without the compiled resize, which keeps no memory.
    """
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIBRARY, name],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert ran.stdout == "clean\n", ran.stderr[-2000:]


@pytest.mark.parametrize("name", NAMES)
def test_what_fresh_memory_holds_does_not_matter(name, tmp_path):
    """The compiled resize takes fresh memory.

    Here the C library fills all of it with 0xFE, and memory that is given back with 0x01.
    """
    there = (
        "from tests.unit.preprocessing.resize.test_preprocessing_batch import *; torch.save(prepare_batch(PICTURES,"
        " SPECS[sys.argv[1]]), sys.argv[2])"
    )
    filled = {**os.environ, "MALLOC_PERTURB_": "1"}
    subprocess.run(
        [sys.executable, "-c", there, name, tmp_path / "made.pt"], check=True, cwd=ROOT, env=filled
    )
    assert torch.equal(torch.load(tmp_path / "made.pt"), prepare_batch(PICTURES, SPECS[name]))


def test_values_beside_the_visible_part_do_not_matter():
    """A crop is a view of a larger picture, which a slot of shared memory may hold beside anything."""
    given = SPECS["torchxrayvision_224"]
    array = scene(300, 260)
    surrounded = np.full((400, 500), 65535, np.uint16)
    surrounded[50:350, 100:360] = array
    view = StoredValues(surrounded[50:350, 100:360], 12, is_signed=False, is_monochrome1=False)
    assert torch.equal(prepare_stored(view, given), prepare_stored(picture(300, 260, 0), given))


def test_threads_do_not_share_working_memory():
    from concurrent.futures import ThreadPoolExecutor

    given = SPECS["torchxrayvision_224"]
    alone = [prepare_stored(item, given) for item in PICTURES]
    with ThreadPoolExecutor(4) as pool:
        for index, found in enumerate(
            pool.map(lambda index: prepare_stored(PICTURES[index % 5], given), range(60))
        ):
            assert torch.equal(found, alone[index % 5])


def test_one_that_cannot_be_analysed_ends_the_batch():
    flat = StoredValues(np.full((64, 64), 7, np.uint16), 12, is_signed=False, is_monochrome1=False)
    with pytest.raises(NotAnalysable) as ended:
        prepare_batch([PICTURES[0], flat], SPECS["torchxrayvision_224"])
    assert ended.value.reason is Reason.CONSTANT_IMAGE
