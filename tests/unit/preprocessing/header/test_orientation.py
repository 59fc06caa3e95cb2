r"""Patient Orientation: what it says of a picture is flagged, and turned where a release asks for it and it is certain.

L\F is a frontal view as one faces the patient (PS3.3 C.7.6.1.1.1).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pydicom.uid import JPEG2000Lossless

from hilum_preprocessing import Flag, InputSpec, SpecError, decode, decoding_for, view_of
from hilum_preprocessing.orientation import Turn, orientation_flags, turn_of
from hilum_preprocessing.prepare import prepare
from tests.support.objects.encoders import encoded
from tests.support.objects.radiograph import radiograph, scene, spec

UPRIGHT = scene(60, 48)
AS_STORED = spec("torchxrayvision_224")
PATIENT = spec("torchxrayvision_224", source={"orientation": "patient"})
UPSIDE_DOWN, MIRRORED = Flag.ORIENTATION_UPSIDE_DOWN, Flag.ORIENTATION_MIRRORED
TURNED, LATERAL = Flag.ORIENTATION_TURNED, Flag.ORIENTATION_LATERAL

LYING: dict[str, NDArray[Any]] = {
    "L\\F": UPRIGHT,
    "R\\F": UPRIGHT[:, ::-1],
    "L\\H": UPRIGHT[::-1],
    "R\\H": UPRIGHT[::-1, ::-1],
    "F\\L": UPRIGHT.T,
    "F\\R": UPRIGHT[:, ::-1].T,
    "H\\L": UPRIGHT[::-1].T,
    "H\\R": UPRIGHT[::-1, ::-1].T,
}
"""How the upright picture lies in the file under each orientation of a frontal view."""


def flags_of(
    orientation: str | list[str] | None, view: str = "PA", **attributes: Any
) -> tuple[Flag, ...]:
    dataset = radiograph(
        UPRIGHT, 12, ViewPosition=view, PatientOrientation=orientation or "", **attributes
    )
    return orientation_flags(dataset, AS_STORED.source, view_of(dataset))


@pytest.mark.parametrize(
    ("orientation", "flags"),
    [
        ("L\\F", ()),
        ("LF\\F", ()),
        ("LFP\\FR", ()),
        ("l\\f", ()),
        (" L\\F ", ()),
        ("L\\H", (UPSIDE_DOWN,)),
        ("LH\\HR", (UPSIDE_DOWN,)),
        ("R\\F", (MIRRORED,)),
        ("RA\\F", (MIRRORED,)),
        ("R\\H", (UPSIDE_DOWN, MIRRORED)),
        ("F\\L", (TURNED,)),
        ("F\\R", (TURNED,)),
        ("H\\L", (TURNED,)),
        ("H\\R", (TURNED,)),
        ("L\\P", (TURNED,)),
        ("A\\F", (LATERAL,)),
        ("P\\H", (UPSIDE_DOWN, LATERAL)),
        ("LEFT\\FOOT", ()),
        ("LEFT\\HEAD", (UPSIDE_DOWN,)),
        ("Right\\Feet", (MIRRORED,)),
        ("L\\H\\", (UPSIDE_DOWN,)),
        # One of both is missing.
        ("L", ()),
        ("R", (MIRRORED,)),
        ("\\F", ()),
        ("\\H", (UPSIDE_DOWN,)),
        ("H\\", (TURNED,)),
        ("\\L", (TURNED,)),
    ],
)
@pytest.mark.parametrize("view", ["PA", "AP"])
def test_a_frontal_view_that_lies_otherwise_is_flagged(orientation, view, flags):
    assert flags_of(orientation, view) == flags


@pytest.mark.parametrize(
    "orientation",
    [
        None,
        "NOT\\KNOWN",
        "X\\H",
        "L\\X",
        "PA",
        "AP",
        "LR\\H",
        "L\\R",
        "H\\F",
        "LL\\H",
        "L\\H\\F",
        "LFPA\\H",
        "1\\0",
        "N/A",
        "LE\\CD",
    ],
)
def test_values_that_are_no_directions_mean_nothing(orientation):
    assert flags_of(orientation) == ()
    assert (
        view_of(radiograph(UPRIGHT, 12, PatientOrientation=orientation or "", ViewPosition=""))
        == "UNKNOWN"
    )


def test_letters_of_a_quadruped_mean_nothing():
    """PS3.3 C.7.6.1.1.1: its R is a right, and its H is none."""
    assert flags_of("R\\H", AnatomicalOrientationType="QUADRUPED") == ()
    assert flags_of("R\\H", AnatomicalOrientationType="BIPED") == (UPSIDE_DOWN, MIRRORED)


@pytest.mark.parametrize(
    ("orientation", "flags"),
    [
        ("A\\F", ()),
        ("P\\F", ()),
        ("AR\\F", ()),
        ("A\\H", (UPSIDE_DOWN,)),
        ("P\\H", (UPSIDE_DOWN,)),
        ("F\\A", (TURNED,)),
        ("R\\F", ()),
    ],
)
def test_a_lateral_view_has_head_and_foot_alone_for_certain(orientation, flags):
    assert flags_of(orientation, "LL") == flags


@pytest.mark.parametrize(
    ("orientation", "view", "flags"),
    [
        ("L\\H", "UNKNOWN", (UPSIDE_DOWN,)),
        ("R\\F", "UNKNOWN", (MIRRORED,)),
        ("F\\L", "UNKNOWN", (TURNED,)),
        ("A\\H", "LATERAL", (UPSIDE_DOWN,)),
    ],
)
def test_without_a_view_position_the_orientation_says_what_it_can(orientation, view, flags):
    dataset = radiograph(UPRIGHT, 12, ViewPosition="", PatientOrientation=orientation)
    assert view_of(dataset) == view
    assert orientation_flags(dataset, AS_STORED.source, view_of(dataset)) == flags


@pytest.mark.parametrize(
    "attributes",
    [
        {"FieldOfViewRotation": "180"},
        {"FieldOfViewHorizontalFlip": "YES"},
        {"FieldOfViewRotation": "90", "FieldOfViewHorizontalFlip": "YES"},
        {"ImageOrientationPatient": ["1", "0", "0", "0", "1", "0"]},
    ],
)
def test_how_the_stored_picture_came_about_changes_nothing(attributes):
    assert flags_of("L\\F", **attributes) == ()
    assert flags_of("L\\H", **attributes) == (UPSIDE_DOWN,)
    assert flags_of(None, **attributes) == ()


def test_flags_reach_who_prepares_and_the_picture_stays_as_it_is_stored():
    upside_down = prepare(radiograph(UPRIGHT, 12, PatientOrientation="L\\H"), AS_STORED)
    assert upside_down.flags == (UPSIDE_DOWN,)
    assert np.array_equal(
        upside_down.tensor.numpy(), prepare(radiograph(UPRIGHT, 12), AS_STORED).tensor.numpy()
    )


# --- turned
# -----------------------------------------------------------------------------------------------------------


def lying(orientation: str, **attributes: Any) -> Dataset:
    return radiograph(
        np.ascontiguousarray(LYING[orientation]), 12, PatientOrientation=orientation, **attributes
    )


@pytest.mark.parametrize("view", ["PA", "AP", ""])
@pytest.mark.parametrize("orientation", LYING)
def test_a_frontal_view_is_turned_where_a_release_asks_for_it(orientation, view):
    found = prepare(lying(orientation, ViewPosition=view), PATIENT)
    upright = prepare(radiograph(UPRIGHT, 12, ViewPosition=view), PATIENT)
    assert np.array_equal(found.tensor.numpy(), upright.tensor.numpy())
    corrected = (Flag.ORIENTATION_CORRECTED,) if orientation != "L\\F" else ()
    assert found.flags == (*((Flag.VIEW_UNKNOWN,) if not view else ()), *corrected)


@pytest.mark.parametrize(
    ("orientation", "view", "flags"),
    [
        ("\\H", "PA", (UPSIDE_DOWN,)),
        ("R", "PA", (MIRRORED,)),
        ("A\\H", "PA", (UPSIDE_DOWN, LATERAL)),
        ("A\\H", "LL", (UPSIDE_DOWN,)),
        ("L\\P", "PA", (TURNED,)),
    ],
)
def test_what_is_not_certain_is_flagged_and_not_turned(orientation, view, flags):
    given = spec("torchxrayvision_224", source={"orientation": "patient"}, views="any")
    found = prepare(
        radiograph(UPRIGHT, 12, ViewPosition=view, PatientOrientation=orientation), given
    )
    assert found.flags == flags
    assert np.array_equal(
        found.tensor.numpy(), prepare(radiograph(UPRIGHT, 12), given).tensor.numpy()
    )


@pytest.mark.parametrize("orientation", ["F\\L", "L\\H"])
def test_pixels_that_are_not_square_keep_their_sides(orientation):
    given = spec(
        "torchxrayvision_224", source={"orientation": "patient", "pixel_aspect": "resample"}
    )
    spacing = ["0.2", "0.1"] if orientation == "L\\H" else ["0.1", "0.2"]
    found = prepare(lying(orientation, PixelSpacing=spacing), given)
    assert np.array_equal(
        found.tensor.numpy(),
        prepare(radiograph(UPRIGHT, 12, PixelSpacing=["0.2", "0.1"]), given).tensor.numpy(),
    )


def test_a_picture_that_is_turned_is_decoded_in_full():
    """The samples of a reduced picture lie on the first pixels of a grid."""
    given = spec(
        "torchxrayvision_224", source={"orientation": "patient", "allow_reduced_decode": "auto"}
    )
    large = scene(2048, 1800)
    for orientation, reduce in (("L\\F", 2), ("L\\H", 0)):
        dataset = encoded(large, JPEG2000Lossless, 12, PatientOrientation=orientation)
        assert decoding_for(dataset, given).reduce == reduce


def test_a_turn_leaves_the_stored_values_alone():
    stored = decode(lying("H\\R"))
    before = stored.array.copy()
    turned = Turn(True, True, True).of(stored)
    assert np.array_equal(stored.array, before)
    assert turned.array.flags.c_contiguous
    assert turned.size == UPRIGHT.shape


def test_an_option_that_is_left_out_changes_no_version():
    assert AS_STORED.version == InputSpec.from_mapping({"recipe": "torchxrayvision_224"}).version
    assert PATIENT.version != AS_STORED.version
    beside = InputSpec.from_mapping(
        {"recipe": "torchxrayvision_224", "source": {"orientation": "patient"}}
    )
    assert beside.version == PATIENT.version


def test_an_orientation_that_is_misspelled_is_refused():
    with pytest.raises(SpecError, match="did you mean 'patient'"):
        spec(source={"orientation": "patients"})


def test_a_malformed_orientation_is_no_reason():
    dataset = radiograph(UPRIGHT, 12)
    dataset.add_new("PatientOrientation", "SQ", Sequence([Dataset()]))
    assert turn_of(dataset, "PA") is None
    assert prepare(dataset, PATIENT).flags == ()
