"""What a server asks when it loads a release: are the tensors here those that were recorded?"""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from hilum_preprocessing import RECIPES, InputSpec
from hilum_preprocessing.self_check import known_pictures, known_tensors, recorded, self_check
from tests.support.objects.radiograph import spec


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_recorded_and_gives_what_was_recorded(name):
    given = InputSpec.from_mapping({"recipe": name})
    assert given.version in known_tensors(), (
        "look at the table of `make goldens`, then give it `--record`"
    )
    assert self_check(given) is None


def test_nothing_is_recorded_that_no_recipe_gives():
    assert set(known_tensors()) == {
        InputSpec.from_mapping({"recipe": name}).version for name in RECIPES
    }


@pytest.mark.parametrize(
    ("name", "least"), [("torchxrayvision_224", 0.6), ("nih_pil_bicubic_224", 1.0)]
)
def test_another_tensor_is_a_problem(name, least):
    given = InputSpec.from_mapping({"recipe": name})
    for place in (0, 7):
        expected = [list(record) for record in known_tensors()[given.version]]
        expected[1][place] += least
        problem = self_check(given, known={given.version: expected})
        assert problem is not None
        assert problem.startswith("known picture 2 on cpu: values differ by")


def test_other_specifications_give_other_records():
    """The samples tell apart what differs only in the resizer, or in the polarity."""
    given = InputSpec.from_mapping({"recipe": "torchxrayvision_224"})
    for other in (
        spec("torchxrayvision_xinario_224"),
        spec(source={"monochrome1": "ignore"}),
        spec(source={"voi": "first_window"}),
    ):
        assert self_check(given, known={given.version: recorded(other, "cpu")}) is not None


def test_not_a_number_is_a_problem():
    given = InputSpec.from_mapping({"recipe": "torchxrayvision_224"})
    expected = [[float("nan"), *record[1:]] for record in known_tensors()[given.version]]
    assert self_check(given, known={given.version: expected}) is not None


def test_a_picture_that_one_side_refuses_is_a_problem():
    given = InputSpec.from_mapping({"recipe": "torchxrayvision_rsna_224"})
    assert known_tensors()[given.version][0] is None, "12 bits"
    expected = [known_tensors()[given.version][1], known_tensors()[given.version][1]]
    assert (
        self_check(given, known={given.version: expected})
        == "known picture 1 on cpu: refused by only one of now and then"
    )


def test_a_specification_without_a_record_is_compared_with_the_cpu():
    given = spec(intensity=[{"op": "minmax"}, {"op": "scale", "multiply": 3}])
    assert given.version not in known_tensors()
    assert self_check(given) is None


def test_a_global_switch_to_less_precision_is_a_failure():
    """Trap 36, at load."""
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(RuntimeError, match="leave them at 'ieee'"):
            self_check(InputSpec.from_mapping({"recipe": "torchxrayvision_224"}))
    finally:
        torch.set_float32_matmul_precision("highest")


def test_the_known_pictures_are_of_both_kinds():
    deep, shallow = known_pictures()
    assert (deep.bits_stored, deep.is_monochrome1, int(deep.array.max())) == (12, True, 4095)
    assert (shallow.bits_stored, shallow.is_monochrome1, int(shallow.array.max())) == (
        8,
        False,
        255,
    )


def test_torch_is_not_loaded_for_a_specification():
    code = (
        "import sys, hilum_preprocessing.spec.input_spec, hilum_preprocessing.spec.sizing,"
        " hilum_preprocessing.levels.grayscale; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
