"""Polarity: who says that small values are bright, and the point at which that is turned round."""

from __future__ import annotations

import numpy as np
import pytest
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence

from hilum_preprocessing import NotAnalysable, Reason, SpecError, decode
from hilum_preprocessing.header.luts import presentation_lut_shape_of
from tests.support.objects.gray_levels import levels, source
from tests.support.objects.radiograph import radiograph, ramp, spec

STORED = ramp(16, 16)
TURNED = 4095 - STORED.astype(int)


@pytest.mark.parametrize(
    ("photometric", "shape", "ignored", "honoured"),
    [
        # PS3.3 C.8.11.3: what every conforming DX object says, once by each attribute.
        ("MONOCHROME1", "INVERSE", TURNED, TURNED),
        ("MONOCHROME2", "IDENTITY", STORED, STORED),
        ("MONOCHROME1", None, TURNED, TURNED),
        ("MONOCHROME2", None, STORED, STORED),
        # Objects that break that rule: the last step, whose output are P-values, has the last word
        # where it is honoured.
        ("MONOCHROME2", "INVERSE", STORED, TURNED),
        ("MONOCHROME1", "IDENTITY", TURNED, STORED),
        ("MONOCHROME1", "LIN OD", TURNED, TURNED),
    ],
)
def test_presentation_lut_shape_never_inverts_twice(photometric, shape, ignored, honoured):
    """Trap 25."""
    attributes = {"PresentationLUTShape": shape} if shape else {}
    dataset = radiograph(STORED, 12, PhotometricInterpretation=photometric, **attributes)
    assert np.array_equal(levels(dataset, source(presentation_lut="ignore")), ignored)
    assert np.array_equal(levels(dataset, source(presentation_lut="honour")), honoured)


def test_one_scene_stored_both_ways_with_its_shape_is_one_picture():
    """Trap 25: the pair that DX equipment makes."""
    one = radiograph(
        TURNED.astype(np.uint16),
        12,
        PhotometricInterpretation="MONOCHROME1",
        PresentationLUTShape="INVERSE",
    )
    two = radiograph(STORED, 12, PresentationLUTShape="IDENTITY")
    for honoured in ("ignore", "honour"):
        assert np.array_equal(
            levels(one, source(presentation_lut=honoured)),
            levels(two, source(presentation_lut=honoured)),
        )


def test_a_presentation_lut_that_is_a_table_is_refused_where_it_is_honoured():
    item = Dataset()
    item.LUTDescriptor = [4096, 0, 12]
    dataset = radiograph(STORED, 12, PresentationLUTSequence=Sequence([item]))
    assert presentation_lut_shape_of(dataset) == "SEQUENCE"
    assert np.array_equal(levels(dataset, source()), STORED)
    with pytest.raises(NotAnalysable) as refused:
        levels(dataset, source(presentation_lut="honour"))
    assert refused.value.reason is Reason.UNSUPPORTED_PIXEL_FORMAT


def test_honoured_inverse_is_refused_and_ignored_as_monochrome1_is():
    dataset = radiograph(STORED, 12, PresentationLUTShape="INVERSE")
    assert np.array_equal(
        levels(dataset, source(presentation_lut="honour", monochrome1="ignore")), STORED
    )
    with pytest.raises(NotAnalysable):
        levels(dataset, source(presentation_lut="honour", monochrome1="reject"))
    to_8_bits = [{"op": "minmax"}, {"op": "to_uint8", "mode": "truncate"}]
    late = spec(
        intensity=to_8_bits,
        source={"presentation_lut": "honour", "monochrome1": "invert_after_uint8"},
    )
    assert np.array_equal(levels(dataset, late), 255 - np.trunc(STORED / 4095 * 255))


@pytest.mark.parametrize(
    ("about", "point"), [("nominal", 4095), ("image_maximum", 3000), ("two_to_bits", 4096)]
)
def test_the_point_of_inversion(about, point):
    """Trap 2: one recipe's largest possible value is another's image maximum or 2^b."""
    stored = np.array([[0, 700], [1500, 3000]], np.uint16)
    dataset = radiograph(stored, 12, PhotometricInterpretation="MONOCHROME1")
    assert np.array_equal(
        levels(dataset, source(monochrome1_about=about)), point - stored.astype(int)
    )
    assert np.array_equal(levels(radiograph(stored, 12), source(monochrome1_about=about)), stored)


def test_two_to_bits_is_256_for_pictures_that_stay_below_it():
    """VinDr's loader: 8-bit pictures in 16-bit objects."""
    stored = np.array([[0, 100], [200, 255]], np.uint16)
    dataset = radiograph(stored, 12, PhotometricInterpretation="MONOCHROME1")
    intensity = [{"op": "maxval", "of": "two_to_bits", "outside": "reject"}]
    given = spec(intensity=intensity, source={"monochrome1_about": "two_to_bits"})
    assert levels(dataset, given) == pytest.approx((256.0 - stored) / 256)
    stored[1, 1] = 256
    assert levels(radiograph(stored, 12), given) == pytest.approx(stored / 4096)


def test_the_maximum_is_the_picture_s_without_its_padding():
    stored = np.array([[0, 700], [1500, 4095]], np.uint16)
    dataset = radiograph(
        stored, 12, PhotometricInterpretation="MONOCHROME1", PixelPaddingValue=4095
    )
    assert levels(dataset, source(monochrome1_about="image_maximum"))[0].tolist() == [1500, 800]


def test_a_point_without_an_inversion_is_refused():
    with pytest.raises(SpecError, match="monochrome1_about: goes with"):
        source(monochrome1="ignore", monochrome1_about="two_to_bits")


@pytest.mark.filterwarnings("ignore:Invalid value for VR CS")
@pytest.mark.parametrize("value", ["INVERSE", "identity", "LIN OD", ""])
def test_the_shape_is_one_of_two_words_or_nothing(value):
    dataset = radiograph(STORED, 12, PresentationLUTShape=value)
    assert decode(dataset).presentation_lut_shape == (
        value.upper() if value.upper() in ("INVERSE", "IDENTITY") else ""
    )
