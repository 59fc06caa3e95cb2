"""Words with more in them than Bits Stored.

An overlay is cleared, a deeper picture is never wrapped around.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydicom import Dataset
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    HTJ2KLossless,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGExtended12Bit,
    JPEGLossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
)

from hilum_preprocessing import Flag, InputSpec, NotAnalysable, Reason, decode, decode_frames
from hilum_preprocessing.decode import StoredValues
from hilum_preprocessing.prepare import prepare, prepare_stored
from tests.support.objects.encoders import ENCODERS, enclosed, encoded
from tests.support.objects.radiograph import radiograph, reason_of, scene, under

DEEPER = [(8, 10), (8, 16), (10, 12), (12, 13), (12, 15), (12, 16), (14, 15), (15, 16)]
WORDS = [
    RLELossless,
    JPEGLossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    JPEG2000Lossless,
    HTJ2KLossless,
]
"""Syntaxes that carry words of 16 bits, whatever the header says of them."""


def picture(bits: int, *, is_signed: bool = False, seed: int = 0) -> NDArray[Any]:
    """Stored values of so many bits, in words of 16."""
    array = scene(96, 88, bits, seed).astype(np.int32)
    return (array - (1 << bits - 1)).astype(np.int16) if is_signed else array.astype(np.uint16)


def words(
    array: NDArray[Any],
    stored: int,
    transfer_syntax_uid: str = ExplicitVRLittleEndian,
    **attributes: Any,
) -> Dataset:
    """Words as they are under a header that says so many bits.

    An attribute HighBit says where they are.
    """
    if transfer_syntax_uid in ENCODERS:
        return encoded(
            array,
            transfer_syntax_uid,
            16,
            **{"BitsStored": stored, "HighBit": stored - 1, **attributes},
        )
    order = ">" if transfer_syntax_uid == ExplicitVRBigEndian else "<"
    pixels = array.astype(array.dtype.newbyteorder(order)).tobytes()
    return under(
        radiograph(array, stored, **{"PixelData": pixels, **attributes}), transfer_syntax_uid
    )


# --- a picture that is deeper than its header says
# --------------------------------------------------------------------


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize(("stored", "bits"), DEEPER)
def test_a_deeper_picture_is_refused_and_not_wrapped_around(stored, bits, is_signed):
    for seed in range(3):
        assert (
            reason_of(words(picture(bits, is_signed=is_signed, seed=seed), stored))
            is Reason.DEPTH_CONTRADICTED
        )


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize(
    "uid",
    [
        ImplicitVRLittleEndian,
        ExplicitVRLittleEndian,
        ExplicitVRBigEndian,
        DeflatedExplicitVRLittleEndian,
        *WORDS,
    ],
)
def test_a_deeper_picture_is_refused_under_every_syntax(uid, is_signed):
    says_so_itself = is_signed and uid in (JPEG2000Lossless, HTJ2KLossless)
    expected = Reason.CODESTREAM_MISMATCH if says_so_itself else Reason.DEPTH_CONTRADICTED
    assert reason_of(words(picture(15, is_signed=is_signed), 12, uid)) is expected


@pytest.mark.parametrize(
    "uid", [JPEGLosslessSV1, JPEGLSLossless, JPEG2000Lossless, JPEGExtended12Bit]
)
def test_a_codestream_that_says_its_own_depth_contradicts_a_lesser_one(uid):
    array = picture(12)
    assert (
        reason_of(enclosed(ENCODERS[uid].encode(array, 12), array, uid, 10))
        is Reason.CODESTREAM_MISMATCH
    )


@pytest.mark.parametrize(
    "attributes",
    [{"PhotometricInterpretation": "MONOCHROME1"}, {"WindowCenter": 2048, "WindowWidth": 4096}],
)
@pytest.mark.parametrize(
    "recipe", ["torchxrayvision_224", "torchxrayvision_riken_320", "chexpert_320"]
)
def test_no_recipe_sees_a_wrapped_picture(recipe, attributes):
    spec = InputSpec.from_mapping({"recipe": recipe})
    with pytest.raises(NotAnalysable) as refused:
        prepare(words(picture(15), 12, **attributes), spec)
    assert refused.value.reason is Reason.DEPTH_CONTRADICTED


def test_the_first_of_several_frames_is_judged_too():
    both = np.concatenate([picture(15), picture(15, seed=1)])
    dataset = words(both, 12, Rows=96, NumberOfFrames=2)
    assert reason_of(dataset, frames="first") is Reason.DEPTH_CONTRADICTED


@pytest.mark.parametrize("samples", ["luma", "first_channel"])
def test_colour_is_judged_too(samples):
    rgb = np.stack([picture(12, seed=seed) for seed in range(3)], axis=-1)
    colour = {
        "SamplesPerPixel": 3,
        "PhotometricInterpretation": "RGB",
        "PlanarConfiguration": 0,
        "PixelData": rgb.tobytes(),
    }
    assert reason_of(words(rgb[..., 0], 10, **colour), rgb=samples) is Reason.DEPTH_CONTRADICTED


@pytest.mark.parametrize("bits", [7, 5])
def test_words_of_eight_bits_are_judged_too(bits):
    assert reason_of(radiograph(picture(8).astype(np.uint8), bits)) is Reason.DEPTH_CONTRADICTED


@pytest.mark.parametrize("reduce", [1, 2])
@pytest.mark.parametrize("most", [4500, 6000, 60000])
def test_a_deeper_picture_is_refused_at_a_lower_resolution_too(reduce, most):
    """The low-pass band overshoots at edges.

    What exceeds by less than that is looked for in the whole picture.
    """
    array = (picture(12).astype(np.uint32) * most // 4095).astype(np.uint16)
    for uid in (JPEG2000Lossless, HTJ2KLossless):
        assert reason_of(words(array, 12, uid), reduce=reduce) in (
            Reason.DEPTH_CONTRADICTED,
            Reason.CODESTREAM_MISMATCH,
        )


def test_flat_levels_without_noise_are_no_overlay():
    """Cleared, each level is near the next, and yet another one."""
    levels = np.array([0, 1100, 2200, 3300], np.uint16)
    array = levels[np.add.outer(np.arange(96) // 24, np.arange(88) // 22) % 4]
    assert reason_of(words(array, 10)) is Reason.DEPTH_CONTRADICTED


def test_a_negative_picture_under_pixel_representation_0_is_refused():
    assert (
        reason_of(words(picture(12, is_signed=True), 12, PixelRepresentation=0))
        is Reason.DEPTH_CONTRADICTED
    )


@pytest.mark.parametrize("uid", [ExplicitVRLittleEndian, *WORDS])
def test_an_unsigned_picture_under_pixel_representation_1_is_refused(uid):
    """Read as two's complement it is black where it was white.

    Words of 12 signed bits without extension look alike but for that.
    """
    unsigned = words(picture(12), 12, uid, PixelRepresentation=1)
    assert reason_of(unsigned) is Reason.DEPTH_CONTRADICTED
    bare = picture(12, is_signed=True).view(np.uint16) & 0x0FFF
    stored = decode(words(bare, 12, uid, PixelRepresentation=1))
    assert np.array_equal(stored.array, picture(12, is_signed=True))
    assert stored.flags == ()


@pytest.mark.parametrize("high_bit", [13, 15])
def test_a_sign_is_looked_for_where_high_bit_says_that_it_is(high_bit):
    shift = high_bit - 11
    assert (
        reason_of(words(picture(12) << shift, 12, HighBit=high_bit, PixelRepresentation=1))
        is Reason.DEPTH_CONTRADICTED
    )
    bare = (picture(12, is_signed=True).view(np.uint16) & 0x0FFF) << shift
    assert np.array_equal(
        decode(words(bare, 12, HighBit=high_bit, PixelRepresentation=1)).array,
        picture(12, is_signed=True),
    )


@pytest.mark.parametrize("is_signed", [False, True])
def test_bits_above_high_bit_are_judged_too(is_signed):
    """12 bits of 16 between two that are neither."""
    array = picture(12, is_signed=is_signed)
    placed = (array.view(np.uint16) & 0x0FFF) << 2
    stored = decode(words((placed | drawn(15)).view(array.dtype), 12, HighBit=13))
    assert np.array_equal(stored.array, array)
    assert stored.flags == (Flag.HIGH_BITS_CLEARED,)
    deeper = picture(15, is_signed=is_signed) << 1
    assert reason_of(words(deeper.astype(array.dtype), 12, HighBit=12)) is Reason.DEPTH_CONTRADICTED


@pytest.mark.parametrize("uid", [JPEGLosslessSV1, JPEGLSLossless, JPEG2000Lossless])
def test_an_unsigned_codestream_of_twelve_bits_under_pixel_representation_1_is_refused(uid):
    array = picture(12)
    assert (
        reason_of(enclosed(ENCODERS[uid].encode(array, 12), array, uid, 12, PixelRepresentation=1))
        is Reason.DEPTH_CONTRADICTED
    )


def test_words_with_and_without_sign_extension_are_the_same_picture():
    """Black and white side by side look like neighbours without a sign, too."""
    array = picture(12, is_signed=True)
    array[50:90, 10:70:2], array[50:90, 11:70:2] = -2048, 2047
    mixed = np.where(np.arange(96)[:, None] < 20, array, array.view(np.uint16) & 0x0FFF).astype(
        np.int16
    )
    stored = decode(words(mixed, 12))
    assert np.array_equal(stored.array, array)
    assert stored.flags == ()


def test_black_and_white_alone_are_believed_to_be_signed():
    array = np.where(np.add.outer(np.arange(96) // 8, np.arange(88) // 8) % 2, 2047, -2048).astype(
        np.int16
    )
    assert np.array_equal(
        decode(words(array.view(np.uint16) & 0x0FFF, 12, PixelRepresentation=1)).array, array
    )


def test_a_signed_picture_that_is_deeper_on_one_side_is_refused():
    array = (picture(13).astype(np.int32) * 3 // 4 - 2048).astype(np.int16)
    assert array.min() == -2048
    assert 3000 < array.max() < 4096
    assert reason_of(words(array, 12)) is Reason.DEPTH_CONTRADICTED


def test_the_layer_below_any_policy_masks_as_pydicom_does():
    array = picture(15)
    assert np.array_equal(decode_frames(words(array, 12)), array & 0x0FFF)


# --- bits that do not belong to the picture
# ---------------------------------------------------------------------------


def drawn(bit: int) -> NDArray[np.uint16]:
    """Letters and a frame in one bit of each word."""
    plane = np.zeros((96, 88), np.uint16)
    plane[10:30:4, 12:60], plane[10:30, 12:16], plane[70:90, 50:52], plane[40:44, 20:80] = (
        1,
        1,
        1,
        1,
    )
    return plane << bit


@pytest.mark.parametrize("uid", [ExplicitVRLittleEndian, ExplicitVRBigEndian, *WORDS])
@pytest.mark.parametrize("bit", [12, 15])
def test_an_overlay_is_cleared_although_nobody_says_that_there_is_one(bit, uid):
    array = picture(12)
    stored = decode(words(array | drawn(bit), 12, uid))
    assert np.array_equal(stored.array, array)
    assert stored.flags == (Flag.HIGH_BITS_CLEARED,)


@pytest.mark.parametrize("is_signed", [False, True])
def test_bits_that_are_random_are_cleared(is_signed):
    array = picture(12, is_signed=is_signed)
    garbage = np.random.default_rng(3).integers(0, 16, array.shape).astype(np.uint16) << 12
    stored = decode(words(((array.view(np.uint16) & 0x0FFF) | garbage).view(array.dtype), 12))
    assert np.array_equal(stored.array, array)
    assert stored.flags == (Flag.HIGH_BITS_CLEARED,)


@pytest.mark.parametrize(
    ("constant", "is_signed"), [*product([0x1000, 0x8000, 0xF000], [False, True])]
)
def test_bits_that_are_the_same_everywhere_are_cleared(constant, is_signed):
    array = picture(12, is_signed=is_signed)
    stored = decode(
        words(((array.view(np.uint16) & 0x0FFF) | np.uint16(constant)).view(array.dtype), 12)
    )
    assert np.array_equal(stored.array, array)
    assert stored.flags == (Flag.HIGH_BITS_CLEARED,)


def announced(bit: int, **attributes: Any) -> dict[int, tuple[str, Any]]:
    """The elements of an overlay group that keeps its overlay in a bit of the pixels."""
    elements = {
        0x60000010: ("US", 96),
        0x60000011: ("US", 88),
        0x60000100: ("US", 16),
        0x60000102: ("US", bit),
    }
    return elements | {int(tag, 16): value for tag, value in attributes.items()}


def with_elements(dataset: Dataset, elements: dict[int, tuple[str, Any]]) -> Dataset:
    for tag, (vr, value) in elements.items():
        dataset.add_new(tag, vr, value)
    return dataset


def test_an_overlay_that_follows_the_edges_of_the_picture_is_cleared_where_it_is_announced():
    """A shutter: set where the picture is black, which looks like a picture that goes on beyond its range."""
    array = picture(12)
    array[:, :20] = 0
    shutter = np.where(array == 0, 0x1000, 0).astype(np.uint16)
    stored = decode(with_elements(words(array | shutter, 12), announced(12)))
    assert np.array_equal(stored.array, array)
    assert stored.flags == (Flag.HIGH_BITS_CLEARED,)


@pytest.mark.parametrize(
    "elements",
    [
        announced(13),
        announced(12, **{"60003000": ("OW", bytes(1056))}),
        announced(12, **{"60000100": ("US", 1)}),
    ],
    ids=["another bit", "Overlay Data of its own", "other Bits Allocated"],
)
def test_an_overlay_that_is_elsewhere_explains_nothing(elements):
    assert reason_of(with_elements(words(picture(13), 12), elements)) is Reason.DEPTH_CONTRADICTED


def test_an_announced_overlay_explains_its_own_bit_only():
    assert (
        reason_of(with_elements(words(picture(15) | drawn(15), 12), announced(15)))
        is Reason.DEPTH_CONTRADICTED
    )


@pytest.mark.parametrize("value", ["12", -1, 99, None])
def test_an_overlay_position_that_is_none_is_passed_over(value):
    vr = "LO" if isinstance(value, str) else "SS"
    stored = decode(with_elements(words(picture(12) | drawn(12), 12), {0x60000102: (vr, value)}))
    assert stored.flags == (Flag.HIGH_BITS_CLEARED,)


def test_a_few_pixels_a_little_beyond_are_clamped():
    """What a lossy codec or an edge filter leaves behind after decompression, on both ends."""
    array = np.clip(picture(12).astype(int), 100, 4095)
    array[20, 20:23], array[60, 60:62] = 4120, -5
    stored = decode(words(array.astype(np.int16).view(np.uint16), 12))
    assert stored.flags == (Flag.VALUES_CLAMPED,)
    assert np.array_equal(stored.array, np.clip(array, 0, 4095))


# --- bits that are not where High Bit says
# ----------------------------------------------------------------------------


ON_TOP = [
    *product([8, 10, 12, 15], [False], [ExplicitVRLittleEndian, *WORDS]),
    *product(
        [12], [True], [ExplicitVRLittleEndian, *WORDS[:4]]
    ),  # signed wavelet codestreams hold values and no words
]


@pytest.mark.parametrize(("stored_bits", "is_signed", "uid"), ON_TOP)
def test_words_on_top_although_high_bit_says_below_are_moved_down(stored_bits, is_signed, uid):
    array = picture(stored_bits, is_signed=is_signed)
    stored = decode(words((array << (16 - stored_bits)).astype(array.dtype), stored_bits, uid))
    assert np.array_equal(stored.array, array)
    assert stored.flags == (Flag.BITS_STORED_DOUBTFUL,)


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("high_bit", [13, 15])
def test_words_below_although_high_bit_says_on_top_are_left_there(high_bit, is_signed):
    array = picture(12, is_signed=is_signed)
    stored = decode(words(array, 12, HighBit=high_bit))
    assert np.array_equal(stored.array, array)
    assert stored.flags == (Flag.BITS_STORED_DOUBTFUL,)


@pytest.mark.parametrize("is_signed", [False, True])
def test_words_on_top_with_an_overlay_below_are_what_high_bit_says(is_signed):
    array = picture(12, is_signed=is_signed)
    stored = decode(
        words(((array << 4).view(np.uint16) | drawn(0)).view(array.dtype), 12, HighBit=15)
    )
    assert np.array_equal(stored.array, array)
    assert stored.flags == (Flag.HIGH_BITS_CLEARED,)


def test_less_bits_on_top_than_stored_are_not_moved():
    """14 bits on top under Bits Stored 12.

    Two of them would be lost, and which ones is not known.
    """
    assert reason_of(words((picture(14) << 2).astype(np.uint16), 12)) is Reason.DEPTH_CONTRADICTED


# --- the tensors
# ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ["torchxrayvision_224", "chexpert_320"])
def test_a_cleared_picture_gives_the_tensor_of_a_clean_one_by_compiled_code_and_by_torch(recipe):
    spec = InputSpec.from_mapping({"recipe": recipe})
    for is_signed in (False, True):
        array = picture(12, is_signed=is_signed)
        clean, drawn_on = (
            words(array, 12),
            words((array.view(np.uint16) & 0x0FFF | drawn(13)).view(array.dtype), 12),
        )
        assert torch.equal(prepare(drawn_on, spec).tensor, prepare(clean, spec).tensor)
        fp16 = [
            prepare_stored(decode(dataset), spec, "cpu", "fp16") for dataset in (drawn_on, clean)
        ]
        assert torch.equal(*fp16)


def test_signed_values_that_fit_are_not_copied():
    dataset = words(picture(12, is_signed=True), 12)
    stored: StoredValues = decode(dataset)
    assert np.shares_memory(stored.array, np.frombuffer(dataset.PixelData, np.uint8))
    assert stored.ends in (
        None,
        (stored.array.min(), stored.array.max()),
    ), "None where no C compiler was"
