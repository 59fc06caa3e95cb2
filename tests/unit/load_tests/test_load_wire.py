"""Bytes that the load test puts on the wire itself."""

from __future__ import annotations

import random
from io import BytesIO

import numpy as np
import pydicom
import pytest
from pydicom.uid import DeflatedExplicitVRLittleEndian, ImplicitVRLittleEndian, JPEGBaseline8Bit

from load_tests.load.mix import Mix, Part
from testing.network import wire
from testing.phantoms.encoded import UID_BYTES, Template, encode, fresh_objects, fresh_uid
from testing.phantoms.phantom import make_instance, make_study
from testing.phantoms.pixel_codecs import SYNTAXES, draw_study


def bytes_of(pdus: list[bytes | memoryview]) -> bytes:
    return b"".join(bytes(piece) for piece in pdus)


@pytest.mark.parametrize("maximum", [14, 16, 20, 16_384, 0])
@pytest.mark.parametrize("sizes", [(1000,), (3, 997), (500, 0, 499), (8, 8, 8)])
def test_a_message_in_pieces_arrives_whole_in_pdus_of_the_negotiated_size(
    maximum: int, sizes: tuple[int, ...]
):
    pieces = [random.Random(size).randbytes(size) for size in sizes]
    left, found = bytes_of(list(wire.p_data(5, pieces, maximum, is_command=False))), b""
    ends = []
    while left:
        size = 6 + int.from_bytes(left[2:6], "big")
        assert size - 6 <= (maximum or size)
        ((context_id, is_command, is_last, content),) = wire.pdvs(left[:size])
        assert (left[0], context_id, is_command) == (wire.P_DATA_TF, 5, False)
        ends.append(is_last)
        found, left = found + bytes(content), left[size:]
    assert found == b"".join(pieces)
    assert ends == [False] * (len(ends) - 1) + [True]


def test_a_command_set_is_read_back():
    written = wire.command_set(
        {
            wire.COMMAND_FIELD: wire.C_STORE_RQ,
            wire.AFFECTED_SOP_INSTANCE_UID: "1.2.3",
            wire.STATUS: 0xA700,
        }
    )
    found = wire.read_command_set(written)
    assert wire.number_in(found, wire.STATUS) == 0xA700
    assert wire.text_in(found, wire.AFFECTED_SOP_INSTANCE_UID) == "1.2.3"
    assert int.from_bytes(found[0], "little") == len(written) - 12


def read(template: Template, uid: str, pieces: tuple[bytes | memoryview, ...]) -> pydicom.Dataset:
    is_implicit = template.transfer_syntax_uid == ImplicitVRLittleEndian
    dataset = pydicom.filereader.read_dataset(
        BytesIO(bytes_of(list(pieces))), is_implicit, is_little_endian=True
    )
    assert dataset.SOPInstanceUID == uid
    return dataset


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_a_fresh_object_differs_in_its_uids_only(syntax: str):
    (image,) = draw_study(1, "DX", syntax, 32, 32, 12, 1)
    template = encode(image)
    study_uid, (first,) = fresh_objects([template], random.Random(1))
    other_uid, (second,) = fresh_objects([template], random.Random(2))
    found = read(template, first.sop_instance_uid, first.pieces)
    assert {found.StudyInstanceUID} == {study_uid} != {other_uid}
    assert found.SOPInstanceUID != second.sop_instance_uid
    assert len(bytes_of(list(first.pieces))) == len(bytes_of(list(second.pieces))) == template.size
    for keyword in ("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID"):
        setattr(found, keyword, image[keyword].value)
    assert found == image


@pytest.mark.parametrize("syntax", ["JPEGLSLossless", "JPEG2000Lossless", "JPEGLosslessSV1"])
def test_a_lossless_phantom_has_the_pixels_of_the_plain_one(syntax: str):
    import imagecodecs

    (plain,), (compressed,) = (
        draw_study(1, "DX", name, 32, 32, 12, 1) for name in ("ExplicitVRLittleEndian", syntax)
    )
    decode = {
        "JPEGLSLossless": imagecodecs.jpegls_decode,
        "JPEG2000Lossless": imagecodecs.jpeg2k_decode,
    }.get(syntax, imagecodecs.ljpeg_decode)
    (frame,) = pydicom.encaps.generate_frames(compressed.PixelData, number_of_frames=1)
    np.testing.assert_array_equal(decode(frame), plain.pixel_array)


def test_uids_have_one_length_and_are_uids():
    uids = [fresh_uid(random.Random(seed)) for seed in range(200)]
    assert {len(uid) for uid in uids} == {UID_BYTES}
    assert all(pydicom.uid.UID(uid).is_valid for uid in uids)


def test_what_cannot_be_patched_is_refused():
    image = make_instance(rows=16, columns=16)
    image.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    with pytest.raises(ValueError, match="deflated"):
        encode(image)


def test_a_mix_comes_back_from_its_files_and_keeps_to_its_weights(tmp_path):
    kinds = (
        make_study(1, rows=16, columns=16),
        make_study(2, "SC", rows=16, columns=16, transfer_syntax_uid=JPEGBaseline8Bit),
    )
    parts = [
        Part(weight, ae, (tuple(encode(image) for image in study),))
        for weight, ae, study in zip((3, 1), ("A", "B"), kinds, strict=True)
    ]
    mix = Mix(tuple(parts))
    mix.save(tmp_path)
    loaded = Mix.load(tmp_path)
    callers = [loaded.study(number, random.Random(0))[0] for number in range(400)]
    assert callers.count("A") == pytest.approx(300, abs=40)
    assert callers == [mix.study(number, random.Random(9))[0] for number in range(400)]
    assert loaded.wire_kinds == mix.wire_kinds
    for number in range(8):
        ours, theirs = (each.study(number, random.Random(5))[2] for each in (mix, loaded))
        assert [bytes_of(list(image.pieces)) for image in ours] == [
            bytes_of(list(image.pieces)) for image in theirs
        ]
