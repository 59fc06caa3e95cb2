"""Results from which a template is compiled, and on which it has to prove itself.

All that a report can say, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydicom.dataset import Dataset

from hilum.domain import (
    SR,
    SR_CLASS_PREFERENCE,
    Decision,
    Document,
    Finding,
    Outcome,
    Release,
    Result,
    ServerReason,
    SourceImage,
)
from hilum.report.context import HeatMap

_CREATED_AT: Final = 1_000_000_000.125
_IMAGE: Final[Mapping[str, Any]] = {
    "SpecificCharacterSet": "ISO_IR 192",
    "SOPClassUID": "1.2.840.10008.5.1.4.1.1.1.1",
    "SOPInstanceUID": "2.25.1",
    "StudyInstanceUID": "2.25.2",
    "SeriesInstanceUID": "2.25.3",
    "TimezoneOffsetFromUTC": "+0100",
    "Modality": "DX",
    "Rows": 1,
    "Columns": 1,
    "PatientOrientation": ["L", "F"],
    "ImagerPixelSpacing": [0.25, 0.125],
    "PatientName": "Sample=見本",
    "PatientSex": "O",
    "AcquisitionDateTime": "20010101",
    "ReferringPhysicianName": "",
    **dict.fromkeys(
        ("Manufacturer", "ManufacturerModelName", "InstitutionName", "StationName"), "Sample"
    ),
    **dict.fromkeys(
        ("PatientID", "PatientBirthDate", "AccessionNumber", "StudyID", "StudyDate", "StudyTime"),
        "",
    ),
}
_SHOWN: Final = ("1.2.840.10008.5.1.4.1.1.7", "2.25.4", "2.25.5")
_BEFORE: Final = Document(SR.key, "", b"", SR_CLASS_PREFERENCE[0].sop_class_uid, "2.25.6", "2.25.7")


@dataclass(frozen=True, slots=True)
class Sample:
    """The arguments of `structured_report.build`."""

    result: Result
    images: tuple[Dataset, ...]
    before: tuple[Document, ...] = ()
    heat_map: HeatMap | None = None


def samples(release: Release) -> Iterator[Sample]:
    """Two rich ones, in which each label is calibrated once, and a poor one."""
    for parity in (0, 1):
        findings = tuple(_findings(release, parity))
        keys = tuple(finding.key for finding in findings)
        yield Sample(
            _result(release, findings), (_image(_IMAGE),), (_BEFORE,), HeatMap(*_SHOWN, keys)
        )
    bare = {
        keyword: value
        for keyword, value in _IMAGE.items()
        if keyword not in ("TimezoneOffsetFromUTC", "Manufacturer", "Rows")
    }
    nothing = replace(
        _result(release, ()),
        outcome=Outcome.NOT_ANALYSED,
        reason=ServerReason.NO_ANALYSED_IMAGE.value,
        is_trained=False,
    )
    yield Sample(nothing, (_image(bare),))


def _image(values: Mapping[str, Any]) -> Dataset:
    image = Dataset()
    for keyword, value in values.items():
        setattr(image, keyword, value)
    return image


def _findings(release: Release, parity: int) -> Iterator[Finding]:
    """One of each label; every second as a calibrated release has it, so that both kinds occur."""
    for number, label in enumerate(label for label in release.labels if not label.is_masked):
        probability = 0.5 if number % 2 == parity else None
        yield Finding(
            label.key,
            label.text,
            label.code,
            0.0,
            0.5,
            probability,
            None,
            Decision.UNDECIDED,
            (_IMAGE["SOPInstanceUID"],),
        )


def _result(release: Release, findings: tuple[Finding, ...]) -> Result:
    image = SourceImage(
        _IMAGE["SOPInstanceUID"],
        _IMAGE["SOPClassUID"],
        _IMAGE["SeriesInstanceUID"],
        "PA",
        is_used=True,
        reason=None,
    )
    return Result(
        study_instance_uid=_IMAGE["StudyInstanceUID"],
        release=release.id,
        source_digest="",
        revision=1,
        outcome=Outcome.ANALYSED,
        reason=None,
        findings=findings,
        source_images=(image,),
        is_trained=True,
        is_calibrated=False,
        preprocessing_version=None,
        identifiers={SR.key: "2.25.8", SR.series: "2.25.9"},
        timings={},
        created_at=_CREATED_AT,
    )
