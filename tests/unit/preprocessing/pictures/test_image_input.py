"""PNG and JPEG files: their pixels, or the reason why they would be a guess."""

from __future__ import annotations

import io
import tracemalloc
import zlib

import imagecodecs
import numpy as np
import pytest
from PIL import Image
from pydicom.uid import ExplicitVRLittleEndian, JPEGBaseline8Bit

from hilum_preprocessing import ImageInput, NotAnalysable, Reason, decode
from hilum_preprocessing.pictures.image_input import BEGINNING_BYTES, is_picture_file
from tests.support.objects.picture_files import (
    chunk,
    ihdr,
    jpeg_file,
    palette_png,
    png,
    png_of_chunks,
    turned,
)
from tests.support.objects.radiograph import scene

PICTURE = (scene(61, 47, 8)).astype(np.uint8)
DEEP = scene(48, 61, 16)
WHOLE_PNG = png(PICTURE)
WHOLE_JPEG = jpeg_file(PICTURE)


def pixels(data: bytes) -> np.ndarray:
    return decode(ImageInput(data).data_set()).array


def refusal(data: bytes, **options: int) -> NotAnalysable:
    with pytest.raises(NotAnalysable) as refused:
        decode(ImageInput(data).data_set(**options))
    return refused.value


def with_alpha(alpha: np.ndarray) -> np.ndarray:
    return np.dstack([PICTURE, PICTURE, PICTURE, alpha])


# --- what is read
# -----------------------------------------------------------------------------


def test_gray_of_8_bits_keeps_its_values():
    assert np.array_equal(pixels(WHOLE_PNG), PICTURE)


def test_gray_of_16_bits_keeps_its_values():
    found = decode(ImageInput(png(DEEP)).data_set())
    assert found.bits_stored == 16
    assert np.array_equal(found.array, DEEP)


def test_an_odd_number_of_bytes_keeps_its_values():
    odd = PICTURE[:, :45]
    assert odd.size % 2
    assert np.array_equal(pixels(png(odd)), odd)


def test_gray_in_three_channels_is_gray():
    assert np.array_equal(pixels(png(PICTURE, "RGB")), PICTURE)
    assert np.array_equal(pixels(jpeg_file(PICTURE, "RGB")), pixels(WHOLE_JPEG))


def test_opaque_alpha_is_dropped():
    opaque = np.full_like(PICTURE, 255)
    assert np.array_equal(pixels(png(with_alpha(opaque))), PICTURE)
    assert np.array_equal(pixels(png(np.dstack([PICTURE, opaque]))), PICTURE)


def test_a_palette_of_grays_is_read_through_it():
    falling = [255 - index for index in range(256) for _ in range(3)]
    assert np.array_equal(pixels(palette_png(255 - PICTURE, falling)), PICTURE)


