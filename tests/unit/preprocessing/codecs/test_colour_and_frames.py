"""Colour, palettes and several frames.

Refused unless a specification takes them, and then with one defined outcome.
"""

from __future__ import annotations

import struct

import imagecodecs
import numpy as np
import pytest
from PIL import Image
from pydicom.dataelem import DataElement
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate, encapsulate_extended
from pydicom.pixels.encoders import RLELosslessEncoder
from pydicom.pixels.processing import convert_color_space
from pydicom.uid import (
    HTJ2KLossless,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGLSLossless,
    RLELossless,
)

from hilum_preprocessing import NotAnalysable, Reason, decode, decode_frames
from tests.support.objects.encoders import enclosed
from tests.support.objects.radiograph import (
    jpeg,
    jpeg_radiograph,
    radiograph,
    reason_of,
    scene,
    under,
)

GREY = (scene(24, 20) >> 4).astype(np.uint8)
RGB = np.dstack([GREY, 255 - GREY, np.roll(GREY, 5, axis=1)])
THREE = [GREY, 255 - GREY, np.roll(GREY, 3, axis=0)]


def colour(array: np.ndarray, photometric: str = "RGB", *, is_planar: bool = False) -> Dataset:
    dataset = radiograph(
        array[..., 0],
        SamplesPerPixel=3,
        PhotometricInterpretation=photometric,
        PlanarConfiguration=int(is_planar),
    )
    dataset.PixelData = (array.transpose(2, 0, 1) if is_planar else array).tobytes()
    return dataset


def palette(bits: int = 16) -> Dataset:
    dataset = radiograph(GREY, PhotometricInterpretation="PALETTE COLOR")
    for index, channel in enumerate(("Red", "Green", "Blue")):
        entries = (np.arange(256) * (index + 1) % 256).astype(f"<u{bits // 8}") * (
            257 if bits == 16 else 1
        )
        setattr(dataset, f"{channel}PaletteColorLookupTableDescriptor", [256, 0, bits])
        setattr(
            dataset,
            f"{channel}PaletteColorLookupTableData",
            entries.astype(f"<u{bits // 8}").tobytes(),
        )
    return dataset


def luma(rgb: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray(rgb).convert("L"))


@pytest.mark.parametrize("is_planar", [False, True])
@pytest.mark.parametrize("photometric", ["RGB", "YBR_FULL"])
def test_uncompressed_colour(photometric, is_planar):
    """Trap 22."""
    stored = RGB if photometric == "RGB" else convert_color_space(RGB, "RGB", "YBR_FULL")
    dataset = colour(stored, photometric, is_planar=is_planar)
    assert reason_of(dataset) is Reason.NOT_MONOCHROME
    rgb = decode_frames(dataset)
    assert np.array_equal(rgb, dataset.pixel_array)
    assert np.abs(rgb.astype(int) - RGB).max() <= (0 if photometric == "RGB" else 2)
    assert np.array_equal(decode(dataset, rgb="luma").array, luma(rgb))
    assert np.array_equal(decode(dataset, rgb="first_channel").array, rgb[..., 0])


def test_luma_of_grey_is_the_grey_value_itself():
    assert np.array_equal(decode(colour(np.dstack([GREY] * 3)), rgb="luma").array, GREY)


@pytest.mark.parametrize("uid", [RLELossless, JPEGLSLossless, JPEG2000Lossless, HTJ2KLossless])
def test_compressed_colour_comes_back(uid):
    encoders = {
        RLELossless: lambda: RLELosslessEncoder.encode(
            RGB, rows=24, columns=20, samples_per_pixel=3, number_of_frames=1, bits_allocated=8, bits_stored=8,
            pixel_representation=0, photometric_interpretation="RGB", planar_configuration=0,
        ),
        JPEGLSLossless: lambda: imagecodecs.jpegls_encode(RGB),
        JPEG2000Lossless: lambda: imagecodecs.jpeg2k_encode(RGB, codecformat="J2K", level=0, reversible=True),
        HTJ2KLossless: lambda: imagecodecs.htj2k_encode(RGB, reversible=True),
    }  # fmt: skip
    photometric = "YBR_RCT" if uid == JPEG2000Lossless else "RGB"
    dataset = enclosed(
        bytes(encoders[uid]()),
        GREY,
        uid,
        8,
        SamplesPerPixel=3,
        PhotometricInterpretation=photometric,
        PlanarConfiguration=0,
    )
    assert np.array_equal(decode_frames(dataset), RGB)
    assert reason_of(dataset) is Reason.NOT_MONOCHROME


def test_jpeg_with_and_without_a_marker_that_names_its_colours():
    """Without JFIF or Adobe markers libjpeg takes three components for YCbCr, whatever the DICOM header says."""
    attributes = {"SamplesPerPixel": 3, "PlanarConfiguration": 0}
    named = bytes(imagecodecs.jpeg8_encode(RGB, level=98, subsampling="444"))
    ycbcr = enclosed(
        named, GREY, JPEGBaseline8Bit, 8, PhotometricInterpretation="YBR_FULL_422", **attributes
    )
    assert np.abs(decode_frames(ycbcr).astype(int) - RGB).mean() < 6
    start = named.index(b"\xff\xe0")
    length = 2 + struct.unpack_from(">H", named, start + 2)[0]
    chroma = convert_color_space(RGB, "RGB", "YBR_FULL")
    bare = enclosed(
        named[:start] + named[start + length :],
        GREY,
        JPEGBaseline8Bit,
        8,
        PhotometricInterpretation="RGB",
        **attributes,
    )
    assert np.abs(decode_frames(bare).astype(int) - chroma).mean() < 6, "the samples as they are"


