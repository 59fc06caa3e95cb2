"""From a stored file to what its row holds."""

from __future__ import annotations

import zlib
from pathlib import Path

import pydicom
import pytest
import xxhash
from pydicom.uid import DeflatedExplicitVRLittleEndian, ExplicitVRLittleEndian, JPEGBaseline8Bit

from hilum import IMPLEMENTATION_CLASS_UID
from hilum.domain import Instance
from hilum.receive.headers import file_meta
from hilum.receive.indexing.describe import describe
from hilum.receive.statuses import CannotUnderstand
from tests.support.ledger.storing import data_set, element, meta


def store(
    folder: Path,
    encoded: bytes,
    transfer_syntax_uid: str = ExplicitVRLittleEndian,
    uid: str = "1.2.3",
) -> Path:
    file = folder / "0123456789abcdef.dcm"
    file.write_bytes(file_meta.encode(meta(uid, transfer_syntax_uid)) + encoded)
    return file


def described(
    folder: Path, encoded: bytes, transfer_syntax_uid: str = ExplicitVRLittleEndian
) -> Instance:
    return describe(store(folder, encoded, transfer_syntax_uid))


def deflate(plain: bytes, level: int = 6) -> bytes:
    deflater = zlib.compressobj(level, wbits=-zlib.MAX_WBITS)
    return deflater.compress(plain) + deflater.flush()


def test_everything_about_an_instance(tmp_path: Path) -> None:
    encoded = data_set("1.2.3", study="9.8.7")
    file = store(tmp_path, encoded)
    found = describe(file)
    assert (found.sop_instance_uid, found.study_instance_uid, found.series_instance_uid) == (
        "1.2.3",
        "9.8.7",
        "9.8.7.1",
    )
    assert (found.calling_ae_title, found.called_ae_title) == ("MODALITY", "HILUM")
    assert found.transfer_syntax_uid == ExplicitVRLittleEndian
    assert found.path == "01/23/0123456789abcdef.dcm"
    assert found.size_bytes == file.stat().st_size
    assert found.received_at == file.stat().st_mtime
    assert found.digest == xxhash.xxh3_128(encoded).hexdigest()
    assert found.pixel_digest == xxhash.xxh3_128(bytes(range(256)) * 64).hexdigest()
    assert found.header + element(0x7FE00010, b"OW", bytes(range(256)) * 64) == encoded


def test_the_file_is_one_that_pydicom_reads(tmp_path: Path) -> None:
    file = pydicom.dcmread(store(tmp_path, data_set("1.2.3")))
    assert file.file_meta.TransferSyntaxUID == ExplicitVRLittleEndian
    assert file.file_meta.MediaStorageSOPInstanceUID == file.SOPInstanceUID
    assert file.file_meta.ImplementationClassUID == IMPLEMENTATION_CLASS_UID
    assert file.file_meta.SourceApplicationEntityTitle == "MODALITY"
    assert file.file_meta.SendingApplicationEntityTitle == "MODALITY"
    assert file.file_meta.ReceivingApplicationEntityTitle == "HILUM"
    assert len(file.PixelData) == 256 * 64


@pytest.mark.parametrize("ae_title", ["", "ODD", "SIXTEEN CHARS AE", "\u00e9tage"])
def test_meta_information_comes_back(ae_title: str) -> None:
    given = file_meta.FileMeta("1.2", "1.2.3", "1.2.840.10008.1.2", ae_title, "HILUM")
    encoded = file_meta.encode(given)
    found, start = file_meta.decode(encoded + b"rest")
    assert start == len(encoded)
    assert found.calling_ae_title == ae_title.replace("\u00e9", "?")
    assert (found.sop_class_uid, found.sop_instance_uid, found.transfer_syntax_uid) == (
        "1.2",
        "1.2.3",
        "1.2.840.10008.1.2",
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GET / HTTP/1.1",
        bytes(200),
        bytes(128) + b"DICM",
        bytes(128) + b"DICM" + bytes(8) + b"\xff\xff\0\0",
    ],
)
def test_what_is_not_a_dicom_file_is_said(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "x.dcm"
    file.write_bytes(content)
    with pytest.raises(CannotUnderstand):
        describe(file)


def test_other_demographics_leave_the_pixel_digest(tmp_path: Path) -> None:
    one, two = (
        described(tmp_path, data_set("1.2.3", patient_id=b"P1")),
        described(tmp_path, data_set("1.2.3", patient_id=b"OTHER1")),
    )
    assert one.pixel_digest == two.pixel_digest
    assert one.digest != two.digest


def test_what_follows_pixel_data_is_header_not_pixels(tmp_path: Path) -> None:
    encoded = data_set("1.2.3")
    padded = encoded + element(0xFFFCFFFC, b"OB", bytes(100))
    assert described(tmp_path, encoded).pixel_digest == described(tmp_path, padded).pixel_digest


def test_one_other_pixel_is_another_digest_in_any_chunk(tmp_path: Path) -> None:
    pixels = bytearray(5 << 20)
    first = described(tmp_path, data_set("1.2.3", pixels=bytes(pixels)))
    for position in (0, (1 << 20) - 1, len(pixels) - 1):
        changed = bytearray(pixels)
        changed[position] = 1
        assert (
            described(tmp_path, data_set("1.2.3", pixels=bytes(changed))).pixel_digest
            != first.pixel_digest
        )


def test_encapsulated_pixels_are_digested_to_the_end(tmp_path: Path) -> None:
    header = data_set("1.2.3", pixels=b"")[:-12]
    fragments = (
        b"\xfe\xff\0\xe0\0\0\0\0\xfe\xff\0\xe0\x04\0\0\0\xff\xd8\xff\xd9\xfe\xff\xdd\xe0\0\0\0\0"
    )
    found = described(
        tmp_path, header + b"\xe0\x7f\x10\0OB\0\0\xff\xff\xff\xff" + fragments, JPEGBaseline8Bit
    )
    assert found.header == header
    assert found.pixel_digest == xxhash.xxh3_128(fragments).hexdigest()


def test_without_pixel_data_the_digest_is_that_of_nothing(tmp_path: Path) -> None:
    assert (
        described(tmp_path, data_set("1.2.3", pixels=b"")[:-12]).pixel_digest
        == xxhash.xxh3_128(b"").hexdigest()
    )


def test_a_header_longer_than_the_first_look(tmp_path: Path) -> None:
    private = element(0x00090010, b"UN", bytes(1 << 20))
    found = described(tmp_path, private + data_set("1.2.3"))
    assert found.sop_instance_uid == "1.2.3"
    assert data_set("1.2.3").startswith(found.header), (
        "without the private element, which lies in the file"
    )


def test_deflated_pixels_are_compared_inflated(tmp_path: Path) -> None:
    plain = data_set("1.2.3", pixels=bytes(3 << 20))
    fast, small = (
        described(tmp_path, deflate(plain, level), DeflatedExplicitVRLittleEndian)
        for level in (1, 9)
    )
    assert fast.digest != small.digest
    assert fast.pixel_digest == small.pixel_digest == xxhash.xxh3_128(bytes(3 << 20)).hexdigest()
    assert plain.startswith(fast.header)


def test_a_broken_deflated_end_is_like_truncated_pixels(tmp_path: Path) -> None:
    import random

    noise = random.Random(1).randbytes(20 << 20)
    deflated = deflate(data_set("1.2.3", pixels=noise))
    broken = described(
        tmp_path, deflated[: 18 << 20] + b"\xff" * 1000, DeflatedExplicitVRLittleEndian
    )
    assert broken.sop_instance_uid == "1.2.3"