def test_an_interlaced_file_is_read():
    # Pillow writes none: Adam7 of one pixel is one pass of one row (8.2), and two rows are three.
    rows = b"\0\x07" + b"\0\x09"
    name, body = ihdr(2, 1)
    data = png_of_chunks((name, body[:-1] + b"\1"), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    assert pixels(data).tolist() == [[7], [9]]


def test_colour_profiles_and_gamma_change_no_value():
    data = png(PICTURE)
    at = data.index(b"IDAT") - 4
    gamma = chunk(b"gAMA", (45455).to_bytes(4, "big"))
    assert np.array_equal(pixels(data[:at] + gamma + data[at:]), PICTURE)


def test_jpeg_baseline_of_one_component_keeps_its_codestream():
    dataset = ImageInput(WHOLE_JPEG).data_set()
    assert dataset.file_meta.TransferSyntaxUID == JPEGBaseline8Bit
    assert WHOLE_JPEG in dataset.PixelData
    assert np.array_equal(decode(dataset).array, np.asarray(Image.open(io.BytesIO(WHOLE_JPEG))))


@pytest.mark.parametrize(
    "data",
    [
        jpeg_file(PICTURE, progressive=True),
        jpeg_file(PICTURE, "RGB"),
        jpeg_file(PICTURE, "RGB", progressive=True, subsampling=0),
    ],
    ids=["progressive", "three components", "both"],
)
def test_other_jpeg_files_of_8_bits_are_decoded(data):
    dataset = ImageInput(data).data_set()
    assert dataset.file_meta.TransferSyntaxUID == ExplicitVRLittleEndian
    assert np.array_equal(
        decode(dataset).array, np.asarray(Image.open(io.BytesIO(data)).convert("L"))
    )
    assert "lossy_compressed" in decode(dataset).flags


def test_upright_exif_metadata_are_no_obstacle():
    for data in (jpeg_file(PICTURE, exif=turned(1)), png(PICTURE, exif=turned(1))):
        assert pixels(data).shape == PICTURE.shape


def test_exif_metadata_that_cannot_be_read_are_no_obstacle():
    data = jpeg_file(PICTURE, exif=b"Exif\0\0II*\0\xff\xff\xff\x7f")
    assert pixels(data).shape == PICTURE.shape


# --- what is refused
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [b"", b"DICM", b"GIF89a", b"BM", b"II*\0" + bytes(60), WHOLE_PNG[1:], b"\xff\xd8"]
)
def test_a_file_of_another_kind_is_refused(data):
    assert refusal(data).reason is Reason.UNDECODABLE
    assert "neither PNG nor JPEG" in refusal(data).detail


@pytest.mark.parametrize("kind", [png, jpeg_file])
def test_colour_is_refused(kind):
    coloured = np.dstack([PICTURE, PICTURE, 255 - PICTURE])
    assert refusal(kind(coloured)).reason is Reason.NOT_MONOCHROME
    assert "in colour" in refusal(kind(coloured)).detail


def test_one_coloured_pixel_is_colour():
    coloured = np.dstack([PICTURE] * 3)
    coloured[3, 4, 2] ^= 1
    assert refusal(png(coloured)).reason is Reason.NOT_MONOCHROME


def test_a_palette_of_colours_is_refused():
    reds = [value for index in range(256) for value in (index, 0, 0)]
    assert refusal(palette_png(PICTURE, reds)).reason is Reason.NOT_MONOCHROME


@pytest.mark.parametrize("level", [0, 128, 254])
def test_transparency_is_refused_also_where_it_is_the_same_everywhere(level):
    data = png(with_alpha(np.full_like(PICTURE, level)))
    assert refusal(data).reason is Reason.NOT_MONOCHROME
    assert "transparen" in refusal(data).detail


def test_one_transparent_pixel_is_transparency():
    alpha = np.full_like(PICTURE, 255)
    alpha[0, 0] = 0
    assert refusal(png(with_alpha(alpha))).reason is Reason.NOT_MONOCHROME


def test_a_gray_level_that_is_transparent_is_refused():
    data = png(PICTURE, transparency=int(PICTURE[5, 5]))
    assert refusal(data).reason is Reason.NOT_MONOCHROME


def test_an_animation_is_refused():
    frames = [Image.fromarray(PICTURE), Image.fromarray(255 - PICTURE)]
    content = io.BytesIO()
    frames[0].save(content, "PNG", save_all=True, append_images=frames[1:])
    assert refusal(content.getvalue()).reason is Reason.MULTI_FRAME


@pytest.mark.parametrize("orientation", range(2, 9))
@pytest.mark.parametrize("kind", [png, jpeg_file])
def test_exif_metadata_that_turn_the_picture_are_refused(kind, orientation):
    found = refusal(kind(PICTURE, exif=turned(orientation)))
    assert found.reason is Reason.UNSUPPORTED_PIXEL_FORMAT
    assert f"orientation {orientation}" in found.detail


def test_black_and_white_is_refused():
    assert refusal(png(PICTURE, "1")).reason is Reason.UNSUPPORTED_PIXEL_FORMAT


def test_cmyk_is_refused():
    assert "4 components" in refusal(jpeg_file(PICTURE, "CMYK")).detail


