"""Lookup tables whose descriptor contradicts their entries.

The entries decide where they are certain, else a flag says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian

from hilum_preprocessing import (
    Flag,
    NotAnalysable,
    Reason,
    decode,
    level_flags,
    prepare_stored,
    read_file,
)
from hilum_preprocessing.header.lookup_table import LookupTable, lookup_table
from tests.support.objects.radiograph import radiograph, scene, spec, under

STORED = scene(64, 60)
SHOWN = spec("vit_imagenet_half_224")
CORRECTED, DOUBTFUL = (Flag.LUT_CORRECTED,), (Flag.LUT_DOUBTFUL,)


def curve(top: int, count: int = 4096) -> NDArray[np.int64]:
    """A soft S from 0 to `top`."""
    inputs = np.linspace(-4, 4, count)
    part = 1 / (1 + np.exp(-inputs))
    return np.rint((part - part[0]) / (part[-1] - part[0]) * top).astype(np.int64)


def item(descriptor: list[int], data: Any, vr: str = "US") -> Dataset:
    made = Dataset()
    made.add_new("LUTDescriptor", "SS" if descriptor[1] < 0 else "US", descriptor)
    made.add_new("LUTData", vr, data)
    made.ModalityLUTType = "US"
    return made


def words(entries: NDArray[Any]) -> bytes:
    return entries.astype("<u2").tobytes()


def pictured(
    keyword: str, table: Dataset, stored: NDArray[Any] = STORED, **attributes: Any
) -> tuple[NDArray[Any], tuple[str, ...]]:
    """The wire tensor in numbers, and what is in doubt."""
    found = decode(radiograph(stored, 12, **{keyword: Sequence([table])}, **attributes))
    return prepare_stored(found, SHOWN).numpy().astype(int), level_flags(found, SHOWN)


@pytest.mark.parametrize("keyword", ["VOILUTSequence", "ModalityLUTSequence"])
@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
@pytest.mark.parametrize(
    ("said", "top"),
    [
        (16, 4095),
        (16, 1023),
        (16, 255),
        (16, 32767),
        (12, 1023),
        (12, 2047),
        (10, 255),
        (8, 4095),
        (10, 4095),
        (12, 65535),
        (0, 4095),
    ],
)
def test_the_range_is_that_of_entries_that_reach_its_top(keyword, photometric, said, top):
    """Black, white or wrapped without it.

    16 bits are said for the size of the words, or 8 for a display.
    """
    right = item([4096, 0, top.bit_length()], curve(top).tolist())
    wrong = item([4096, 0, said], curve(top).tolist())
    expected, none = pictured(keyword, right, PhotometricInterpretation=photometric)
    found, flags = pictured(keyword, wrong, PhotometricInterpretation=photometric)
    assert (none, flags) == ((), CORRECTED)
    assert np.array_equal(found, expected)
    assert np.ptp(found) > 200, "neither black nor white"


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("top", [4094, 4090, 4030])
def test_curves_that_end_softly_below_the_top_show_it_too(top, descending):
    entries = curve(top)[::-1] if descending else curve(top)
    found, flags = pictured("VOILUTSequence", item([4096, 0, 16], entries.tolist()))
    expected, _ = pictured("VOILUTSequence", item([4096, 0, 12], entries.tolist()))
    assert flags == CORRECTED
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("top", [30000, 32700, 3000, 300])
def test_a_table_of_less_than_half_of_its_range_is_believed_and_flagged(top):
    """A dark curve, or another depth: nothing says which."""
    found, flags = pictured("VOILUTSequence", item([4096, 0, 16], curve(top).tolist()))
    assert flags == DOUBTFUL
    assert found.max() == pytest.approx(top / 65535 * 255, abs=1)


@pytest.mark.parametrize(
    ("said", "top"),
    [(16, 65535), (16, 40000), (12, 4095), (12, 2100), (10, 1023), (8, 255), (8, 90)],
)
def test_a_descriptor_that_fits_its_entries_is_believed_without_a_word(said, top):
    found, flags = pictured("VOILUTSequence", item([4096, 0, said], curve(top).tolist()))
    assert flags == ()
    assert found.max() == pytest.approx(top / ((1 << said) - 1) * 255, abs=1)


def test_entries_of_the_whole_table_decide_and_not_those_that_a_picture_uses():
    dark = (STORED // 16).astype(np.uint16)
    table = item([4096, 0, 16], (np.arange(4096) * 16 + 15).tolist())
    found, flags = pictured("VOILUTSequence", table, dark)
    assert flags == ()
    assert found.max() < 20


def test_bits_above_all_entries_alike_are_padding():
    """PS3.3 C.11.1.1.1, note: 8-bit entries in words with padded high bits."""
    padded = (np.arange(4096) // 16) | 0xFF00
    found, flags = pictured("VOILUTSequence", item([4096, 0, 8], padded.tolist()))
    expected, _ = pictured("VOILUTSequence", item([4096, 0, 8], (np.arange(4096) // 16).tolist()))
    assert np.array_equal(found, expected)
    assert flags == DOUBTFUL


@pytest.mark.parametrize("vr", ["OW", "US"])
@pytest.mark.parametrize("said", [8, 16])
@pytest.mark.parametrize("count", [4096, 4095])
def test_8_bit_entries_packed_two_to_a_word(vr, said, count):
    entries = (np.arange(count) // 16).astype(np.uint8)
    packed = entries.tobytes() + b"\0" * (count % 2)
    data = packed if vr == "OW" else np.frombuffer(packed, "<u2").tolist()
    found, flags = pictured("VOILUTSequence", item([count, 0, said], data, vr))
    expected, _ = pictured("VOILUTSequence", item([count, 0, 8], entries.tolist()))
    assert flags == (() if said == 8 else CORRECTED)
    assert np.array_equal(found, expected)


def test_half_of_a_table_of_words_is_not_taken_for_8_bit_entries():
    half = words(curve(65535, 4096))[:4096]
    _, flags = pictured("VOILUTSequence", item([4096, 0, 16], half, "OW"))
    assert flags == (Flag.VOI_UNUSABLE,)
    with pytest.raises(NotAnalysable) as refused:
        pictured("ModalityLUTSequence", item([4096, 0, 16], half, "OW"))
    assert refused.value.reason is Reason.CORRUPT_HEADER
    assert "2048 of 4096 entries" in refused.value.detail


@pytest.mark.parametrize(("count", "held"), [(4096, 4095), (0, 4096), (4096, 256)])
def test_too_few_entries_are_no_table(count, held):
    _, flags = pictured("VOILUTSequence", item([count, 0, 16], words(curve(65535, held)), "OW"))
    assert flags == (Flag.VOI_UNUSABLE,)


@pytest.mark.parametrize("keyword", ["VOILUTSequence", "ModalityLUTSequence"])
def test_entries_beyond_the_count_are_part_of_the_table(keyword):
    """256 said, 4096 there: the 257th and all beyond would be one grey."""
    found, flags = pictured(keyword, item([256, 0, 16], words(curve(65535)), "OW"))
    expected, _ = pictured(keyword, item([4096, 0, 16], words(curve(65535)), "OW"))
    assert flags == CORRECTED
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("fill", [0, 65535])
def test_zeros_and_repetitions_beyond_the_count_fill_the_data_up(fill):
    entries = curve(65535, 2000)
    found, flags = pictured(
        "VOILUTSequence", item([2000, 0, 16], words(np.append(entries, [fill] * 96)), "OW")
    )
    expected, _ = pictured("VOILUTSequence", item([2000, 0, 16], words(entries), "OW"))
    assert flags == ()
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("uid", [ImplicitVRLittleEndian, ExplicitVRLittleEndian])
@pytest.mark.parametrize("is_undefined_length", [False, True])
def test_a_signed_first_input_beside_a_wrong_depth(tmp_path, uid, is_undefined_length):
    stored = STORED.astype(np.int16) - 2048
    tensors = []
    for number, bits in enumerate((12, 16)):
        sequence = Sequence([item([4096, -2048, bits], curve(4095).tolist())])
        sequence.is_undefined_length = is_undefined_length
        dataset = radiograph(stored, 12, SOPInstanceUID="1.2.3", VOILUTSequence=sequence)
        dataset["VOILUTSequence"].is_undefined_length = is_undefined_length
        path = tmp_path / f"{number}.dcm"
        under(dataset, uid).save_as(path, enforce_file_format=True)
        found = decode(read_file(path))
        assert level_flags(found, SHOWN) == (CORRECTED if bits == 16 else ())
        tensors.append(prepare_stored(found, SHOWN).numpy())
    assert np.array_equal(*tensors)


def test_the_range_of_a_modality_lut_under_a_window_is_nobody_s_doubt():
    """What the window makes of it does not depend on it; without one, it does."""
    table = item([4096, 0, 16], curve(3000).tolist())
    window = {"WindowCenter": "1500", "WindowWidth": "3000"}
    assert pictured("ModalityLUTSequence", table, **window)[1] == ()
    assert pictured("ModalityLUTSequence", table)[1] == DOUBTFUL


@pytest.mark.parametrize("keyword", ["VOILUTSequence", "ModalityLUTSequence"])
def test_a_release_that_applies_no_table_has_no_doubt_about_it(keyword):
    table = item([4096, 0, 16], curve(4095).tolist())
    stored = decode(radiograph(STORED, 12, **{keyword: Sequence([table])}))
    assert level_flags(stored, spec("torchxrayvision_224")) == ()


@pytest.mark.parametrize("bits", [0, 4, 17, 32])
def test_a_number_of_bits_that_no_table_has_and_entries_that_show_none(bits):
    with pytest.raises(NotAnalysable, match=f"{bits} bits") as refused:
        lookup_table(item([3, 0, bits], [1, 2, 3]))
    assert refused.value.reason is Reason.CORRUPT_HEADER


def test_signed_entries_are_words():
    """Explicit VR can say SS for 65535."""
    table = lookup_table(item([2, 0, 16], [0, -1], "SS"))
    assert isinstance(table, LookupTable)
    assert (table.entries.tolist(), table.bits, table.depth_flag) == ([0, 65535], 16, None)


# --- polarity that is said twice
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("photometric", "shape", "flags"),
    [
        ("MONOCHROME1", "INVERSE", ()),
        ("MONOCHROME2", "IDENTITY", ()),
        ("MONOCHROME1", "", ()),
        ("MONOCHROME1", "IDENTITY", (Flag.POLARITY_DOUBTFUL,)),
        ("MONOCHROME2", "INVERSE", (Flag.POLARITY_DOUBTFUL,)),
        ("MONOCHROME2", "LIN OD", ()),
    ],
)
def test_a_presentation_lut_shape_against_photometric_interpretation_is_flagged(
    photometric, shape, flags
):
    stored = decode(
        radiograph(STORED, 12, PhotometricInterpretation=photometric, PresentationLUTShape=shape)
    )
    assert level_flags(stored, SHOWN) == flags
    assert level_flags(stored, spec("torchxrayvision_rsna_224")) == (), "it reads neither"


@pytest.mark.parametrize("keyword", ["VOILUTSequence", "ModalityLUTSequence"])
@pytest.mark.parametrize("said", [12, 16])
def test_entries_whose_bytes_are_in_the_other_order_are_turned(keyword, said):
    expected, none = pictured(keyword, item([4096, 0, 12], words(curve(4095)), "OW"))
    found, flags = pictured(
        keyword, item([4096, 0, said], curve(4095).astype(">u2").tobytes(), "OW")
    )
    assert (none, flags) == ((), CORRECTED)
    assert np.array_equal(found, expected)


def test_a_table_that_goes_up_and_down_keeps_the_order_of_its_bytes():
    entries = np.random.default_rng(0).integers(0, 4096, 4096)
    found = lookup_table(item([4096, 0, 12], words(entries), "OW"))
    assert (found.count_flag, found.entries.tolist()) == (None, entries.tolist())


@pytest.mark.parametrize("keyword", ["VOILUTSequence", "ModalityLUTSequence"])
def test_a_table_for_pixels_of_the_other_sign_is_flagged(keyword):
    """Half of the picture would be plain white, or plain black."""
    signed = (STORED.astype(np.int32) - 2048).astype(np.int16)
    assert pictured(keyword, item([4096, -2048, 12], curve(4095).tolist()))[1] == DOUBTFUL
    assert pictured(keyword, item([4096, 0, 12], curve(4095).tolist()), signed)[1] == DOUBTFUL
    assert pictured(keyword, item([4096, -2048, 12], curve(4095).tolist()), signed)[1] == ()


@pytest.mark.parametrize(
    ("first", "count"), [(1, 4096), (-16, 4096), (1000, 2000), (-2048, 8192), (400, 4096)]
)
def test_a_table_of_a_part_of_the_inputs_or_of_more_is_no_doubt(first, count):
    assert (
        pictured("VOILUTSequence", item([count, first, 12], curve(4095, count).tolist()))[1] == ()
    )


def test_the_inputs_of_a_voi_lut_are_the_outputs_of_a_rescale():
    table = item([4096, -1024, 12], curve(4095).tolist())
    assert pictured("VOILUTSequence", table, RescaleSlope=1, RescaleIntercept=-1024)[1] == ()
    assert pictured("VOILUTSequence", table)[1] == DOUBTFUL
