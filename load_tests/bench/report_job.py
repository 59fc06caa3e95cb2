"""A claimed result to build documents of.

Two phantom images, read by a release with as many findings as asked for.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from pydicom import dcmwrite
from pydicom.dataset import Dataset, FileMetaDataset

from hilum.assemble import Close, assemble
from hilum.domain import (
    ActivationMaps,
    Instance,
    Lease,
    Priority,
    Reading,
    ReadingState,
    Release,
    ReportJob,
    Study,
    StudyJob,
    StudyState,
)
from hilum.models.manifest.catalogue import load_catalogue
from hilum.receive.headers.patient import identity_of
from hilum.report import HeatMapSources, Picture, ReportContext
from testing.phantoms.phantom import make_study, save
from testing.serving import REPOSITORY

CONTEXT = ReportContext(
    manufacturer="Hilum project",
    series_number=9001,
    disclaimer="AI result, not verified by a physician. For research use only, not for diagnosis.",
    site_name="Bench",
    software_version="0",
    installation_serial="bench",
)
_LEASE = Lease(1, "token", 1, 0)
_NOW = 1_790_000_000.25
_GRID = (7, 7)


def release_with(findings: int) -> Release:
    """One of the repository with so many labels and class activation maps, as if it were trained.

    So it decides, and shows why.
    """
    releases = load_catalogue(REPOSITORY / "model_repository").values()
    found = next(
        release for release in releases if release.has_cam and len(release.labels) == findings
    )
    return dataclasses.replace(found, is_trained=True)


def claimed(release: Release, rows: int = 64) -> tuple[ReportJob, list[Dataset]]:
    """The job and its images; scores from clear to clear."""
    images = make_study(4, rows=rows, columns=rows)
    instances = [_instance(image, number) for number, image in enumerate(images, 1)]
    study = _study(instances)
    readings = [_reading(instance, release) for instance in instances]
    job = StudyJob(_LEASE, study, tuple(instances), tuple(readings), ())
    decided = assemble(job, {release.id: release}, uuid.NAMESPACE_OID, _NOW, identity_of)
    assert isinstance(decided, Close)
    (result,) = decided.results
    return ReportJob(_LEASE, result, study, tuple(instances), {}), images


def pictures(images: Sequence[Dataset], release: Release, folder: Path) -> HeatMapSources:
    """What a heat map of these is drawn from: the files, and one warm cell in each map."""
    maps = np.full((len(release.labels), *_GRID), -1.0, np.float16)
    maps[:, 2, 5] = 49.0
    found = {
        str(image.SOPInstanceUID): Picture(
            save(image, folder / f"{number}.dcm"), ActivationMaps(_logits(release), maps.tobytes())
        )
        for number, image in enumerate(images)
    }
    return HeatMapSources(found, 100_000_000)


def _logits(release: Release) -> tuple[float, ...]:
    return tuple(float(value) for value in np.linspace(-3, 3, len(release.labels)))


def _instance(image: Dataset, number: int) -> Instance:
    return Instance(
        sop_instance_uid=str(image.SOPInstanceUID),
        sop_class_uid=str(image.SOPClassUID),
        study_instance_uid=str(image.StudyInstanceUID),
        series_instance_uid=str(image.SeriesInstanceUID),
        transfer_syntax_uid=str(image.file_meta.TransferSyntaxUID),
        path=f"{number}.dcm",
        size_bytes=1,
        digest=f"d{number}",
        pixel_digest=f"p{number}",
        received_at=_NOW - 20,
        calling_ae_title="BENCH",
        called_ae_title="HILUM",
        header=_header(image),
        id=number,
    )


def _header(image: Dataset) -> bytes:
    """The data set up to Pixel Data, as the ledger keeps it."""
    kept = Dataset({tag: element for tag, element in image.items() if tag < 0x7FE00010})
    kept.file_meta = FileMetaDataset()
    kept.file_meta.TransferSyntaxUID = image.file_meta.TransferSyntaxUID
    target = BytesIO()
    dcmwrite(target, kept)
    return target.getvalue()


def _study(instances: Sequence[Instance]) -> Study:
    uid = instances[0].study_instance_uid
    return Study(
        uid, 1, StudyState.LEASED, Priority.LIVE, _NOW - 20, _NOW - 10, _NOW, "BENCH", "HILUM", 1
    )


def _reading(instance: Instance, release: Release) -> Reading:
    return Reading(
        id=instance.id,
        instance_id=instance.id,
        sop_instance_uid=instance.sop_instance_uid,
        release=release.id,
        state=ReadingState.ANALYSED,
        logits=_logits(release),
        view="PA",
        preprocessing_version="bench",
    )