@pytest.mark.parametrize("bits", [8, 16])
def test_a_palette_is_looked_up(bits):
    dataset = palette(bits)
    assert reason_of(dataset) is Reason.NOT_MONOCHROME
    assert np.array_equal(decode_frames(dataset), GREY)
    stored = decode(dataset, rgb="first_channel")
    assert np.array_equal(stored.array, GREY.astype(int) * (257 if bits == 16 else 1))
    assert stored.bits_stored == bits


def test_a_palette_that_is_missing_or_in_segments():
    dataset = palette()
    del dataset.GreenPaletteColorLookupTableData
    assert reason_of(dataset, rgb="luma") is Reason.CORRUPT_HEADER
    assert np.array_equal(decode_frames(dataset), GREY), "indices need no palette"


# --- several frames
# ---------------------------------------------------------------------------------------------------


def test_the_first_frame_of_uncompressed_ones():
    """Trap 23."""
    dataset = radiograph(
        GREY, NumberOfFrames=3, PixelData=b"".join(frame.tobytes() for frame in THREE)
    )
    assert reason_of(dataset) is Reason.MULTI_FRAME
    assert np.array_equal(decode(dataset, frames="first").array, GREY)
    assert np.array_equal(decode_frames(dataset), np.stack(THREE))
    dataset.PixelData = dataset.PixelData[:-2]
    assert reason_of(dataset, frames="first") is Reason.TRUNCATED_PIXEL_DATA


@pytest.mark.parametrize("fragments_per_frame", [1, 3])
@pytest.mark.parametrize("has_bot", [False, True])
def test_frames_by_fragment_by_table_and_by_end_marker(fragments_per_frame, has_bot):
    """Trap 19."""
    dataset = jpeg_radiograph(GREY, NumberOfFrames=3)
    dataset.PixelData = encapsulate(
        [jpeg(frame) for frame in THREE], fragments_per_frame=fragments_per_frame, has_bot=has_bot
    )
    frames = decode_frames(dataset)
    assert [
        np.array_equal(frames[index], decode(jpeg_radiograph(frame)).array)
        for index, frame in enumerate(THREE)
    ] == [True] * 3
    assert np.array_equal(decode(dataset, frames="first").array, frames[0])


def test_frames_by_the_extended_offset_table():
    dataset = jpeg_radiograph(GREY, NumberOfFrames=3)
    dataset.PixelData, dataset.ExtendedOffsetTable, dataset.ExtendedOffsetTableLengths = (
        encapsulate_extended([jpeg(f) for f in THREE])
    )
    assert np.array_equal(decode_frames(dataset)[2], decode(jpeg_radiograph(THREE[2])).array)


def test_only_the_first_frame_is_decoded():
    dataset = jpeg_radiograph(GREY, NumberOfFrames=3)
    dataset.PixelData = encapsulate([jpeg(GREY), b"\xff\xd8 no JPEG", b"\xff\xd8 no JPEG"])
    assert decode(dataset, frames="first").array.shape == GREY.shape
    with pytest.raises(NotAnalysable):
        decode_frames(dataset)


def test_fewer_fragments_than_frames():
    dataset = jpeg_radiograph(GREY, NumberOfFrames=5)
    dataset.PixelData = encapsulate([jpeg(frame) for frame in THREE], has_bot=False)
    with pytest.raises(NotAnalysable) as refused:
        decode_frames(dataset)
    assert refused.value.reason is Reason.TRUNCATED_PIXEL_DATA


def test_items_without_end_are_refused_before_they_fill_the_memory():
    dataset = jpeg_radiograph(GREY)
    dataset.PixelData = b"\xfe\xff\x00\xe0\0\0\0\0" * 200_000
    assert reason_of(dataset) is Reason.UNDECODABLE


def test_the_limit_counts_all_frames_that_are_decoded():
    dataset = radiograph(
        GREY, NumberOfFrames=3, PixelData=b"".join(frame.tobytes() for frame in THREE)
    )
    assert decode(dataset, maximum_pixels=480, frames="first").array.shape == GREY.shape
    with pytest.raises(NotAnalysable) as refused:
        decode_frames(dataset, maximum_pixels=3 * 480 - 1)
    assert refused.value.reason is Reason.TOO_LARGE
    assert under(dataset, RLELossless).NumberOfFrames == 3


@pytest.mark.parametrize(
    ("keyword", "vr", "value"),
    [
        ("RedPaletteColorLookupTableDescriptor", "LO", ["a", "b", "c"]),
        ("RedPaletteColorLookupTableDescriptor", "SS", [-5, 0, 16]),
        ("RedPaletteColorLookupTableDescriptor", "UV", [256, 2**63, 16]),
        ("GreenPaletteColorLookupTableData", "US", [1, 2, 3]),
        ("BluePaletteColorLookupTableData", "IS", 7),
    ],
)
def test_a_palette_that_is_none(keyword, vr, value):
    dataset = palette()
    dataset[keyword] = DataElement(keyword, vr, value)
    assert reason_of(dataset, rgb="luma") is Reason.CORRUPT_HEADER


def test_white_of_16_bits_stays_white():
    white = np.full((4, 6, 3), 65535, np.uint16)
    assert decode(colour(white), rgb="luma").array.min() == 65535


def test_an_extended_offset_table_that_is_no_table():
    """Frames are told apart by their end markers then, as without one."""
    dataset = radiograph(GREY, NumberOfFrames=3)
    dataset.PixelData = encapsulate(
        [jpeg(frame) for frame in THREE], fragments_per_frame=2, has_bot=False
    )
    dataset["ExtendedOffsetTable"] = DataElement("ExtendedOffsetTable", "US", 24)
    frames = decode_frames(under(dataset, JPEGBaseline8Bit))
    assert np.array_equal(frames[2], decode(jpeg_radiograph(THREE[2])).array)
