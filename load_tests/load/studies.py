"""The studies of a scenario: phantoms drawn, or the user's files read; encoded once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pydicom
from pydicom.errors import InvalidDicomError

from load_tests.load.mix import Mix, Part, StudyTemplate
from load_tests.load.scenario import Kind, ScenarioError
from testing.phantoms.encoded import Template, encode
from testing.phantoms.pixel_codecs import draw_study


def make(kinds: Sequence[Kind]) -> Mix:
    """Draw, or read the user's files. Raises ScenarioError."""
    return Mix(
        tuple(
            Part(kind.weight, kind.calling_ae_title, tuple(_of_kind(kind, 1000 * index)))
            for index, kind in enumerate(kinds)
        )
    )


def _of_kind(kind: Kind, first_seed: int) -> Iterator[StudyTemplate]:
    if kind.files:
        yield from read_studies(kind.files)
        return
    for seed in range(first_seed, first_seed + kind.variants):
        drawn = draw_study(
            seed,
            kind.modality,
            kind.transfer_syntax,
            kind.rows,
            kind.columns,
            kind.bits,
            kind.images,
        )
        yield tuple(encode(image) for image in drawn)


def read_studies(paths: Iterable[Path]) -> list[StudyTemplate]:
    """DICOM files below these paths, by study; other files and deflated ones are left out.

    Raises ScenarioError: there is none.
    """
    studies: dict[str, list[Template]] = {}
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            _read_into(studies, file)
    if not studies:
        raise ScenarioError("mix.files: no DICOM file was found there")
    return [tuple(images) for images in studies.values()]


def _read_into(studies: dict[str, list[Template]], file: Path) -> None:
    if not file.is_file():
        return
    try:
        dataset = pydicom.dcmread(file)
    except InvalidDicomError:
        return
    # A DICOMDIR has no study, and a deflated data set no place where its UIDs could be replaced.
    if (
        "StudyInstanceUID" in dataset
        and "SOPClassUID" in dataset
        and not dataset.file_meta.TransferSyntaxUID.is_deflated
    ):
        studies.setdefault(dataset.StudyInstanceUID, []).append(encode(dataset))