@pytest.mark.parametrize(
    "data",
    [
        imagecodecs.jpeg8_encode(scene(48, 48, 12), bitspersample=12),
        imagecodecs.jpeg8_encode(PICTURE, lossless=True),
        imagecodecs.jpegls_encode(PICTURE),
    ],
    ids=["12 bits", "lossless", "JPEG-LS"],
)
def test_other_jpeg_processes_are_refused(data):
    assert refusal(bytes(data)).reason in (Reason.UNSUPPORTED_PIXEL_FORMAT, Reason.UNDECODABLE)


def test_a_second_picture_behind_the_first_is_refused():
    assert refusal(WHOLE_JPEG + WHOLE_JPEG).reason is Reason.EXCESS_PIXEL_DATA


@pytest.mark.parametrize("whole", [WHOLE_PNG, WHOLE_JPEG], ids=["PNG", "JPEG"])
def test_every_cut_is_refused(whole):
    for length in range(len(whole) - 1):
        assert isinstance(refusal(whole[:length]), NotAnalysable), length


def test_a_damaged_png_is_refused():
    for place in range(WHOLE_PNG.index(b"IDAT") + 4, len(WHOLE_PNG) - 12, 37):
        damaged = bytearray(WHOLE_PNG)
        damaged[place] ^= 0x55
        assert refusal(bytes(damaged)).reason is Reason.UNDECODABLE, place


@pytest.mark.parametrize(
    "whole",
    [WHOLE_PNG, WHOLE_JPEG, jpeg_file(PICTURE, progressive=True), png(DEEP, exif=turned(1))],
    ids=["PNG", "JPEG", "progressive", "PNG of 16 bits with Exif"],
)
def test_any_damage_ends_as_a_picture_or_a_reason(whole):
    rng = np.random.default_rng(1)
    for _ in range(400):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), rng.integers(1, 4)):
            damaged[place] = rng.integers(0, 256)
        try:
            found = decode(ImageInput(bytes(damaged)).data_set(maximum_pixels=1 << 20))
        except NotAnalysable:
            continue
        assert found.array.size <= 1 << 20


def test_the_first_bytes_tell_a_picture_file():
    assert is_picture_file(WHOLE_PNG[:BEGINNING_BYTES])
    assert is_picture_file(WHOLE_JPEG[:BEGINNING_BYTES])
    assert not is_picture_file(bytes(128) + b"DICM")


def test_a_header_of_a_huge_picture_is_refused_before_anything_is_allocated():
    bomb = png_of_chunks(ihdr(65535, 65535), (b"IDAT", bytes(100)), (b"IEND", b""))
    high = WHOLE_JPEG.index(b"\xff\xc0") + 5
    jpeg_bomb = WHOLE_JPEG[:high] + b"\xff\xff\xff\xff" + WHOLE_JPEG[high + 4 :]
    tracemalloc.start()
    try:
        for data in (bomb, jpeg_bomb):
            assert refusal(data).reason is Reason.TOO_LARGE
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_limit_is_the_caller_s():
    assert refusal(WHOLE_PNG, maximum_pixels=PICTURE.size - 1).reason is Reason.TOO_LARGE
    assert refusal(WHOLE_JPEG, maximum_pixels=PICTURE.size - 1).reason is Reason.TOO_LARGE


def test_more_in_the_data_than_the_header_says_stays_outside():
    """Ten million bytes of zeros in one row of eight pixels: libpng reads no more than the row."""
    data = png_of_chunks(ihdr(1, 8), (b"IDAT", zlib.compress(bytes(10_000_000))), (b"IEND", b""))
    assert pixels(data).tolist() == [[0] * 8]


def test_many_empty_chunks_are_refused():
    data = png_of_chunks(ihdr(1, 1), *[(b"tEXt", b"")] * 100_001)
    assert refusal(data).reason is Reason.UNDECODABLE


# --- what is in doubt
# -----------------------------------------------------------------------------


def test_a_file_of_16_bits_that_holds_12_is_flagged():
    found = decode(ImageInput(png(scene(48, 48, 12))).data_set())
    assert found.flags == ("bits_stored_doubtful",)
    assert decode(ImageInput(png(DEEP)).data_set()).flags == ()
