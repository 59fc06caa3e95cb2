"""A broken attribute is a reason or a flag for a release that uses it, and nothing at all for one that ignores it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from struct import pack
from typing import Any

import numpy as np
import pytest
from pydicom import dcmread
from pydicom.dataelem import RawDataElement
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pydicom.tag import BaseTag, Tag
from pydicom.uid import ExplicitVRLittleEndian

from hilum_preprocessing import (
    Flag,
    InputSpec,
    NotAnalysable,
    Reason,
    StoredValues,
    decode,
    level_flags,
    prepare_stored,
    read_file,
)
from hilum_preprocessing.header.luts import Rescale, Unusable, modality_of
from hilum_preprocessing.header.plain_header import read_plain_header
from hilum_preprocessing.prepare import prepare
from tests.support.objects.radiograph import radiograph, scene, spec, under

pytestmark = pytest.mark.filterwarnings("ignore")  # pydicom's, of what is broken on purpose

STORED = scene(64, 60)
IGNORES = spec("torchxrayvision_224")
APPLIES = spec("vit_imagenet_half_224")
COUNTS = spec("biovil_448", source={"padding": "exclude_from_stats"})


def table(**attributes: Any) -> Dataset:
    made = Dataset()
    made.add_new("LUTDescriptor", "US", [3, 0, 16])
    made.add_new("LUTData", "US", [1, 2, 65535])
    for keyword, value in attributes.items():
        setattr(made, keyword, value)
    return made


def raw(keyword: str, vr: str, value: bytes) -> RawDataElement:
    """An element as it lies in a file, whatever pydicom thinks of it."""
    return RawDataElement(BaseTag(int(Tag(keyword))), vr, len(value), value, 0, False, True)


NO_DATA, NO_DESCRIPTOR, TOO_SHORT = (
    table(LUTData=None),
    table(LUTDescriptor=None),
    table(LUTDescriptor=[400, 0, 16]),
)
RESCALES: dict[str, list[RawDataElement]] = {
    "slope 0": [raw("RescaleIntercept", "DS", b"0 "), raw("RescaleSlope", "DS", b"0 ")],
    "decimal comma": [raw("RescaleIntercept", "DS", b"0,0 "), raw("RescaleSlope", "DS", b"1,0 ")],
    "text": [raw("RescaleIntercept", "DS", b"0 "), raw("RescaleSlope", "DS", b"none")],
    "not finite": [raw("RescaleIntercept", "DS", b"0 "), raw("RescaleSlope", "DS", b"nan ")],
    "two slopes": [raw("RescaleIntercept", "DS", b"0 "), raw("RescaleSlope", "DS", b"1\\2 ")],
    "intercept of text": [raw("RescaleIntercept", "DS", b"zero")],
    "beyond float32": [raw("RescaleIntercept", "DS", b"0 "), raw("RescaleSlope", "DS", b"1e300 ")],
}
TABLES = {
    "no data": NO_DATA,
    "no descriptor": NO_DESCRIPTOR,
    "too short": TOO_SHORT,
    "empty item": Dataset(),
}


def with_elements(elements: list[RawDataElement], **attributes: Any) -> Dataset:
    dataset = radiograph(STORED, 12, SOPInstanceUID="1.2.3", **attributes)
    for element in elements:
        dataset[element.tag] = element
    return dataset


def tensor(dataset: Dataset, given: InputSpec) -> np.ndarray[Any, Any]:
    return prepare(dataset, given).tensor.numpy()


def require_unused(dataset: Dataset, given: InputSpec) -> None:
    """As if it were not there: the same tensor, and no flag."""
    found, plain = prepare(dataset, given), prepare(radiograph(STORED, 12), given)
    assert np.array_equal(found.tensor.numpy(), plain.tensor.numpy())
    assert found.flags == plain.flags == ()


def reason_of(dataset: Dataset, given: InputSpec) -> NotAnalysable:
    with pytest.raises(NotAnalysable) as refused:
        prepare(dataset, given)
    return refused.value


# --- modality LUT
# -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RESCALES)
def test_a_rescale_that_cannot_be_used_is_a_reason_only_where_it_is_applied(name):
    require_unused(with_elements(RESCALES[name]), IGNORES)
    refused = reason_of(with_elements(RESCALES[name]), APPLIES)
    assert refused.reason is Reason.CORRUPT_HEADER
    assert "Rescale" in refused.detail


@pytest.mark.parametrize("name", TABLES)
def test_a_modality_lut_that_cannot_be_used_is_a_reason_only_where_it_is_applied(name):
    dataset = radiograph(STORED, 12, ModalityLUTSequence=Sequence([TABLES[name]]))
    require_unused(dataset, IGNORES)
    refused = reason_of(dataset, APPLIES)
    assert refused.reason is Reason.CORRUPT_HEADER
    assert "LUT" in refused.detail


@pytest.mark.parametrize(
    ("elements", "expected"),
    [
        ([raw("RescaleIntercept", "DS", b"-1024 ")], Rescale(1.0, -1024.0)),
        ([raw("RescaleSlope", "DS", b"2 ")], Rescale(2.0, 0.0)),
        ([raw("RescaleIntercept", "DS", b""), raw("RescaleSlope", "DS", b"2 ")], Rescale(2.0, 0.0)),
        ([raw("RescaleIntercept", "DS", b"8 "), raw("RescaleSlope", "DS", b"")], Rescale(1.0, 8.0)),
        ([raw("RescaleIntercept", "DS", b""), raw("RescaleSlope", "DS", b"")], None),
    ],
)
def test_of_slope_and_intercept_the_missing_one_changes_nothing(elements, expected):
    assert modality_of(with_elements(elements)) == expected


def test_an_intercept_without_a_slope_moves_the_window_s_input():
    alone = with_elements(
        [raw("RescaleIntercept", "DS", b"-1024 ")], WindowCenter="1000", WindowWidth="2000"
    )
    both = radiograph(
        STORED,
        12,
        RescaleIntercept="-1024",
        RescaleSlope="1",
        WindowCenter="1000",
        WindowWidth="2000",
    )
    assert np.array_equal(tensor(alone, APPLIES), tensor(both, APPLIES))
    require_unused(with_elements([raw("RescaleIntercept", "DS", b"-1024 ")]), IGNORES)


# --- VOI
# --------------------------------------------------------------------------------------------------------------

WINDOWS: dict[str, list[RawDataElement]] = {
    "width 0": [raw("WindowCenter", "DS", b"2000"), raw("WindowWidth", "DS", b"0 ")],
    "decimal comma": [raw("WindowCenter", "DS", b"2000,0"), raw("WindowWidth", "DS", b"4000,0")],
    "text": [raw("WindowCenter", "DS", b"auto"), raw("WindowWidth", "DS", b"auto")],
    "unknown function": [
        raw("WindowCenter", "DS", b"2000"),
        raw("WindowWidth", "DS", b"4000"),
        raw("VOILUTFunction", "CS", b"CUBIC "),
    ],
}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_that_cannot_be_used_is_a_flag_only_where_one_is_wanted(name):
    require_unused(with_elements(WINDOWS[name]), IGNORES)
    assert prepare(with_elements(WINDOWS[name]), APPLIES).flags == (Flag.VOI_UNUSABLE,)


@pytest.mark.parametrize("name", TABLES)
def test_a_voi_lut_that_cannot_be_used_is_a_flag_only_where_one_is_wanted(name):
    dataset = radiograph(STORED, 12, VOILUTSequence=Sequence([TABLES[name]]))
    require_unused(dataset, IGNORES)
    assert prepare(dataset, APPLIES).flags == (Flag.VOI_UNUSABLE,)


# --- the rest of what is read
# -----------------------------------------------------------------------------------------

ODD: dict[str, list[RawDataElement]] = {
    "Pixel Padding Value of three bytes": [raw("PixelPaddingValue", "US", b"\1\2\3")],
    "two Pixel Padding Values": [raw("PixelPaddingValue", "US", b"\0\0\1\0")],
    "Pixel Padding Value of text": [raw("PixelPaddingValue", "LO", b"none")],
    "Pixel Padding Range Limit of three bytes": [
        raw("PixelPaddingRangeLimit", "US", b"\1\2\3"),
        raw("PixelPaddingValue", "US", b"\0\0"),
    ],
    "padding that covers the picture": [
        raw("PixelPaddingValue", "US", b"\0\0"),
        raw("PixelPaddingRangeLimit", "US", b"\xff\xff"),
    ],
    "spacing of 0": [raw("PixelSpacing", "DS", b"0\\0 ")],
    "spacing with decimal commas": [raw("ImagerPixelSpacing", "DS", b"0,143\\0,143")],
    "aspect of text": [raw("PixelAspectRatio", "IS", b"one\\two ")],
    "Presentation LUT Shape of text": [raw("PresentationLUTShape", "CS", b"WHATEVER")],
    "Planar Configuration of three bytes": [raw("PlanarConfiguration", "US", b"\1\2\3")],
    "two Planar Configurations": [raw("PlanarConfiguration", "US", b"\0\0\1\0")],
    "Lossy Image Compression of no text": [raw("LossyImageCompression", "US", b"\1\2\3")],
    "Patient Orientation of no text": [raw("PatientOrientation", "US", b"\1\2\3")],
    "Burned In Annotation of no text": [raw("BurnedInAnnotation", "US", b"\1\2\3")],
}


@pytest.mark.parametrize("name", ODD)
def test_what_no_step_of_a_release_needs_is_no_reason(name):
    require_unused(with_elements(ODD[name]), IGNORES)


@pytest.mark.parametrize("name", [name for name in ODD if "Padding" in name])
def test_a_padding_that_makes_no_sense_is_a_flag_where_statistics_are_taken(name):
    assert level_flags(decode(with_elements(ODD[name])), COUNTS) == (Flag.PADDING_UNUSABLE,)
    assert level_flags(decode(with_elements(ODD[name])), spec("biovil_448")) == (), (
        "it keeps padding in"
    )


def test_a_padding_that_covers_the_picture_leaves_nothing_to_count():
    refused = reason_of(with_elements(ODD["padding that covers the picture"]), COUNTS)
    assert (refused.reason, refused.detail) == (Reason.CONSTANT_IMAGE, "all pixels are padding")


def test_a_spacing_that_makes_no_sense_is_a_reason_where_pixels_are_made_square():
    refused = reason_of(
        with_elements(ODD["spacing of 0"]), spec(source={"pixel_aspect": "resample"})
    )
    assert refused.reason is Reason.UNSUPPORTED_PIXEL_FORMAT


def test_a_presentation_lut_sequence_is_a_reason_only_where_it_is_honoured():
    dataset = radiograph(STORED, 12, PresentationLUTSequence=Sequence([NO_DATA]))
    require_unused(dataset, IGNORES)
    assert (
        reason_of(dataset, spec(source={"presentation_lut": "honour"})).reason
        is Reason.UNSUPPORTED_PIXEL_FORMAT
    )


# --- both readers
# -----------------------------------------------------------------------------------------------------


def facts(stored: StoredValues) -> dict[str, Any]:
    """All but the pixels, and their ends, which are looked for where the pixels lie on even places."""
    return {
        field.name: getattr(stored, field.name)
        for field in fields(stored)
        if field.name not in ("array", "ends")
    }


def saved(path: Path, elements: list[RawDataElement]) -> None:
    """The elements stand before the pixels as they are.

    Pydicom would convert them, and write none that it cannot read.
    """
    under(with_elements([]), ExplicitVRLittleEndian).save_as(path, enforce_file_format=True)
    pixels = b"\xe0\x7f\x10\x00OW"
    assert path.read_bytes().count(pixels) == 1
    odd = b"".join(
        pack("<HH2sH", item.tag.group, item.tag.element, item.VR.encode(), item.length) + item.value
        for item in elements
    )
    path.write_bytes(path.read_bytes().replace(pixels, odd + pixels))


@pytest.mark.parametrize("name", [*RESCALES, *WINDOWS, *ODD])
def test_both_readers_of_headers_say_the_same_of_it(tmp_path: Path, name: str):
    path = tmp_path / "x.dcm"
    saved(path, {**RESCALES, **WINDOWS, **ODD}[name])
    with path.open("rb") as file:
        assert read_plain_header(file, path.read_bytes()) is not None, "the quick reader takes it"
    quick, slow = decode(read_file(path)), decode(dcmread(path))
    assert facts(quick) == facts(slow)
    assert np.array_equal(quick.array, slow.array)
    # Pixels on odd places are torch's, and within a step of fp16.
    assert prepare_stored(quick, IGNORES).numpy() == pytest.approx(
        tensor(radiograph(STORED, 12), IGNORES), abs=0.5
    )


@pytest.mark.parametrize("sequence", ["ModalityLUTSequence", "VOILUTSequence"])
@pytest.mark.parametrize("is_undefined_length", [False, True])
@pytest.mark.parametrize("name", TABLES)
def test_both_readers_say_the_same_of_a_table(tmp_path, sequence, is_undefined_length, name):
    path = tmp_path / "x.dcm"
    items = Sequence([TABLES[name]])
    items.is_undefined_length = is_undefined_length
    dataset = with_elements([], **{sequence: items})
    dataset[sequence].is_undefined_length = is_undefined_length
    under(dataset, ExplicitVRLittleEndian).save_as(path, enforce_file_format=True)
    quick, slow = decode(read_file(path)), decode(dcmread(path))
    assert facts(quick) == facts(slow)
    assert isinstance(quick.modality, Unusable) == (sequence == "ModalityLUTSequence")
    assert np.array_equal(
        prepare_stored(quick, IGNORES).numpy(), tensor(radiograph(STORED, 12), IGNORES)
    )
