"""A study whose every identifying attribute is a marker, in all the ways in which one can go wrong.

And where a marker may stand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydicom import Dataset
from pydicom.encaps import encapsulate
from pydicom.uid import JPEGBaseline8Bit

from testing.phantoms import phantom

# Every marker holds one of these; nothing else does. The second is a birth date, as DICOM and as
# people write it.
SIGNS = ("ZQX", "19470213", "1947-02-13", "13.02.1947")
AE_SIGN = "QZAE"
BORN = "19470213"

IDENTIFYING = {
    "PatientName": "ZQXNAME^ZQXGIVEN",
    "PatientID": "ZQXID",
    "IssuerOfPatientID": "ZQXISSUER",
    "OtherPatientIDs": "ZQXOTHER",
    "PatientBirthDate": BORN,
    "PatientAddress": "ZQXADDRESS",
    "PatientComments": "ZQXCOMMENT",
    "AccessionNumber": "ZQXACC",
    "StudyID": "ZQXSTUDY",
    "StudyDescription": "ZQX chest",
    "SeriesDescription": "ZQX series",
    "ProtocolName": "ZQX protocol",
    "ReferringPhysicianName": "ZQXREFERRER",
    "RequestingPhysician": "ZQXREQUESTER",
    "OperatorsName": "ZQXOPERATOR",
    "InstitutionName": "ZQX hospital",
    "InstitutionAddress": "ZQX street",
    "StationName": "ZQXSTATION",
    "ImageComments": "ZQX image",
    "AdmissionID": "ZQXADMISSION",
}
# Values that break the rules of their VR, so that libraries complain about them; written over
# values of the same length.
MALFORMED = {
    "PatientAge": ("062Y", "ZQXA"),
    "PatientSex": ("OOOO", "ZQXS"),
    "StudyDate": ("20260101", "ZQXDATE1"),
    "StudyTime": ("010203", "ZQXTIM"),
    "PatientBirthDate": ("19991231", "ZQXBORN1"),
    "PatientSize": ("1.770000", "ZQXSIZE1"),
    "WindowCenter": ("20470000", "ZQXWINC1"),
    "SeriesNumber": ("77777777", "ZQXSERNO"),
    "ImageType": ("ORIGINAL", "ZQXtype^"),
    "ViewPosition": ("APAPAPAP", "ZQX view"),
    "KVP": ("111.1111", "ZQXKVP11"),
}


def image(seed: int, **overrides: object) -> Dataset:
    """One small marked image of a study of its own."""
    return phantom.make_instance(
        seed, modality="DX", rows=128, columns=128, overrides={**IDENTIFYING, **overrides}
    )


def truncated(seed: int) -> Dataset:
    """Its pixels end too early."""
    dataset = image(seed)
    dataset.PixelData = dataset.PixelData[:1000]
    return dataset


def other_pixels(seed: int) -> Dataset:
    """A conflict with `image` of the same seed."""
    dataset = image(seed)
    dataset.PixelData = bytes(reversed(dataset.PixelData))
    return dataset


def undecodable(seed: int) -> Dataset:
    """A codestream that is text."""
    dataset = phantom.make_instance(
        seed,
        rows=64,
        columns=64,
        bits=8,
        transfer_syntax_uid=JPEGBaseline8Bit,
        overrides={**IDENTIFYING},
    )
    dataset.PixelData = encapsulate([b"\xff\xd8" + b"ZQXPIXELS" * 20 + b"\xff\xd9"])
    return dataset


def malformed(dataset: Dataset, path: Path, *, only: str | None = None) -> Path:
    """A file whose values break the rules of their VRs."""
    chosen = {keyword: pair for keyword, pair in MALFORMED.items() if only in (None, keyword)}
    for keyword, (valid, _) in chosen.items():
        setattr(dataset, keyword, valid)
    path.parent.mkdir(parents=True, exist_ok=True)
    phantom.save(dataset, path)
    content = path.read_bytes()
    for valid, broken in chosen.values():
        assert content.count(valid.encode()) >= 1, valid
        content = content.replace(valid.encode(), broken.encode())
    path.write_bytes(content)
    return path


def found_in(text: str, signs: tuple[str, ...] = SIGNS) -> Iterator[str]:
    """Where markers stand, with their surroundings."""
    for sign in signs:
        start = text.find(sign)
        if start >= 0:
            yield f"{sign}: …{text[max(0, start - 200) : start + 60]!r}"
