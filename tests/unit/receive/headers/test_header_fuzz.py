"""Whatever a header holds: the receive room takes it or refuses it, and what it took ends as a tensor or for a reason of the list.

No exception but the documented ones; every other one would cost a decode process three times over.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydicom.datadict import tag_for_keyword
from pydicom.uid import (
    DigitalXRayImageStorageForPresentation,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
)
from pynetdicom.dsutils import encode as encode_bare

from hilum import domain
from hilum.analyse.decode.prepare import prepare_for_releases
from hilum.analyse.decode.worker import DecodeRequest, NotReady, Ready
from hilum.receive.headers import file_meta
from hilum.receive.headers.file_meta import FileMeta
from hilum.receive.headers.header import read_header
from hilum.receive.indexing.describe import describe
from hilum.receive.statuses import CannotUnderstand
from hilum_preprocessing.header.element_index import END, EXPLICIT_LITTLE, index
from testing.phantoms import phantom

SPECS = {
    "window@1": {
        "recipe": "vit_imagenet_half_224",
        "population": {"minimum_age_years": 18, "cites": "a test"},
    },
    "plain@1": {"recipe": "torchxrayvision_224"},
}
SYNTAXES = (ExplicitVRLittleEndian, ImplicitVRLittleEndian)
REASONS = set(domain.REASONS)
VRS = b"AE AS AT CS DA DS DT FL FD IS LO LT OB OD OF OW PN SH SL SQ SS ST TM UC UI UL UN UR US UT XX".split()
UIDS = {0x00080016, 0x00080018, 0x0020000D, 0x0020000E}
PIXELS = 0x7FE00010
# What the guard, the decoder and the grayscale steps look at, and sequences that must not be walked
# into.
LOOKED_AT = [
    0x00091001,
    0xFFFEE00D,
    *(
        int(tag)
        for word in [
            "SpecificCharacterSet",
            "ImageType",
            "Modality",
            "SeriesDescription",
            "PresentationIntentType",
            "PatientName",
            "PatientBirthDate",
            "PatientAge",
            "StudyDate",
            "BodyPartExamined",
            "ViewPosition",
            "ProtocolName",
            "AcquisitionDeviceProcessingDescription",
            "PatientOrientation",
            "SamplesPerPixel",
            "PhotometricInterpretation",
            "NumberOfFrames",
            "Rows",
            "Columns",
            "BitsAllocated",
            "BitsStored",
            "HighBit",
            "PixelRepresentation",
            "PixelPaddingValue",
            "PixelPaddingRangeLimit",
            "WindowCenter",
            "WindowWidth",
            "RescaleIntercept",
            "RescaleSlope",
            "VOILUTFunction",
            "LossyImageCompression",
            "BurnedInAnnotation",
            "ModalityLUTSequence",
            "VOILUTSequence",
            "ViewCodeSequence",
            "FloatPixelData",
            "PixelData",
        ]
        if (tag := tag_for_keyword(word)) is not None
    ),
]
NASTY = [
    b"",
    b"\0",
    b" " * 64,
    b"1A",
    b"-1",
    b"1e999",
    b"nan",
    b"\\\\\\",
    b"\xff\xff",
    b"\xff" * 70,
    b"ISO 2022 IR 87",
    b"0" * 2000,
]
NASTY += [
    b"YES",
    b"\x1b$B;3ED",
    b"99999999999999999999",
    b"\xfe\xff\x00\xe0\x08\x00\x00\x00" + b"\x28\x00\x10\x00\xff\xff\xff\xff",
    b"062",
]


Piece = tuple[int, bytes, bytes]


@cache
def pieces() -> tuple[Piece, ...]:
    """Elements of a small DX image: tag, VR, value."""
    encoded = encode_bare(
        phantom.make_instance(3, rows=24, columns=24), is_implicit_vr=False, is_little_endian=True
    )
    assert encoded is not None
    view = memoryview(encoded)
    found = list(index(view, EXPLICIT_LITTLE, range(END)).values())
    ends = [item.start for item in found[1:]] + [len(encoded)]
    return tuple(
        (item.tag, item.vr, encoded[item.value : end])
        for item, end in zip(found, ends, strict=True)
    )


def encode(items: Sequence[Piece], transfer_syntax_uid: str) -> bytes:
    return b"".join(
        _element(*item, is_implicit=transfer_syntax_uid == ImplicitVRLittleEndian)
        for item in sorted(items, key=lambda x: x[0])
    )


def _element(tag: int, vr: bytes, value: bytes, *, is_implicit: bool) -> bytes:
    head = (tag >> 16).to_bytes(2, "little") + (tag & 0xFFFF).to_bytes(2, "little")
    value += b"\0" * (len(value) % 2)
    if is_implicit:
        return head + len(value).to_bytes(4, "little") + value
    if vr in (b"OB", b"OD", b"OF", b"OW", b"SQ", b"UC", b"UN", b"UR", b"UT", b"XX"):
        return head + vr + b"\0\0" + len(value).to_bytes(4, "little") + value
    return head + vr + len(value).to_bytes(2, "little") + value


values = st.sampled_from(NASTY) | st.binary(max_size=40)
changed = st.tuples(st.sampled_from(LOOKED_AT), st.sampled_from([b"", *VRS]), values)
removed = st.sampled_from(LOOKED_AT)


def mutate(changes: Sequence[Piece], removals: Sequence[int]) -> list[Piece]:
    """The image with some elements changed (VR b"": its own), added, or gone."""
    found = {tag: (tag, vr, value) for tag, vr, value in pieces() if tag not in removals}
    for tag, vr, value in changes:
        own = found.get(tag, (tag, b"LO", b""))[1]
        found[tag] = (tag, vr or own, value)
    return list(found.values())


def received(encoded: bytes, transfer_syntax_uid: str, folder: Path) -> Path | None:
    """What intake does: the file, or None where the answer says why not."""
    try:
        header = read_header(encoded, transfer_syntax_uid)
    except CannotUnderstand:
        return None
    meta = FileMeta(
        header.sop_class_uid, header.sop_instance_uid, transfer_syntax_uid, "FUZZ", "HILUM"
    )
    path = folder / "0123456789abcdef.dcm"
    path.write_bytes(file_meta.encode(meta) + encoded)
    return path


def ends_honestly(
    encoded: bytes, transfer_syntax_uid: str, folder: Path
) -> dict[str, Ready | NotReady] | None:
    path = received(encoded, transfer_syntax_uid, folder)
    if path is None:
        return None
    instance = describe(path)  # whatever is acknowledged can be indexed
    assert instance.sop_instance_uid
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = prepare_for_releases(DecodeRequest(path, SPECS, 1 << 20, "cpu"))
    assert answer.keys() == SPECS.keys()
    for item in answer.values():
        assert isinstance(item, Ready) or (item.reason in REASONS and item.detail), item
    return answer


def seconds_allowed(function: Callable[..., None]) -> Callable[..., None]:
    """Few examples a run: hypothesis remembers what it found, and each run draws others."""
    return settings(
        max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )(function)


@pytest.mark.parametrize("syntax", SYNTAXES, ids=["explicit", "implicit"])
def test_the_control_is_read(syntax: str, tmp_path: Path) -> None:
    answer = ends_honestly(encode(pieces(), syntax), syntax, tmp_path)
    assert answer is not None
    assert all(isinstance(item, Ready) for item in answer.values())


@seconds_allowed
@given(
    changes=st.lists(changed, max_size=4),
    removals=st.lists(removed, max_size=2),
    syntax=st.sampled_from(SYNTAXES),
)
def test_changed_elements(
    changes: list[Piece], removals: list[int], syntax: str, tmp_path: Path
) -> None:
    ends_honestly(encode(mutate(changes, removals), syntax), syntax, tmp_path)


@seconds_allowed
@given(data=st.data(), syntax=st.sampled_from((*SYNTAXES, ExplicitVRBigEndian)))
def test_changed_bytes(data: st.DataObject, syntax: str, tmp_path: Path) -> None:
    encoded = bytearray(encode(pieces(), SYNTAXES[syntax == ImplicitVRLittleEndian]))
    header_end = len(encoded) - 24 * 24 * 2
    for _ in range(data.draw(st.integers(0, 6))):
        encoded[data.draw(st.integers(0, header_end - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(encoded)) | st.just(len(encoded)))
    ends_honestly(bytes(encoded[:end]), syntax, tmp_path)


def test_a_header_of_one_class_and_a_body_of_nonsense(tmp_path: Path) -> None:
    uids = [item for item in pieces() if item[0] in UIDS]
    assert ends_honestly(
        encode(uids, ExplicitVRLittleEndian), ExplicitVRLittleEndian, tmp_path
    ) == {name: NotReady("no_pixel_data", "Pixel Data is missing or empty") for name in SPECS}
    assert {tag: value for tag, _, value in uids}[0x00080016].rstrip(
        b"\0"
    ).decode() == DigitalXRayImageStorageForPresentation
    assert PIXELS not in {tag for tag, *_ in uids}
