"""Values for tests of assembling, reporting and delivering.

Releases, instances and jobs, made from synthetic images.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

from pydicom.dataset import Dataset
from pydicom.filebase import DicomBytesIO
from pydicom.filewriter import write_dataset

from hilum.assemble import Close, assemble
from hilum.domain import (
    Code,
    ImageReason,
    Instance,
    Label,
    Lease,
    Priority,
    Reading,
    ReadingState,
    Release,
    ReportJob,
    Result,
    Study,
    StudyJob,
    StudyState,
)
from hilum.receive.headers.patient import identity_of
from hilum.report import ReportContext

NAMESPACE = uuid.UUID("3b1c1f0e-7d33-4b53-9f0c-1f1f5a0f0001")
LEASE = Lease(1, "token", 1, 0)
CREATED_AT = 1_790_000_000.25
CONTEXT = ReportContext(
    manufacturer="Hilum project",
    series_number=9001,
    disclaimer="AI result, not verified by a physician. For research use only, not for diagnosis.",
    site_name="Test site",
    software_version="0.1.0",
    installation_serial="installation-1",
)
# As a release of the NIH labels has them: verified codes, two of DICOM's own, and one that has no
# verified code.
LABELS = (
    Label("effusion", "Pleural effusion", Code("60046008", "SCT", "Pleural effusion"), "A", 0.5),
    Label("pneumothorax", "Pneumothorax", Code("36118008", "SCT", "Pneumothorax"), "A", 0.3),
    Label("infiltration", "Infiltration", Code("112121", "DCM", "Infiltrate"), "A", 0.5),
    Label(
        "thickening",
        "Pleural thickening",
        Code("PLEURAL_THICK", "99HILUM", "Pleural thickening"),
        "C",
        0.5,
    ),
    Label("nodule", "Nodule", Code("27925004", "SCT", "Nodule"), "A", None),
    Label("masked", "Masked", Code("4147007", "SCT", "Mass"), "A", 0.5, is_masked=True),
)
LOGITS = (0.4472, -1.25, 2.5, 3.0, -0.1, 5.0)


def make_release(**changes: Any) -> Release:
    """A trained and uncalibrated release of LABELS; `changes` are fields of Release."""
    release = Release(
        name="densenet121",
        version="2",
        architecture="densenet121",
        triton_name="densenet121__2",
        input_spec={"recipe": "torchxrayvision_224"},
        labels=LABELS,
        activation="sigmoid",
        aggregation="max",
        precision="bf16",
        engine="openvino",
        is_trained=True,
        is_frontal_only=True,
        calibration=None,
        manufacturer="Example AI",
        intended_use="Research on chest radiographs.",
        licence="Apache-2.0",
        source="example",
        weights_sha256="ab" * 32,
    )
    return dataclasses.replace(release, **changes)


def header_of(dataset: Dataset) -> bytes:
    """The data set up to Pixel Data, encoded in its own Transfer Syntax, as the ledger keeps it."""
    syntax = dataset.file_meta.TransferSyntaxUID
    kept = Dataset({tag: element for tag, element in dataset.items() if tag < 0x7FE00010})
    target = DicomBytesIO()
    target.is_implicit_VR, target.is_little_endian = syntax.is_implicit_VR, syntax.is_little_endian
    write_dataset(target, kept, dataset.get("SpecificCharacterSet", "ISO_IR 6"))
    return bytes(target.getvalue())


def instance_of(dataset: Dataset, number: int = 1, **changes: Any) -> Instance:
    """A stored instance with this data set's header."""
    instance = Instance(
        sop_instance_uid=str(dataset.SOPInstanceUID),
        sop_class_uid=str(dataset.SOPClassUID),
        study_instance_uid=str(dataset.StudyInstanceUID),
        series_instance_uid=str(dataset.SeriesInstanceUID),
        transfer_syntax_uid=str(dataset.file_meta.TransferSyntaxUID),
        path=f"{number}.dcm",
        size_bytes=1,
        digest=f"d{number}",
        pixel_digest=f"p{number}",
        received_at=CREATED_AT - 20 + number,
        calling_ae_title="MOD1",
        called_ae_title="HILUM",
        header=header_of(dataset),
        id=number,
    )
    return dataclasses.replace(instance, **changes)


def reading_of(instance: Instance, release: Release, **changes: Any) -> Reading:
    """An analysed reading of LOGITS."""
    reading = Reading(
        id=instance.id,
        instance_id=instance.id,
        sop_instance_uid=instance.sop_instance_uid,
        release=release.id,
        state=ReadingState.ANALYSED,
        logits=LOGITS,
        view="PA",
        preprocessing_version="hp1-0123abcd",
        timings={
            "decode_seconds": 0.01 * instance.id,
            "infer_seconds": 0.02,
            "started_at": 1e9,
            "finished_at": 1e9,
            "batch_size": 4,
        },
    )
    return dataclasses.replace(reading, **changes)


def lateral_of(instance: Instance, release: Release) -> Reading:
    """The reading of a lateral view by a release of frontal views."""
    reason = ImageReason.LATERAL_NOT_SUPPORTED.value
    return reading_of(
        instance,
        release,
        state=ReadingState.NOT_ANALYSED,
        logits=None,
        view="LATERAL",
        reason=reason,
    )


def study_of(instances: Sequence[Instance]) -> Study:
    """The study's row, its quiet period over at CREATED_AT."""
    return Study(
        study_instance_uid=instances[0].study_instance_uid,
        revision=len(instances),
        state=StudyState.LEASED,
        priority=Priority.LIVE,
        first_received_at=CREATED_AT - 19,
        last_received_at=CREATED_AT - 10,
        quiet_until=CREATED_AT,
        calling_ae_title="MOD1",
        called_ae_title="HILUM",
        id=1,
    )


def study_job(
    instances: Sequence[Instance], readings: Sequence[Reading], current: Sequence[Result] = ()
) -> StudyJob:
    """A claimed study."""
    return StudyJob(LEASE, study_of(instances), tuple(instances), tuple(readings), tuple(current))


def results_of(job: StudyJob, *releases: Release, now: float = CREATED_AT) -> tuple[Result, ...]:
    """What `assemble` makes of a study that has ended."""
    decided = assemble(
        job, {release.id: release for release in releases}, NAMESPACE, now, identity_of
    )
    assert isinstance(decided, Close), decided
    return decided.results


def report_job(
    instances: Sequence[Instance], result: Result, predecessors: Mapping[str, Any] | None = None
) -> ReportJob:
    """A claimed result."""
    return ReportJob(LEASE, result, study_of(instances), tuple(instances), predecessors or {})


def report_of(
    datasets: Sequence[Dataset], release: Release, used: Sequence[bool] | None = None
) -> ReportJob:
    """A claimed result of these images, all analysed or, where `used` is False, a lateral view that was not."""
    instances = [instance_of(dataset, number) for number, dataset in enumerate(datasets, 1)]
    flags = used or [True] * len(instances)
    readings = [
        (reading_of if flag else lateral_of)(item, release)
        for item, flag in zip(instances, flags, strict=True)
    ]
    (result,) = results_of(study_job(instances, readings), release)
    return report_job(instances, result)


def parse(content: bytes) -> Dataset:
    """An encoded document as a data set."""
    from pydicom import dcmread

    return dcmread(BytesIO(content))
