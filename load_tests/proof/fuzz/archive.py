"""What the archive holds after the fuzzing, read by pydicom.

It knows nothing of how the listener reads a header.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pydicom
from pydicom.errors import InvalidDicomError

from load_tests.proof.evidence import digest_of_object

_READ = ["SOPClassUID", "SOPInstanceUID", "StudyInstanceUID", "SeriesInstanceUID"]


def disagreements(
    acknowledged: Mapping[str, str], possible: Collection[str], archive: Path
) -> list[str]:
    """Lost: acknowledged and not there.

    Invented: there and never sent. And what pydicom cannot read, or finds to be another object.
    """
    found = objects(archive)
    lost = [
        f"{uid}: acknowledged, and not in the archive"
        for digest, uid in acknowledged.items()
        if digest not in found
    ]
    invented = [
        f"{file.name}: nobody has sent these bytes"
        for digest, file in found.items()
        if digest not in possible
    ]
    return [*lost, *invented, *_unreadable(acknowledged, found)]


def objects(archive: Path) -> dict[str, Path]:
    """sha256 of the data set of each object, in its place or in quarantine, to its file."""
    return {digest_of_object(file.read_bytes()): file for file in archive.rglob("*.dcm")}


def _unreadable(acknowledged: Mapping[str, str], found: Mapping[str, Path]) -> Iterator[str]:
    for digest, uid in acknowledged.items():
        if digest in found and (problem := _problem(found[digest], uid)):
            yield f"{uid}: {problem}"


def _problem(file: Path, uid: str) -> str:
    try:
        with warnings.catch_warnings(action="ignore"):
            header = pydicom.dcmread(file, stop_before_pixels=True, specific_tags=_READ)
    except (InvalidDicomError, ValueError, EOFError, NotImplementedError, KeyError) as error:
        return f"pydicom cannot read it: {error}"
    missing = [name for name in _READ if not str(header.get(name, ""))]
    if missing:
        return f"without {', '.join(missing)}"
    return "" if str(header.SOPInstanceUID) == uid else f"is {header.SOPInstanceUID}"
